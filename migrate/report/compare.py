"""Compared stores as plain text that fits 100 columns, and in words: which way a stitch would work, and what limits it.

Compared stores as one JSON document and as tables of commas: the source of truth for every other form.

Compared stores as one HTML page: the words, heat maps of every measure, tables, spectra.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, log10, pi, sqrt
from typing import Any

from migrate import __version__
from migrate.report.page import render_page
from migrate.report.svg.charts import Line, line_chart
from migrate.report.svg.frame import Chart, power_of_ten
from migrate.report.terminal import filled_columns, table, wrap
from migrate.similarity.comparison import StoresComparison
from migrate.similarity.downstream import Accuracy, Downstream
from migrate.similarity.measures import MEASURES, Matrix, Measure
from migrate.similarity.spaces import Similarity
from migrate.similarity.stitching import Stitching

SCHEMA_VERSION = 1


def compare_document(comparison: StoresComparison) -> dict[str, Any]:
    """Every matrix, every spectrum and the facts of the stores, as values that JSON holds; no figure is null."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "compare",
        "documents": comparison.documents,
        "shared": comparison.shared,
        "seed": comparison.seed,
        "stores": [
            {**asdict(store), "dimension": _known(store.dimension), "two_nn": _known(store.two_nn)}
            for store in comparison.stores
        ],
        "measures": [_measure_document(measure, comparison) for measure in MEASURES],
        "stitches": [
            {"from": ends[0], "to": ends[1], **asdict(stitch)}
            for (a, b), pair in comparison.pairs.items()
            for ends, stitch in (((a, b), pair.forth), ((b, a), pair.back))
        ]
        + [{"from": place, "to": place, **asdict(stitch)} for place, stitch in enumerate(comparison.own_stitches)],
        "sentences": [
            {"between": [a, b], "sentences": sentences}
            for (a, b), sentences in comparison_sentences(comparison, [store.name for store in comparison.stores])
        ],
        "downstream": None if comparison.downstream is None else asdict(comparison.downstream),
        "notes": list(comparison.notes),
    }


def _measure_document(measure: Measure, comparison: StoresComparison) -> dict[str, Any]:
    facts = {name: getattr(measure, name) for name in ("key", "title", "meaning", "alike", "directed")}
    return {**facts, "matrix": [list(row) for row in measure.matrix(comparison)]}


def matrix_csv(measure: Measure, comparison: StoresComparison) -> str:
    """One matrix with the names of the stores: a row is from, a column to; empty where there is no figure."""
    names = [store.name for store in comparison.stores]
    rows = zip(names, measure.matrix(comparison), strict=True)
    return _csv([["from", *names], *([name, *map(_exact, values)] for name, values in rows)])


def long_csv(comparison: StoresComparison) -> str:
    """All matrices as one table: measure, from, to, value; without the values that are not there."""
    names = [store.name for store in comparison.stores]
    rows = [
        [measure.key, names[row], names[column], _exact(value)]
        for measure in MEASURES
        for row, values in enumerate(measure.matrix(comparison))
        for column, value in enumerate(values)
        if value is not None
    ]
    return _csv([["measure", "from", "to", "value"], *rows])


def _known(value: float) -> float | None:
    return value if isfinite(value) else None


