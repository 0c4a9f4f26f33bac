"""A lexical embedder that needs no network and no model: TF-IDF, reduced by a truncated SVD.

Deerwester et al. 1990, "Indexing by latent semantic analysis". `fit` learns the vocabulary and the directions from the
corpus once. They are saved as JSON and safetensors, without pickle, and give the same vectors ever after.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.abilities import CorpusModel
from migrate.embedders.base import Role
from migrate.embedders.kinds import EmbedderKind, LoadOptions
from migrate.embedders.profile import Profile
from migrate.errors import InputError, UsageError
from migrate.files import canonical_json, read_file
from migrate.manifest import ModelIdentity
from migrate.reading import read_json
from migrate.vectors import Progress, Text, Vectors, as_vectors, no_progress, unit_rows

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer

STATE_NAME = "embedder.json"
WEIGHTS_NAME = "embedder.safetensors"
FORMAT_VERSION = 1

# Arbitrary: a text of unknown words alone projects to zero, up to the rounding of float64.
_SMALLEST_NORM = 1e-6


@dataclass(frozen=True, slots=True)
class TfidfState:
    """State that `TfidfEmbedder.fit` learned.

    `vocabulary` has w words, `idf` their weights, shape (w,), float64; `components` are the directions kept,
    (dim, w), float32; `fallback` is where a text without a known word goes, (dim,), float32.
    """

    vocabulary: tuple[str, ...]
    idf: NDArray[np.float64]
    components: Vectors
    fallback: Vectors

    def to_files(self) -> tuple[bytes, bytes]:
        """The contents of `STATE_NAME` and `WEIGHTS_NAME`; equal states give equal bytes."""
        from safetensors.numpy import save

        state = {
            "format_version": FORMAT_VERSION,
            "kind": "tfidf",
            "dim": len(self.fallback),
            "vocabulary": list(self.vocabulary),
        }
        weights: dict[str, NDArray[Any]] = {"components": self.components, "fallback": self.fallback, "idf": self.idf}
        return canonical_json(state).encode() + b"\n", save(weights)


def read_state(folder: Path, *, dim: int) -> TfidfState:
    """Read what `TfidfState.to_files` gave."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        facts = read_json(folder / STATE_NAME)
        weights = load(read_file(folder / WEIGHTS_NAME))
    except OSError as error:
        raise InputError(
            f"{folder}: the words that tfidf:{dim} learned ({STATE_NAME}, {WEIGHTS_NAME}) are missing; "
            "only a store that lead-migrate embedded has them: name another model"
        ) from error
    except (ValueError, SafetensorError) as error:
        raise InputError(f"{folder}: the saved state of tfidf:{dim} is damaged ({error}); fit it again") from error
    _check_facts(facts, folder, dim)
    state = _build(facts, weights, folder, dim)
    if not all(np.isfinite(array).all() for array in (state.idf, state.components, state.fallback)):
        raise InputError(f"{folder}: the saved state of tfidf:{dim} holds NaN or Inf; fit it again")
    return state


def _check_facts(state: Any, folder: Path, dim: int) -> None:
    if not isinstance(state, dict) or state.get("kind") != "tfidf":
        raise InputError(f"{folder}: holds no saved state of a tfidf embedder; name the folder that does")
    if state.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{folder}: a state of format version {state.get('format_version')!r}, not {FORMAT_VERSION}; fit it again"
        )
    if state.get("dim") != dim:
        raise InputError(f"{folder}: the saved state is of tfidf:{state.get('dim')}, not of tfidf:{dim}; name that")


def _build(state: dict[str, Any], weights: dict[str, NDArray[Any]], folder: Path, dim: int) -> TfidfState:
    words = state.get("vocabulary")
    expected = {"components": (dim, len(words or ())), "fallback": (dim,), "idf": (len(words or ()),)}
    shapes = {name: array.shape for name, array in weights.items()}
    if not isinstance(words, list) or shapes != expected or len(set(map(str, words))) != len(words):
        raise InputError(f"{folder}: the parts of the saved state of tfidf:{dim} do not fit together; fit it again")
    return TfidfState(
        vocabulary=tuple(map(str, words)),
        idf=weights["idf"].astype(np.float64),
        components=weights["components"].astype(np.float32),
        fallback=weights["fallback"].astype(np.float32),
    )


