"""Compared stores as plain text that fits 100 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from migrate.report.heat_map import shorten
from migrate.report.terminal import folded, table, telling
from migrate.similarity.comparison import StoresComparison
from migrate.similarity.downstream import Accuracy, Downstream
from migrate.similarity.measures import MEASURES

_LONGEST = 50
_SMALL, _MIDDLING, _GREAT = 0.01, 10, 10_000
_SPACES = {
    "cka": "CKA", "cka_distance": "arccos", "jaccard": "Jaccard@10", "rank_similarity": "rank@10",
    "relative_orientation": "orientation", "local_geometry": "local geom.", "dimension_agreement": "dimension",
}  # fmt: skip
_STITCHES = {
    "r2": "R²", "r2_mean": "R² mean", "r2_random": "R² random", "mse": "MSE", "mae": "MAE", "penalty": "penalty",
    "r2_identity": "R² as is", "penalty_identity": "pen. as is", "bias_norm": "bias", "effective_rank": "rank",
}  # fmt: skip
_BY_KEY = {measure.key: measure for measure in MEASURES}


def number(value: float | None) -> str:
    """A figure in few characters; a dash where there is none.

    >>> [number(value) for value in (0.71788, -0.00064, 123.45, -12345.6, None)]
    ['0.718', '-0.00064', '123.5', '-1.2e+04', '-']
    """
    if value is None or not isfinite(value):
        return "-"
    size = abs(value)
    if 0 < size < _SMALL or size >= _GREAT:
        return f"{value:.2g}"
    return f"{value:.3f}" if size < _MIDDLING else f"{value:.1f}"


def tenths(value: float) -> str:
    """An intrinsic dimension; a dash where it is not known."""
    return f"{value:.1f}" if isfinite(value) else "-"


def compare_text(found: StoresComparison) -> str:
    """The stores by letter, each pair by what its spaces have in common, each direction by what a stitch does."""
    letters = [letter(place) for place in range(len(found.stores))]
    stores = [["", "store", "dim", "documents", "dimension", "TwoNN"]]
    stores += [
        [mark, shorten(one.name, _LONGEST), str(one.dim), f"{one.documents:,}", tenths(one.dimension),
         tenths(one.two_nn)]
        for mark, one in zip(letters, found.stores, strict=True)
    ]  # fmt: skip
    pairs = [(a, b) for a, b in found.pairs]
    both = [place for a, b in pairs for place in ((a, b), (b, a))]
    first = found.pairs[pairs[0]].forth
    judged = f"stitches: ridge, fitted on {first.fitted_on:,} documents and judged on {first.judged_on:,} others"
    return "\n".join(
        [
            f"{len(found.stores)} spaces of the same {found.documents:,} documents\n",
            _left(stores),
            *([""] if found.notes else []),
            *(folded(f"note: {note}") for note in found.notes),
            "\nspaces\n",
            table(telling([["pair", *_SPACES.values()], *_rows(found, pairs, letters, "–", list(_SPACES))])),
            f"\n{judged}\n",
            table(telling([["from→to", *_STITCHES.values()], *_rows(found, both, letters, "→", list(_STITCHES))])),
            *(["", labels_text(found, found.downstream)] if found.downstream else []),
        ]
    )


def letter(place: int) -> str:
    """A short name for a column, as spreadsheets have it.

    >>> [letter(place) for place in (0, 25, 26)]
    ['A', 'Z', 'AA']
    """
    return (letter(place // 26 - 1) if place >= 26 else "") + chr(ord("A") + place % 26)


def _rows(
    found: StoresComparison, places: Sequence[tuple[int, int]], letters: Sequence[str], sign: str, keys: Sequence[str]
) -> Iterator[list[str]]:
    matrices = [_BY_KEY[key].matrix(found) for key in keys]
    for a, b in places:
        yield [f"{letters[a]}{sign}{letters[b]}", *(number(matrix[a][b]) for matrix in matrices)]


def _left(rows: Sequence[Sequence[str]]) -> str:
    """A table whose second column is to the left as well."""
    width = max(len(row[1]) for row in rows)
    return table([[f"{row[0]:<3}{row[1]:<{width}}", *row[2:]] for row in rows])


def labels_text(found: StoresComparison, scored: Downstream) -> str:
    """What a classifier trained on the first store's vectors makes of each store's."""
    return "\n".join([folded(labels_sentence(found, scored)), "", table(list(labels_rows(found, scored)))])


def labels_sentence(found: StoresComparison, scored: Downstream) -> str:
    """What was trained and judged, and what guessing gives."""
    true = shorten(found.stores[0].name, _LONGEST)
    return (
        f"labels: {scored.labels} labels, classifiers trained on {scored.trained_on:,} vectors of {true}, taken for "
        f"the true ones, judged on {scored.judged_on:,} other documents; the most frequent label alone: "
        f"accuracy {number(scored.majority)}"
    )


def labels_rows(found: StoresComparison, scored: Downstream) -> Iterator[list[str]]:
    """A head, and a row for each store: its name, accuracy and macro-F1 of the probe and of kNN."""
    yield ["vectors of", "probe accuracy", "probe macro-F1", "kNN accuracy", "kNN macro-F1"]
    for place, store in enumerate(found.stores):
        name = shorten(store.name, 30) + (" (true)" if place == 0 else "")
        yield [name, *_cells(scored.probe[place]), *_cells(scored.knn[place])]


def _cells(one: Accuracy | None) -> list[str]:
    return ["-", "-"] if one is None else [number(one.accuracy), number(one.macro_f1)]
