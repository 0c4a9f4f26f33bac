"""Groups of queries that are one observation: by how alike their vectors are, and by a field of the queries.

A translation that loses a topic loses all queries of it at once. Bounds that take these for independent say SAFE far
too often; so everything that draws bounds draws groups (`migrate.audit.bounds.Grouping`).

The target model's vectors of the queries show what belongs together, as far as they do. A field of the queries adds to
that and takes nothing away: groups that share a value are one. From
each vector the mean of all is taken off, which models of any kind have in common; then two queries are alike whose
cosine is above what is usual for this set: the median over pairs, plus `SPREADS` times the spread below it. The lower
half is taken for the spread, as groups show in the upper one. The query that is like most others and these are the
first group, then the next of those left, and so on: every member is like the first one, so that no chain of neighbours
makes two kinds one. Mean and usual cosine are of one query of each group, as a large topic would have both to itself:
of a few queries that are far apart at first, then of the groups found so. Where all queries are of a few topics with
gaps between them, by the mean of all or at a later look, these are the groups. The order of queries does not matter.
`benchmarks/topics.py` prints what it finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.audit.query_set import QuerySet
from migrate.check.comparison import spread
from migrate.vectors import Vectors, unit_rows

SPREADS: Final = 6.0
"""Chosen on half of the queries of two sets, of which few are joined then but those that say nearly the same."""

MOST_ALIKE: Final = 0.95
"""Above this cosine queries are alike whatever is usual: in few dimensions any two may be near each other."""

_LOOKS: Final = 2
"""How often what is usual is learnt again from one query of each group found so far."""

_COSINES_AT_ONCE: Final = 1 << 22
"""Cosines in memory at a time: 16 MiB of float32."""

_FEW: Final = 20
"""Groups that may be too few to learn from what is usual between them."""


def with_groups(query_set: QuerySet, vectors: Vectors) -> QuerySet:
    """Return the query set with its groups: those of its vectors, joined where queries share a value of `group_field`.

    `vectors` are those of all queries by the target model, (q, dim).
    """
    texts = query_set.texts
    firsts = np.unique(texts, return_index=True)[1]
    labels = alike(vectors[firsts])
    values = [query_set.group_of(query) for query in query_set.distinct]
    numbers = _joined(labels, values)
    ids = list(zip(query_set.query_ids, texts.tolist(), strict=True))
    return replace(
        query_set,
        groups={query_id: int(numbers[text]) for query_id, text in ids},
        alike={query_id: int(labels[text]) for query_id, text in ids},
    )


def _joined(labels: NDArray[np.int64], values: Sequence[str | None]) -> NDArray[np.int64]:
    """Return numbers of groups, (n,): queries are in one that share a label or a value, by whatever chain of these."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first_of: dict[str, int] = {}
    same_value = list(range(len(labels)))
    for row, value in enumerate(values):
        if value is not None:
            same_value[row] = first_of.setdefault(value, row)
    # As edges of a graph, whose connected parts are the groups: one field and one label may chain many together
    first_of_label = np.unique(labels, return_index=True, return_inverse=True)
    same_label = first_of_label[1][first_of_label[2].ravel()]
    count = len(labels)
    rows = np.arange(count)
    starts = np.concatenate([rows, rows])
    ends = np.concatenate([same_label, np.array(same_value, dtype=np.int64)])
    edges = coo_array((np.ones(len(starts)), (starts, ends)), (count, count))
    numbers: NDArray[np.int64] = connected_components(edges)[1]
    return numbers


def alike(vectors: Vectors) -> NDArray[np.int64]:
    """Return the number of the group of each query, (n,), by its vector, (n, dim)."""
    if not len(vectors):
        return np.empty(0, dtype=np.int64)
    # Sorted, so that the order of the queries does not matter
    rows, positions = np.unique(unit_rows(vectors), axis=0, return_inverse=True)
    # Whom to learn from what is usual: all, then few that are far apart, as a large topic would have it to itself
    groups, is_settled = _regrouped(rows, np.arange(len(rows)))
    if not is_settled:
        groups, is_settled = _regrouped(rows, _far_apart(rows), in_runs=True)
    for _ in range(_LOOKS):
        if not is_settled:
            groups, is_settled = _regrouped(rows, np.unique(groups))
    return groups[positions.ravel()]