class TfidfEmbedder(CorpusModel):
    """TF-IDF with sublinear term frequency, truncated SVD, rows of unit length.

    A text without any known word would be a zero vector, which no store may hold. It gets the mean direction of the
    corpus instead: as close to every document as to any other. `dim` is at most the number of documents and of words;
    with `state`, a folder that `save_state` wrote, `fit` has nothing left to learn.
    """

    cacheable = False

    def __init__(self, dim: int, *, seed: int = 0, state: Path | None = None) -> None:
        self.dim = dim
        self.seed = seed
        self._learned: TfidfState | None = None
        self._revision: str | None = None
        if state is not None:
            self._keep(read_state(state, dim=dim))

    def _keep(self, learned: TfidfState) -> None:
        self._learned = learned
        self._revision = hashlib.sha256(b"".join(learned.to_files())).hexdigest()

    @property
    def identity(self) -> ModelIdentity:
        """The model as artefacts remember it; its revision is the hash of what it learned, None before `fit`."""
        return ModelIdentity(spec=f"tfidf:{self.dim}", dim=self.dim, normalized=True, revision=self._revision)

    @property
    def profile(self) -> Profile:
        """Free, without a limit, and in need of a corpus."""
        return Profile(f"tfidf:{self.dim}", kind="tfidf", dim=self.dim, is_paid=False, embeds_new_texts=False)

    def fit(self, corpus: Iterable[Text]) -> None:
        """Learn from the corpus; what has been learned once, or was loaded, stays.

        Raises InputError: the corpus has fewer documents or words than the dimension.
        """
        if self._learned is None:
            self._keep(learn(corpus, dim=self.dim, seed=self.seed))

    def state(self) -> Mapping[str, bytes]:
        """Learned state as files; equal states are equal bytes."""
        state, weights = self._fitted.to_files()
        return {STATE_NAME: state, WEIGHTS_NAME: weights}

    @property
    def _fitted(self) -> TfidfState:
        if self._learned is None:
            raise UsageError(
                f"tfidf:{self.dim} has learned nothing yet; give it the corpus to fit, or the folder of its saved state"
            )
        return self._learned

    # Cached, and made for the first text only: scikit-learn takes a second to load, and the directions are large
    @cached_property
    def _projection(self) -> tuple[TfidfVectorizer, NDArray[np.float64]]:
        """The vectorizer with the words that were learned, and the components as columns, (w, dim)."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        learned = self._fitted
        vectorizer = TfidfVectorizer(sublinear_tf=True, vocabulary=list(learned.vocabulary))
        vectorizer.idf_ = learned.idf
        return vectorizer, learned.components.T.astype(np.float64)

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed texts; documents and queries alike, and each text the same in any company."""
        learned = self._fitted
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        vectorizer, directions = self._projection
        projected = np.asarray(vectorizer.transform([text.text for text in texts]) @ directions)
        # A text of unknown words alone: no store may hold a zero vector
        projected[np.linalg.norm(projected, axis=1) < _SMALLEST_NORM] = learned.fallback
        progress("embed", len(texts), len(texts))
        return unit_rows(as_vectors(projected))


def learn(corpus: Iterable[Text], *, dim: int, seed: int) -> TfidfState:
    """Vocabulary, weights and directions of a corpus."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True)
    try:
        weights: csr_matrix = vectorizer.fit_transform(text.text for text in corpus)
    except ValueError as error:
        raise InputError(f"tfidf:{dim}: the corpus has no words; give documents with texts") from error
    documents, n_words = weights.shape
    if dim > min(documents, n_words):
        raise InputError(
            f"tfidf:{dim} needs at least {dim} documents and words, and there are {documents} and {n_words}; choose a "
            "smaller dimension"
        )
    # scikit-learn divides by the variance, which is 0 where all documents are the same
    with np.errstate(divide="ignore", invalid="ignore"):  # shares of the variance, unused
        svd = TruncatedSVD(n_components=dim, n_iter=7, random_state=seed).fit(weights)
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


def _load(name: str, options: LoadOptions) -> TfidfEmbedder:
    if not name.isascii() or not name.isdigit() or int(name) < 1:
        raise UsageError(f"tfidf:{name} names no number of dimensions; give one such as tfidf:256")
    return TfidfEmbedder(int(name), seed=options.seed, state=options.state)


KIND = EmbedderKind(_load, "256")
