"""Documents, queries, batches of vectors, and the checks that vectors must pass. Knows nothing of files or models."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from migrate.errors import VectorError
from migrate.progress import Progress as Progress
from migrate.progress import no_progress as no_progress

Vectors = NDArray[np.float32]
"""Rows of float32, shape (n, dim), C-contiguous, finite."""

# Unit vectors rounded to float16 are off by 0.0002 at most (20,000 random ones of dimension 64, less of more).
UNIT_TOLERANCE = 1e-3
"""How far from 1 the norm of a row may be for the row to count as unit length."""


class Text(Protocol):
    """The part of a document or a query that an embedder needs: an id and a text."""

    @property
    def id(self) -> str:
        """The id, unique among its kind."""

    @property
    def text(self) -> str:
        """The text as it was read, without any model's prefix."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document, or one chunk of one: `id` is the store's own id, kept to the byte."""

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a BEIR set or a query log; two of one id and text are equal."""

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict, compare=False)


_LOOK_ALIKES: Final = str.maketrans(
    "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445"  # Cyrillic
    "\u0455\u0456\u0458\u0475\u04bb\u04cf\u0501\u051b\u051d"
    "\u03b1\u03b2\u03b3\u03b5\u03b6\u03b7\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u03c9"  # Greek
    "\u0131\u0251\u0261\u0142\u00f8\u0111",  # Latin
    "abekmhopctyx" + "sijvhldqw" + "abyeznikvoptuxw" + "iaglod",
)
"""Lower-case letters, and the ASCII ones that they are taken for. Greek mu is none: a microgram is no milligram."""

_ACCENTS: Final = re.compile(
    "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\u115f\u1160\U000e0100-\U000e01ef]"
)
"""Marks on letters of any script, and characters that nothing shows; marks that are letters of a script stay."""


def folded(text: str) -> str:
    r"""Return a text in one spelling, whatever its case, accents, Unicode form, look-alike and invisible characters.

    All comparisons of texts by their words or letters are of this form.

    >>> folded("D\u00e9j\u00e0 \uff36\uff35, \u0440l\u0435\u200bas\u00ade")
    'deja vu, please'
    """
    # Twice, as Unicode compares without case (NFKC_Casefold): folding may leave what NFKC would change again.
    spelled = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    if spelled.isascii():
        return spelled
    bare = _ACCENTS.sub("", unicodedata.normalize("NFD", spelled)).translate(_LOOK_ALIKES)
    return unicodedata.normalize("NFC", "".join(sign for sign in bare if unicodedata.category(sign) != "Cf"))


_LEFT_OUT: Final = ("P", "Z", "C", "So", "Sk")
"""Categories of Unicode that make no difference in a query: punctuation, separators, what is not shown, and emoji."""

_ASCII_LEFT_OUT: Final = {code: None for code in range(128) if unicodedata.category(chr(code)).startswith(_LEFT_OUT)}


def query_key(text: str) -> str:
    r"""Return the normal form of a query, equal for queries that differ only in how they are typed.

    It has the letters, digits and symbols alone of the `folded` text: white space, punctuation and emoji make no
    difference.

    >>> query_key("  How  do I re-ask?\n") == query_key("how do I reask")
    True
    """
    spelled = folded(text)
    if spelled.isascii():
        letters = spelled.translate(_ASCII_LEFT_OUT)
    else:
        letters = "".join(sign for sign in spelled if not unicodedata.category(sign).startswith(_LEFT_OUT))
    return letters or " ".join(spelled.split())


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive vectors of a store with the ids of their documents: `vectors[i]` is `ids[i]`."""

    ids: Sequence[str]
    vectors: Vectors

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class NormSummary:
    """Euclidean norms of some rows."""

    mean: float
    minimum: float
    maximum: float

    @property
    def is_unit(self) -> bool:
        """True if every row is of unit length, within `UNIT_TOLERANCE`."""
        return self.minimum > 1 - UNIT_TOLERANCE and self.maximum < 1 + UNIT_TOLERANCE


def squared_norms(vectors: Vectors) -> NDArray[np.float32]:
    """Return squared Euclidean norm of each row of (n, dim), shape (n,)."""
    # Not `(vectors ** 2).sum(axis=1)`, which would make another array as large as the vectors.
    squares: NDArray[np.float32] = np.einsum("ij,ij->i", vectors, vectors)
    return squares


def summarize_norms(vectors: Vectors) -> NormSummary:
    """Mean, least and greatest row norm of (n, dim), n >= 1."""
    norms = np.sqrt(squared_norms(vectors).astype(np.float64))
    return NormSummary(float(norms.mean()), float(norms.min()), float(norms.max()))


def as_vectors(rows: ArrayLike, *, dim: int | None = None, source: str = "vectors") -> Vectors:
    """Return rows as float32, C-contiguous, shape (n, dim); copied only where it must be.

    Raises
    ------
    VectorError
        Not numbers, not two-dimensional, or not `dim` columns. Values are not looked at: see `check_vectors`.
    """
    try:
        vectors = np.ascontiguousarray(rows, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise VectorError(f"{source}: not a table of numbers with rows of equal length ({error})") from error
    if vectors.ndim != 2:
        raise VectorError(
            f"{source}: an array of {vectors.ndim} dimensions is not a table of vectors; give one vector per row"
        )
    if dim is not None and vectors.shape[1] != dim:
        raise VectorError(f"{source}: the vectors have dimension {vectors.shape[1]}, not {dim}")
    return vectors


def check_vectors(
    ids: Sequence[object], vectors: Vectors, *, source: str, noun: str = "document", allow_zero: bool = False
) -> NDArray[np.float32]:
    """Return squared norms of the rows, shape (n,), after making sure that every row is finite and not zero.

    One pass serves both: a NaN or Inf anywhere makes the row's squared norm NaN or Inf, as does a
    value beyond 1.8e19, whose square float32 cannot hold. `ids[i]` tells a reader which `noun` row i is.

    Raises
    ------
    VectorError
        Names `source`, the first bad id, and how many rows are bad.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = squared_norms(vectors)
    if allow_zero:
        good = np.isfinite(squares)
    else:
        good = np.isfinite(squares) & (squares > 0)
    if not good.all():
        bad = np.flatnonzero(~good)
        first = int(bad[0])
        fault = "NaN, Inf or overflowing"
        if squares[first] == 0:
            fault = "zero"
        raise VectorError(
            f"{source}: {fault} vector for {noun} {ids[first]!r} ({bad.size} bad of {len(ids)} in this batch); "
            "re-embed or remove it"
        )
    return squares


def first_dimensions(vectors: Vectors, count: int, *, is_unit: bool) -> Vectors:
    """Return the first `count` columns of rows, (n, count), with each row scaled to unit length where `is_unit`.

    So a model that was trained for it gives shorter vectors (Kusupati et al. 2022, Matryoshka representation learning).
    """
    rows = np.ascontiguousarray(vectors[:, :count])
    if not is_unit:
        return rows
    return unit_rows(rows)


def unit_rows(vectors: Vectors) -> Vectors:
    """Return the rows of (n, dim) divided by their norms; a zero row stays zero."""
    norms = np.sqrt(squared_norms(vectors))
    norms[norms == 0] = 1
    return np.divide(vectors, norms[:, None], dtype=np.float32)
