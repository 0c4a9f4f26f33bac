"""The result of a check: the cause, a sentence, named findings, and the figures and examples behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from migrate.check.comparison import Share
from migrate.check.retrieval import RetrievalCost
from migrate.display import notebook_html
from migrate.manifest import ModelIdentity


class Cause(StrEnum):
    """The cause why a store is compatible with a model or not."""

    COMPATIBLE = "compatible"
    DIMENSION = "other dimension"
    SHORTENED = "shortened vectors"
    OTHER_MODEL = "other model"
    NOT_IN_FILE = "documents that the file does not hold"
    OUT_OF_STEP = "ids and vectors out of step"
    MISSING_PREFIX = "missing prefix"
    DOUBLED_PREFIX = "doubled prefix"
    POOLING = "other pooling"
    LENGTH = "texts cut at another length"
    NEAR = "near but not equal"
    NORMS = "other norms"
    MIXED = "mixed store"
    MANIFEST = "manifest of another model"
    CHANGED = "changed since it was stamped"


@dataclass(frozen=True, slots=True)
class Observation:
    """A thing that was looked at, under a name that does not change; `ok` if it is as it should be."""

    name: str
    ok: bool
    message: str


@dataclass(frozen=True, slots=True)
class Example:
    """A sampled document that disagrees: the cosine with the vector of its text, and what it seems to be."""

    doc_id: str
    row: int
    cosine: float
    taken_for: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A way of embedding that was tried on `tried` sampled documents, and for how many it gives the stored vector."""

    cause: Cause
    meaning: str
    tried: int
    agreeing: int
    median_cosine: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """The figures of a comparison with vectors that were embedded again.

    Attributes
    ----------
    sampled, agreeing : documents that were embedded again, and those whose stored vector is what came out
    disagreeing : the share of the store's documents that disagree, with bounds
    tolerance : how far below 1 a cosine may be in an agreement
    median_cosine : of stored vectors and new ones of the same texts
    chance_cosine : median over pairs of different texts: what nothing in common looks like in this store
    """

    sampled: int
    agreeing: int
    disagreeing: Share
    tolerance: float
    median_cosine: float
    chance_cosine: float


@dataclass(frozen=True, slots=True)
class Found:
    """The model that a store's vectors are of: `spec` and `options` are what `load_embedder` makes it by.

    The options are those that are not the default of the spec. It gives the vectors of `agreeing` of the `sampled`
    documents, which were drawn with `seed`.
    """

    spec: str
    options: Mapping[str, str | int]
    model: ModelIdentity
    sampled: int
    agreeing: int
    seed: int


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The answer to whether a store's vectors are those of a model; compatible only if every finding is ok.

    `found` is the model that they are of, where embedding texts again has shown it: the one that was asked about, or
    the same used in another way. `suits_queries` says that the model's queries are right for vectors that are not quite
    what it gives to the texts: only the lengths of the vectors differ, in a way that changes no order.
    `retrieval` is what it costs that vectors are near the model's but not the same, where that was measured.
    """

    store: str
    model: ModelIdentity
    cause: Cause
    sentence: str
    basis: Literal["manifest", "sample", "facts"]
    """The manifest alone, texts embedded again, or dimension and norms alone."""
    findings: tuple[Observation, ...]
    figures: Agreement | None = None
    trials: tuple[Trial, ...] = ()
    examples: tuple[Example, ...] = ()
    notes: tuple[str, ...] = ()
    found: Found | None = None
    suits_queries: bool = False
    retrieval: RetrievalCost | None = None

    def __repr__(self) -> str:
        answer = "not compatible"
        if self.compatible:
            answer = "compatible"
        return f"<Compatibility {answer} with {self.model.spec}: {self.sentence}>"

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    @property
    def compatible(self) -> bool:
        """True if the store may be used with the model."""
        return self.cause is Cause.COMPATIBLE
