"""A lexical embedder that needs no network and no model: TF-IDF, reduced by a truncated SVD.

Deerwester et al. 1990, "Indexing by latent semantic analysis". It learns its vocabulary and its directions from the
corpus once (`fit`); what it learned is saved as JSON and safetensors and gives the same vectors ever after.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from migrate.documents import Text
from migrate.embedders.base import Embedder, Role
from migrate.embedders.tfidf_state import STATE_NAME, WEIGHTS_NAME, TfidfState, read_state
from migrate.errors import InputError, UsageError
from migrate.manifest import ModelIdentity
from migrate.vectors import Progress, Vectors, as_vectors, no_progress, unit_rows

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer

_SVD_ROUNDS = 7
_SMALLEST_NORM = 1e-6


class TfidfEmbedder(Embedder):
    """TF-IDF with sublinear term frequency, truncated SVD, rows of unit length.

    A text without any known word would be a zero vector, which no store may hold. It gets the mean direction of the
    corpus instead: as close to every document as to any other.

    Parameters
    ----------
    dim
        Dimensions to keep, at most the number of documents and of words.
    seed
        Seed of the randomised SVD.
    state
        A folder that `save_state` wrote; then `fit` has nothing left to learn.
    """

    cacheable = False

    def __init__(self, dim: int, *, seed: int = 0, state: Path | None = None) -> None:
        self.dim = dim
        self.seed = seed
        self._learned = _Learned(read_state(state, dim=dim)) if state is not None else None

    @property
    def identity(self) -> ModelIdentity:
        """The model as artefacts remember it; its revision is the hash of what it learned, None before `fit`."""
        revision = self._learned.revision if self._learned else None
        return ModelIdentity(spec=f"tfidf:{self.dim}", dim=self.dim, normalized=True, revision=revision)

    def fit(self, corpus: Iterable[Text]) -> None:
        """Learn from the corpus; what has been learned once, or was loaded, stays.

        Raises
        ------
        InputError
            The corpus has fewer documents or words than the dimension.
        """
        if self._learned is None:
            self._learned = _Learned(learn(corpus, dim=self.dim, seed=self.seed))

    def state(self) -> Mapping[str, bytes]:
        """What `fit` learned; equal states are equal bytes."""
        facts, weights = self._fitted.state.to_files()
        return {STATE_NAME: facts, WEIGHTS_NAME: weights}

    @property
    def _fitted(self) -> _Learned:
        if self._learned is None:
            raise UsageError(
                f"tfidf:{self.dim} has learned nothing yet; give it the corpus to fit, or the folder of its saved state"
            )
        return self._learned

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed texts; documents and queries alike, and each text the same in any company."""
        learned = self._fitted
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        weights = learned.vectorizer.transform([text.text for text in texts])
        projected = np.asarray(weights @ learned.directions)
        projected[np.linalg.norm(projected, axis=1) < _SMALLEST_NORM] = learned.state.fallback
        progress("embed", len(texts), len(texts))
        return unit_rows(as_vectors(projected))


class _Learned:
    """A state in the shapes that embedding needs, each made once."""

    def __init__(self, state: TfidfState) -> None:
        self.state = state

    @cached_property
    def revision(self) -> str:
        return hashlib.sha256(b"".join(self.state.to_files())).hexdigest()

    @cached_property
    def directions(self) -> NDArray[np.float64]:
        return self.state.components.T.astype(np.float64)

    @cached_property
    def vectorizer(self) -> TfidfVectorizer:
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(sublinear_tf=True, vocabulary=list(self.state.vocabulary))
        vectorizer.idf_ = self.state.idf
        return vectorizer


def learn(corpus: Iterable[Text], *, dim: int, seed: int) -> TfidfState:
    """Vocabulary, weights and directions of a corpus.

    Raises
    ------
    InputError
        The corpus has fewer documents or words than `dim`.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True)
    try:
        weights: csr_matrix = vectorizer.fit_transform(text.text for text in corpus)
    except ValueError as error:
        raise InputError(
            f"tfidf:{dim}: expected a corpus with words in it, found none; give documents with texts"
        ) from error
    documents, words = weights.shape
    if dim > min(documents, words):
        raise InputError(
            f"tfidf:{dim} needs {dim} documents and words, found {documents} and {words}; choose a smaller dimension"
        )
    with np.errstate(invalid="ignore"):  # shares of the variance, which nobody reads and one document does not have
        svd = TruncatedSVD(n_components=dim, n_iter=_SVD_ROUNDS, random_state=seed).fit(weights)
    components = as_vectors(svd.components_)
    rows = np.asarray(weights @ components.T.astype(np.float64))
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    mean = (rows / np.maximum(norms, _SMALLEST_NORM)).mean(axis=0)
    return TfidfState(
        vocabulary=tuple(vectorizer.get_feature_names_out().tolist()),
        idf=np.ascontiguousarray(vectorizer.idf_, dtype=np.float64),
        components=components,
        fallback=as_vectors(mean[None])[0],
    )
