"""Any LangChain `Embeddings` as an embedder: `langchain:MODULE:NAME`.

NAME is a class that can be called without arguments, a function without arguments that returns an `Embeddings`, or an
`Embeddings` itself. MODULE is imported as usual: Python finds a file of your own if its folder is on PYTHONPATH.
LangChain does not say what a model costs or how much of a text it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from migrate.embedders.abilities import PrefixedModel
from migrate.embedders.base import BUILT_WITH, Role, in_batches, other_dimension, require_texts
from migrate.embedders.kinds import EmbedderKind, LoadOptions
from migrate.embedders.profile import Profile
from migrate.errors import RemoteError, UsageError, VectorError
from migrate.files import canonical_json
from migrate.manifest import ModelIdentity
from migrate.vectors import Document, Progress, Text, Vectors, as_vectors, check_vectors, no_progress, summarize_norms

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings


class LangChainEmbedder(PrefixedModel):
    """A LangChain `Embeddings`. Documents go through `embed_documents`, queries one by one through `embed_query`.

    `spec` None names it by module and class. `dimensions` None asks for one word's vector, which may cost a call.
    Prefixes are put before each text in addition to what the model itself does.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        *,
        spec: str | None = None,
        dimensions: int | None = None,
        document_prefix: str = "",
        query_prefix: str = "",
        batch_size: int = 64,
    ) -> None:
        self.embeddings = embeddings
        self.class_name = f"{type(embeddings).__module__}:{type(embeddings).__qualname__}"
        self.spec = spec or f"langchain:{self.class_name}"
        self.dimensions = dimensions
        self.prefixes: dict[Role, str] = {"document": document_prefix, "query": query_prefix}
        self.batch_size = batch_size
        self._probed: tuple[int, bool] | None = None

    @property
    def identity(self) -> ModelIdentity:
        """The model as artefacts remember it; its revision is the name of the model that the object gives, if any."""
        dim, normalized = self._probe()
        return ModelIdentity(
            spec=self.spec,
            dim=dim,
            normalized=normalized,
            document_prefix=self.prefixes["document"],
            query_prefix=self.prefixes["query"],
            revision=self._model_name,
        )

    @property
    def profile(self) -> Profile:
        """Profile of unknown cost, with tokens that are estimated."""
        return Profile(
            self.spec,
            kind="langchain",
            dim=self.dimensions,
            document_prefix=self.prefixes["document"],
            query_prefix=self.prefixes["query"],
        )

    @property
    def _model_name(self) -> str | None:
        """The name that LangChain's own classes give their model."""
        attributes = ("model", "model_name", "model_id", "deployment")
        # Each integration has its own attribute, and none is part of the interface
        names = (getattr(self.embeddings, attribute, None) for attribute in attributes)
        return next((name for name in names if isinstance(name, str) and name), None)

    def _probe(self) -> tuple[int, bool]:
        """Return the dimension, and whether vectors are of unit length, by the vector of one word."""
        if self._probed is None:  # asked once, as the call may cost money
            vectors = self._embed_batch([Document("probe", "word")], "document", self.dimensions)
            self._probed = vectors.shape[1], summarize_norms(vectors).is_unit
        return self._probed

    def expect_dim(self, dim: int, source: str, *, advice: str = BUILT_WITH) -> None:
        """Check the dimension; a declared one is trusted here, and every vector is checked against it."""
        model_dim = self.dimensions or self._probe()[0]
        if model_dim != dim:
            raise other_dimension(self.spec, model_dim, dim, source, advice)

    def with_prefixes(self, document_prefix: str, query_prefix: str) -> LangChainEmbedder:
        """The same object with other prefixes."""
        # What was probed holds for it too: prefixes change neither dimension nor length
        prefixed = copy(self)
        prefixed.prefixes = {"document": document_prefix, "query": query_prefix}
        return prefixed

    def cache_scope(self, role: Role) -> str:
        """Spec, class and model name; the role counts, as the two methods may embed one text in two ways."""
        dim = self.dimensions or self._probe()[0]
        return canonical_json([self.spec, self.class_name, self._model_name, dim, role, self.prefixes[role]])

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed texts, `batch_size` at a time.

        Raises InputError: a text is empty; names its id. VectorError: a vector is zero, not finite, or of another
        dimension than the others. RemoteError: the object raised an exception, or gave another number of vectors than
        texts.
        """
        require_texts(texts, model=self.spec)
        dim = self.dimensions or self._probe()[0]
        return in_batches(texts, self.batch_size, dim, lambda batch, _: self._embed_batch(batch, role, dim), progress)

    def _embed_batch(self, texts: Sequence[Text], role: Role, dim: int | None) -> Vectors:
        inputs = [self.prefixes[role] + text.text for text in texts]
        try:
            rows: list[Any]
            if role == "query":
                # LangChain has no call for several queries
                rows = [self.embeddings.embed_query(text) for text in inputs]
            else:
                rows = list(self.embeddings.embed_documents(inputs))
        except Exception as error:  # a foreign object may raise anything
            raise RemoteError(
                f"{self.spec}: embedding {len(inputs)} texts failed with {_reason(error)}; what was embedded before is "
                "kept where there is a cache"
            ) from error
        if len(rows) != len(texts):
            raise RemoteError(
                f"{self.spec}: returned {len(rows)} vectors for {len(texts)} texts; the class that embeds is at fault"
            )
        with np.errstate(over="ignore"):
            vectors = as_vectors(rows, source=self.spec)
        if dim is not None and vectors.shape[1] != dim:
            advice = "a model has one dimension"
            if self.dimensions:
                advice = f"leave out dimensions={self.dimensions}"
            raise VectorError(f"{self.spec}: its vectors have dimension {vectors.shape[1]}, not {dim}; {advice}")
        noun = "document"
        if role == "query":
            noun = "query"
        check_vectors([text.id for text in texts], vectors, source=self.spec, noun=noun)
        return vectors


def load_embeddings(name: str) -> Embeddings:
    """The `Embeddings` that `MODULE:NAME` stands for.

    Raises UsageError: there is no such module or name, it cannot be imported or made without arguments, or is something
    else.
    """
    module_name, colon, attribute = name.partition(":")
    spec = f"langchain:{name}"
    if not (colon and module_name and attribute):
        raise UsageError(f"{spec!r} is not of the form langchain:MODULE:CLASS, for example langchain:{KIND.example}")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        missing = f"no module named {error.name!r}"
        raise UsageError(f"{spec}: {missing}; install it, or put its folder on PYTHONPATH") from error
    except Exception as error:  # a foreign module may raise anything
        raise UsageError(f"{spec}: importing {module_name} failed with {_reason(error)}; repair the module") from error
    try:
        item = getattr(module, attribute)
    except AttributeError as error:
        raise UsageError(f"{spec}: {module_name} has nothing named {attribute!r}; check the spelling") from error
    from langchain_core.embeddings import Embeddings

    if not isinstance(item, Embeddings) and callable(item):
        try:
            item = item()
        except Exception as error:  # a foreign class may raise anything
            raise UsageError(
                f"{spec}: calling it without arguments failed with {_reason(error)}; write a function that "
                "makes it, and name that"
            ) from error
    if not isinstance(item, Embeddings):
        raise UsageError(
            f"{spec}: gives a {type(item).__name__}, not a LangChain Embeddings; name a class, a function "
            "or an object that is one"
        )
    return item


def _reason(error: Exception) -> str:
    """Class and message of an exception in one line."""
    message = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {message[:200]}"


def _load(name: str, options: LoadOptions) -> LangChainEmbedder:
    options_taken = options.chosen("dimensions", "document_prefix", "query_prefix", "batch_size")
    return LangChainEmbedder(load_embeddings(name), spec=f"langchain:{name}", **options_taken)


KIND = EmbedderKind(
    _load, "langchain_openai:OpenAIEmbeddings", takes_prefixes=True, takes_dimensions=True, runs_code=True
)