def _regrouped(
    rows: Vectors, one_of_each: NDArray[np.int64], *, in_runs: bool = False
) -> tuple[NDArray[np.int64], bool]:
    """Return the group of each row, (n,), by what is usual between some of the rows, and if these are topics."""
    moved = centred(rows, rows[one_of_each].mean(axis=0))
    groups = _grouped(moved, usual_cosine(moved[one_of_each], in_runs=in_runs))
    return groups, _are_few_and_apart(moved, groups)


def _far_apart(rows: Vectors, most: int = 32) -> NDArray[np.int64]:
    """Return some rows of unit length, each the farthest from those before it (Gonzalez 1985): of large topics few."""
    chosen = [int(np.argmin(rows @ rows.mean(axis=0)))]
    nearest = rows @ rows[chosen[0]]
    while len(chosen) < min(most, len(rows)):
        chosen.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, rows @ rows[chosen[-1]])
    return np.array(chosen, dtype=np.int64)


def _are_few_and_apart(rows: Vectors, groups: NDArray[np.int64]) -> bool:
    """Tell if some centred rows, (n, dim), are in few groups, (n,), with gaps between them.

    Then they are the topics: of fewer rows, one of each, another pass would learn no usual cosine.
    """
    if not 1 < len(np.unique(groups)) <= min(_FEW, len(rows) // 2):
        return False
    sample = spread(len(rows), 500)
    first, second = np.triu_indices(len(sample), 1)
    cosines = (rows[sample] @ rows[sample].T)[first, second]
    is_within = groups[sample[first]] == groups[sample[second]]
    # The other groups are too small to be seen
    if is_within.all():
        return False
    return bool(np.quantile(cosines[is_within], 0.05) > np.quantile(cosines[~is_within], 0.95))


def _grouped(rows: Vectors, threshold: float) -> NDArray[np.int64]:
    """Return the first row of the group of each of some centred rows, (n,): those above a cosine are alike."""
    # The query that is like most others comes first, and every member is like it: no chain of neighbours makes two
    # kinds one
    near = np.concatenate([(cosines > threshold).sum(axis=1) for _, cosines in _cosines(rows, rows)])
    firsts = np.argsort(-near, kind="stable")[: int((near > 1).sum())]
    groups = np.arange(len(rows))
    free = np.ones(len(rows), dtype=bool)
    for start, cosines in _cosines(rows[firsts], rows):
        for first, is_alike in zip(firsts[start:].tolist(), cosines > threshold, strict=False):
            if free[first]:
                members = is_alike & free
                groups[members] = first
                free[members] = False
    return groups


def centred(rows: Vectors, mean: Vectors) -> Vectors:
    """Return rows of unit length, (n, dim), less a `mean`, (dim,), at unit length again."""
    return unit_rows(rows - mean)


def usual_cosine(rows: Vectors, *, in_runs: bool = False) -> float:
    """Return the cosine above which two of some centred rows, (n, dim), are alike.

    Where queries come `in_runs`, or are not yet one of each kind, most may be of few kinds, and their median within a
    kind. So the lowest pairs are looked at then, too, and a spread less is enough: what is joined by mistake only takes
    longer.
    """
    # Memory grows with the square of the sample
    sample = rows[spread(len(rows), 2_000)]
    pairs = np.triu_indices(len(sample), 1)
    if not len(pairs[0]):
        return MOST_ALIKE
    # Of a normal distribution, two standard deviations below the median, one, and the median
    lowest, low, middle = np.quantile((sample @ sample.T)[pairs], [0.0228, 0.1587, 0.5])
    usual = min(middle + SPREADS * (middle - low), MOST_ALIKE)
    if in_runs:
        usual = min(usual, low + SPREADS * (low - lowest))
    return float(usual)


def _cosines(block: Vectors, rows: Vectors) -> Iterator[tuple[int, Vectors]]:
    """Return the cosines of some rows with all, block by block, with the number of the first row of each."""
    step = max(_COSINES_AT_ONCE // len(rows), 1)
    for start in range(0, len(block), step):
        yield start, block[start : start + step] @ rows.T
