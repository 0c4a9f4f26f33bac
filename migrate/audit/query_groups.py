"""Groups of queries that are one observation: by a field of the queries, or by how alike their vectors are.

A translation that loses a topic loses all queries of it at once. Bounds that take these for independent say SAFE far
too often; so everything that draws bounds draws groups (`migrate.audit.verdict.Weighting`).

Where no field says what belongs together, the target model's vectors of the queries do, as far as they show it. From
each vector the mean of all is taken off, which models of any kind have in common; then two queries are alike whose
cosine is above what is usual for this set: the median over all pairs, plus `SPREADS` times the spread below it. The
lower half is taken for the spread, as groups show in the upper one. The query that is like most others and these are
the first group, then the next of those left, and so on: every member is like the first one, so that no chain of
neighbours makes two kinds one. The order of the queries does not matter. `benchmarks/topics.py` prints what it finds.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from migrate.audit.query_set import QuerySet
from migrate.check.comparison import spread
from migrate.vectors import Vectors, unit_rows

SPREADS: Final = 6.0
"""Chosen on half of the queries of two sets, of which few are joined then but those that say nearly the same."""

MOST_ALIKE: Final = 0.95
"""Above this cosine queries are alike whatever is usual: in few dimensions any two may be near each other."""


def with_groups(query_set: QuerySet, vectors: Vectors) -> QuerySet:
    """Return the query set with its groups, by its `group_field` if it has one.

    `vectors` are those of all queries by the target model, (q, dim). Queries without a value in the field are grouped
    among themselves by their vectors.
    """
    texts = query_set.texts
    firsts = np.unique(texts, return_index=True)[1]
    labels: list[str | int | None] = [query_set.group_of(query) for query in query_set.distinct]
    ungrouped = np.array([position for position, label in enumerate(labels) if label is None], dtype=np.int64)
    for position, group in zip(ungrouped.tolist(), alike(vectors[firsts[ungrouped]]).tolist(), strict=True):
        labels[position] = group
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    ids = zip(query_set.query_ids, texts.tolist(), strict=True)
    return replace(query_set, groups={query_id: numbers[labels[text]] for query_id, text in ids})


def alike(vectors: Vectors) -> NDArray[np.int64]:
    """Return the number of the group of each query, (n,), by its vector, (n, dim)."""
    if not len(vectors):
        return np.empty(0, dtype=np.int64)
    rows, positions = np.unique(unit_rows(vectors), axis=0, return_inverse=True)  # sorted: their order does not matter
    rows = centred(rows, rows.mean(axis=0))
    threshold = usual_cosine(rows)
    near = np.concatenate([(cosines > threshold).sum(axis=1) for _, cosines in _cosines(rows, rows)])
    firsts = np.argsort(-near, kind="stable")[: int((near > 1).sum())]
    groups, free = np.arange(len(rows)), np.ones(len(rows), dtype=bool)
    for start, cosines in _cosines(rows[firsts], rows):
        for first, is_alike in zip(firsts[start:].tolist(), cosines > threshold, strict=False):
            if free[first]:
                members = is_alike & free
                groups[members], free[members] = first, False
    return groups[positions.ravel()]


def centred(rows: Vectors, mean: Vectors) -> Vectors:
    """Return rows of unit length, (n, dim), less a `mean`, (dim,), at unit length again."""
    return unit_rows(rows - mean)


def usual_cosine(rows: Vectors, *, in_runs: bool = False) -> float:
    """Return the cosine above which two of some centred rows, (n, dim), are alike.

    Where queries come `in_runs`, most of those so far may be of few kinds, and their median within a kind. So the
    lowest pairs are looked at then, too, and a spread less is enough: what is joined by mistake only takes longer.
    """
    sample = rows[spread(len(rows), 2_000)]
    pairs = np.triu_indices(len(sample), 1)
    if not len(pairs[0]):
        return MOST_ALIKE
    # of a normal distribution, two standard deviations below the median, one, and the median
    lowest, low, middle = np.quantile((sample @ sample.T)[pairs], [0.0228, 0.1587, 0.5])
    usual = middle + SPREADS * (middle - low)
    return float(min(usual, low + SPREADS * (low - lowest) if in_runs else usual, MOST_ALIKE))


def _cosines(block: Vectors, rows: Vectors) -> Iterator[tuple[int, Vectors]]:
    """Return the cosines of some rows with all, block by block, with the number of the first row of each."""
    step = max((1 << 22) // len(rows), 1)
    for start in range(0, len(block), step):
        yield start, block[start : start + step] @ rows.T


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of queries that came so far, where they come one after the other.

    `firsts` are vectors of the first query of each kind, which is all it takes to know another one of it; `sample` are
    those of some of all different queries that came, whatever their order: they say what is usual. Each is in `dim`
    signed bytes, without its length.
    """

    dim: int = 0
    firsts: bytes = b""
    sample: bytes = b""

    def seen(self, vectors: Vectors) -> Kinds:
        """Return the kinds after some queries, (n, dim), that only say what is usual."""
        dim = vectors.shape[1]
        different = {*_split(self.sample, dim), *_packed(vectors)}
        drawn = sorted(different, key=lambda packed: hashlib.sha256(packed).digest())[:300]
        return replace(self, dim=dim, sample=b"".join(drawn))

    def after(self, vectors: Vectors) -> tuple[Kinds, NDArray[np.bool_]]:
        """Return the kinds after some queries, (n, dim), and which of them are the first of a kind, (n,)."""
        kinds, packed = self.seen(vectors), _packed(vectors)
        sample, firsts, rows = (
            _rows(packed_rows, kinds.dim) for packed_rows in (kinds.sample, kinds.firsts, b"".join(packed))
        )
        mean = sample.mean(axis=0)
        threshold = usual_cosine(centred(sample, mean), in_runs=True)
        rows, known_rows = centred(rows, mean), {*_split(kinds.firsts, kinds.dim)}
        is_first: NDArray[np.bool_] = np.all(rows @ centred(firsts, mean).T <= threshold, axis=1)
        near = rows @ rows.T > threshold
        for position, packed_row in enumerate(packed):
            # More kinds are not told apart: no verdict needs them, and each is a vector to keep
            is_new = packed_row not in known_rows and len(known_rows) < 2_000
            is_first[position] &= is_new and not near[position, :position][is_first[:position]].any()
            if is_first[position]:
                known_rows.add(packed_row)
        new = b"".join(packed_row for packed_row, first in zip(packed, is_first.tolist(), strict=True) if first)
        return replace(kinds, firsts=kinds.firsts + new), is_first

    def as_json(self) -> dict[str, Any]:
        """Return what `of_json` makes it from again."""
        encoded = {name: base64.b64encode(getattr(self, name)).decode() for name in ("firsts", "sample")}
        return {"dim": self.dim, **encoded}

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the kinds of `as_json`."""
        return cls(stored["dim"], *(base64.b64decode(stored[name]) for name in ("firsts", "sample")))


def _packed(vectors: Vectors) -> list[bytes]:
    most = np.abs(vectors).max(axis=1, keepdims=True)
    codes = np.rint(vectors / np.where(most > 0, most, 1) * 127).astype(np.int8)
    return [code.tobytes() for code in codes]


def _split(packed: bytes, dim: int) -> list[bytes]:
    return [packed[start : start + dim] for start in range(0, len(packed), dim)]


def _rows(packed: bytes, dim: int) -> Vectors:
    return unit_rows(np.frombuffer(packed, dtype=np.int8).reshape(-1, dim).astype(np.float32))