def _exact(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def _csv(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


_LONGEST = 50
_MOST_PAIRS = 3
"""Pairs that a terminal has room to put into words."""

_ENOUGH = 0.8
"""Share of neighbours found below which stitches of vectors alone have not been SAFE: docs/benchmarks.md."""

_WHOLE = 0.98
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


def shorten(name: str, longest: int) -> str:
    """The name, without its middle where it is longer than that.

    >>> shorten("a-very-long-name", 9)
    'a-ve…name'
    """
    if len(name) <= longest:
        return name
    tail = (longest - 1) // 2
    return f"{name[: longest - 1 - tail]}…{name[-tail:]}"


def tenths(value: float) -> str:
    """An intrinsic dimension; a dash where it is not known."""
    return f"{value:.1f}" if isfinite(value) else "-"


def compare_text(comparison: StoresComparison) -> str:
    """The stores by letter, each pair by what its spaces have in common, each direction by what a stitch does."""
    letters = [letter(place) for place in range(len(comparison.stores))]
    stores = [["", "store", "dim", "documents", "dimension", "TwoNN"]]
    stores += [
        [mark, shorten(store.name, _LONGEST), str(store.dim), f"{store.documents:,}", tenths(store.dimension),
         tenths(store.two_nn)]
        for mark, store in zip(letters, comparison.stores, strict=True)
    ]  # fmt: skip
    pairs = [(a, b) for a, b in comparison.pairs]
    both = [place for a, b in pairs for place in ((a, b), (b, a))]
    first = comparison.pairs[pairs[0]].forth
    judged = f"stitches: ridge, fitted on {first.fitted_on:,} documents and judged on {first.judged_on:,} others"
    return "\n".join(
        [
            f"{len(comparison.stores)} spaces of the same {comparison.documents:,} documents\n",
            _left(stores),
            *([""] if comparison.notes else []),
            *(wrap(f"note: {note}") for note in comparison.notes),
            "\nspaces\n",
            table(space_rows(comparison, letters)),
            f"\n{judged}\n",
            table(
                filled_columns(
                    [["from→to", *_STITCHES.values()], *_rows(comparison, both, letters, "→", list(_STITCHES))]
                )
            ),
            *(["", labels_text(comparison, comparison.downstream)] if comparison.downstream else []),
            *_words(comparison, letters),
        ]
    )


def _words(comparison: StoresComparison, letters: Sequence[str]) -> list[str]:
    """What the figures mean, where there are few enough pairs for a terminal."""
    if len(comparison.pairs) > _MOST_PAIRS:
        return ["", wrap("what this means for each pair: --html FILE")]
    return ["", *(wrap(words) for _, several in comparison_sentences(comparison, letters) for words in several)]


def comparison_sentences(
    comparison: StoresComparison, names: Sequence[str]
) -> Iterator[tuple[tuple[int, int], list[str]]]:
    """For each pair, by these names, which way a stitch would work, whether one is needed, and what limits it."""
    for (a, b), pair in comparison.pairs.items():
        ends = names[a], names[b]
        own = {name: comparison.own_stitches[place] for name, place in zip(ends, (a, b), strict=True)}
        yield (a, b), [_direction(ends, pair), _sample_size(ends, pair), _own(own)]


def _direction(ends: tuple[str, str], pair: Similarity) -> str:
    a, b = ends
    forth, back = (stitch.stitch.overlap_at_10 for stitch in (pair.forth, pair.back))
    if abs(forth - back) < _noise(pair.forth):
        which = "neither way is clearly better"
    else:
        which = f"{a} to {b} works better" if forth > back else f"{b} to {a} works better"
    return (
        f"a stitch from {a} to {b} finds {forth:.0%} of the 10 nearest neighbours that {b} has, one from {b} to {a} "
        f"{back:.0%} of those that {a} has: {which}; {_what_to_do(pair)}"
    )


def _what_to_do(pair: Similarity) -> str:
    plain, stitched = pair.forth.identity, pair.forth.stitch
    if plain is not None and stitched.overlap_at_10 - plain.overlap_at_10 <= _noise(pair.forth):
        return f"without a stitch, as they are, they share {plain.overlap_at_10:.0%}, and a stitch adds nothing to that"
    enough = (
        "vectors alone may be enough, which `audit` can say"
        if max(stitched.overlap_at_10, pair.back.stitch.overlap_at_10) >= _ENOUGH
        else "vectors alone lose much, so let the stitch read texts too, or re-embed a part"
    )
    return enough if plain is None else f"as they are, they share {plain.overlap_at_10:.0%}, so one is needed; {enough}"


def _noise(stitch: Stitching) -> float:
    """A difference of two shares that chance alone may make: twice the standard error of about 0.25 a document."""
    return max(0.5 / sqrt(stitch.judged_on), 0.01)


def _sample_size(ends: tuple[str, str], pair: Similarity) -> str:
    forth = pair.forth.stitch.overlap_at_10 >= pair.back.stitch.overlap_at_10
    stitch, (start, end) = (pair.forth, ends) if forth else (pair.back, ends[::-1])
    whole, half = stitch.stitch.overlap_at_10, stitch.from_half.overlap_at_10
    points = 100 * (whole - half)
    more = (
        f"that doubling brought {points:.1f} points, and more documents would bring some more"
        if whole - half > _noise(stitch)
        else "the number of documents is not what limits it"
    )
    return (
        f"sample size: fitted on {stitch.fitted_on:,} documents, the stitch from {start} to {end} finds {whole:.1%}, "
        f"on half of them {half:.1%}: {more}"
    )


def _own(own: Mapping[str, Stitching]) -> str:
    shares = " and ".join(f"{name} finds {stitch.stitch.overlap_at_10:.1%}" for name, stitch in own.items())
    lost = (
        "so few documents do not span the dimensions, and a part of what stitches miss is owed to that"
        if min(stitch.stitch.overlap_at_10 for stitch in own.values()) < _WHOLE
        else "what a stitch between them misses is not lost by the fit itself"
    )
    return f"stitched to itself in the same way, {shares} of its own neighbours: {lost}"


def space_rows(found: StoresComparison, names: Sequence[str]) -> list[list[str]]:
    """One row a pair of stores, by these names: what their spaces have in common."""
    return filled_columns([["pair", *_SPACES.values()], *_rows(found, list(found.pairs), names, "–", list(_SPACES))])


def letter(place: int) -> str:
    """A short name for a column, as spreadsheets have it.

    >>> [letter(place) for place in (0, 25, 26)]
    ['A', 'Z', 'AA']
    """
    return (letter(place // 26 - 1) if place >= 26 else "") + chr(ord("A") + place % 26)


def _rows(
    comparison: StoresComparison,
    places: Sequence[tuple[int, int]],
    letters: Sequence[str],
    sign: str,
    keys: Sequence[str],
) -> Iterator[list[str]]:
    matrices = [_BY_KEY[key].matrix(comparison) for key in keys]
    for a, b in places:
        yield [f"{letters[a]}{sign}{letters[b]}", *(number(matrix[a][b]) for matrix in matrices)]


def _left(rows: Sequence[Sequence[str]]) -> str:
    """A table whose second column is to the left as well."""
    width = max(len(row[1]) for row in rows)
    return table([[f"{row[0]:<3}{row[1]:<{width}}", *row[2:]] for row in rows])


def labels_text(comparison: StoresComparison, scored: Downstream) -> str:
    """What a classifier trained on the first store's vectors makes of each store's."""
    return "\n".join([wrap(labels_sentence(comparison, scored)), "", table(list(labels_rows(comparison, scored)))])


def labels_sentence(comparison: StoresComparison, scored: Downstream) -> str:
    """What was trained and judged, and what guessing gives."""
    true = shorten(comparison.stores[0].name, _LONGEST)
    return (
        f"labels: {scored.labels} labels, classifiers trained on {scored.trained_on:,} vectors of {true}, taken for "
        f"the true ones, judged on {scored.judged_on:,} other documents; the most frequent label alone: "
        f"accuracy {number(scored.majority)}"
    )


def labels_rows(comparison: StoresComparison, scored: Downstream) -> Iterator[list[str]]:
    """A head, and a row for each store: its name, accuracy and macro-F1 of the probe and of kNN."""
    yield ["vectors of", "probe accuracy", "probe macro-F1", "kNN accuracy", "kNN macro-F1"]
    for place, store in enumerate(comparison.stores):
        name = shorten(store.name, 30) + (" (true)" if place == 0 else "")
        yield [name, *_cells(scored.probe[place]), *_cells(scored.knn[place])]


def _cells(accuracy: Accuracy | None) -> list[str]:
    return ["-", "-"] if accuracy is None else [number(accuracy.accuracy), number(accuracy.macro_f1)]


_DECADES = 4
_POINTS = 160


def spectra(series: Mapping[str, Sequence[float]]) -> Chart | None:
    """A line for each series, its values in units of its first, by logarithm; what is below 10⁻⁴ is left out.

    None where nothing is above.
    """
    lines = [Line(name, points) for name, values in series.items() if (points := _decades(values))]
    if not lines:
        return None
    return line_chart(
        "singular values of the stitches",
        lines,
        x_label="singular value, by rank",
        y_label="share of the greatest",
        y_form=power_of_ten,
    )


def _decades(values: Sequence[float]) -> list[tuple[float, float]]:
    kept = [
        (float(rank), log10(value / values[0]))
        for rank, value in enumerate(values, 1)
        if value > values[0] * 10**-_DECADES > 0
    ]
    return [*kept[: -1 : max(len(kept) // _POINTS, 1)], *kept[-1:]]


@dataclass(frozen=True, slots=True)
class Shading:
    """The value that is shaded faintest and the one that is shaded deepest, and what deeper means."""

    faintest: float
    deepest: float
    deeper: str

    def share(self, value: float) -> float:
        """How far a value lies from the faintest, 0, to the deepest, 1."""
        span = self.deepest - self.faintest
        return min(max((value - self.faintest) / span, 0), 1) if span else 0.0


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A measure between all stores: figure and shade, 0-1, of each cell, row by row; no shade where there is none."""

    measure: Measure
    cells: Sequence[Sequence[tuple[str, float]]]
    deeper: str


def heat_map(measure: Measure, comparison: StoresComparison) -> HeatMap:
    """The heat map of a measure."""
    matrix = measure.matrix(comparison)
    shading = shading_of(measure, matrix)
    cells = [[(number(value), 0.0 if value is None else shading.share(value)) for value in row] for row in matrix]
    return HeatMap(measure, cells, shading.deeper)


_LEAST = -1.0
"""A value from which on down the shade is the same: R² has no lower end."""

_FAR = {"cka_distance": pi / 2, "penalty": 1.0, "penalty_identity": 1.0}
"""What spaces have that have nothing in common, where it is not 0."""

_CONTROLS = ("r2_mean", "r2_random")


def compare_page(comparison: StoresComparison) -> str:
    """The page, complete in itself."""
    names = [store.name for store in comparison.stores]
    scored, controls = comparison.downstream, [measure for measure in MEASURES if measure.key in _CONTROLS]
    maps = [heat_map(measure, comparison) for measure in MEASURES if measure not in controls]
    return render_page(
        "compare.html",
        comparison=comparison,
        version=__version__,
        names=names,
        letters=[letter(place) for place in range(len(names))],
        order=[
            (names[a], names[b], number(pair.cka))
            for (a, b), pair in sorted(comparison.pairs.items(), key=lambda item: -item[1].cka)
        ],
        sentences=list(comparison_sentences(comparison, names)),
        store_rows=_store_rows(comparison),
        spaces=[shown for shown in maps if not shown.measure.directed],
        stitches=[shown for shown in maps if shown.measure.directed],
        first=next(iter(comparison.pairs.values())).forth,
        controls=[(measure.title, _span(measure.matrix(comparison))) for measure in controls],
        labels=None if scored is None else labels_sentence(comparison, scored),
        label_rows=[] if scored is None else list(labels_rows(comparison, scored)),
        spectra=spectra({names[b]: pair.back.singular_values for (a, b), pair in comparison.pairs.items() if a == 0}),
    )


def _store_rows(comparison: StoresComparison) -> list[list[str]]:
    return [
        ["letter", "store", "dim", "documents", "local dimension", "TwoNN", "read back"],
        *(
            [letter(place), store.name, str(store.dim), f"{store.documents:,}", tenths(store.dimension),
             tenths(store.two_nn), "exact" if store.exact else "approximate"]
            for place, store in enumerate(comparison.stores)
        ),
    ]  # fmt: skip


def _span(matrix: Matrix) -> str:
    values = [value for line in matrix for value in line if value is not None]
    return f"{number(min(values))} to {number(max(values))}" if values else "-"


def shading_of(measure: Measure, matrix: Matrix) -> Shading:
    """From the value least alike to the most alike, with what strangers have and what a space has with itself."""
    values = [value for row, line in enumerate(matrix) for column, value in enumerate(line) if row != column]
    numbers = [value for value in values if value is not None] or [0.0]
    if measure.itself is not None:
        numbers += [measure.itself, _FAR.get(measure.key, 0.0)]
    if measure.alike is None:
        return Shading(min(numbers), max(numbers), "deeper: more")
    low, high = max(min(numbers), _LEAST), max(numbers)
    ends = (low, high) if measure.alike == "more" else (high, low)
    return Shading(*ends, "deeper: more alike")
