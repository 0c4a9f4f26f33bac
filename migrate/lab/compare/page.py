"""Compared stores as one HTML page: the words, heat maps of every measure, tables, spectra, loss curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log10, pi

from migrate import __version__
from migrate.lab.compare.comparison import StoresComparison
from migrate.lab.compare.figures import Matrix, MeasureFigures, figures_of
from migrate.lab.compare.report import (
    bounds_sentence,
    chance_sentence,
    comparison_sentences,
    controls_sentence,
    distance_rows,
    extremes_sentences,
    group_rows,
    kind_rows,
    labels_rows,
    labels_sentence,
    letter,
    marginal_rows,
    tenths,
)
from migrate.report.page import render_page
from migrate.report.svg.charts import Line, line_chart, spectra, thinned
from migrate.report.svg.frame import Chart
from migrate.report.terminal import number
from migrate.similarity.measures import Measure
from migrate.similarity.stitching import Stitching

_MOST_LINES = 6
"""Lines of a chart that can be told apart by their colours."""


def loss_curves(series: Mapping[str, Sequence[Sequence[float]]]) -> Chart | None:
    """For each network the loss while it trained and the one on held-out pairs, by epoch; None without any."""
    lines = []
    for name, curve in series.items():
        columns = {"held out": 2, "training": 1} if curve and len(curve[0]) > 2 else {"training": 1}
        for what, column in columns.items():
            points = [(row[0], row[column]) for row in curve]
            lines += [Line(f"{name}, {what}", thinned(points))] if points else []
    if not lines:
        return None
    return line_chart("losses", lines[:_MOST_LINES], x_label="epoch", y_label="loss")


@dataclass(frozen=True, slots=True)
class Shading:
    """The value that is shaded faintest and the one that is shaded deepest, and what deeper means.

    A logarithmic one shades by the order of magnitude; what is 0 or less is then at the end of the least.
    """

    faintest: float
    deepest: float
    deeper: str
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """Return how far a value lies from the faintest, 0, to the deepest, 1."""
        if self.logarithmic:
            value = max(value, min(self.faintest, self.deepest))
            value, faintest, deepest = (log10(number) for number in (value, self.faintest, self.deepest))
        else:
            faintest, deepest = self.faintest, self.deepest
        span = deepest - faintest
        return min(max((value - faintest) / span, 0), 1) if span else 0.0


Cell = tuple[str, float]
"""A figure, and its shade, 0-1."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A measure between all stores: figure and shade of each cell, row by row; no shade where there is no figure."""

    measure: Measure
    cells: Sequence[Sequence[Cell]]
    deeper: str
    chance: Sequence[Cell] = ()


def heat_map(figures: MeasureFigures) -> HeatMap:
    """The heat map of a measure, with a last row for a Gaussian where it was measured."""
    shading = shading_of(figures.measure, figures.matrix)
    rows = [[_cell(shading, value) for value in row] for row in figures.matrix]
    return HeatMap(figures.measure, rows, shading.deeper, [_cell(shading, value) for value in figures.chance or ()])


def _cell(shading: Shading, value: float | None) -> Cell:
    return number(value), 0.0 if value is None else shading.share(value)


_LEAST = -1.0
"""A value from which on down the shade is the same: R² has no lower end."""

_FAR = {"cka_distance": pi / 2, "penalty": 1.0, "penalty_identity": 1.0}
"""What spaces have that have nothing in common, where it is not 0."""

_LOGARITHMIC = {"mse"}
"""Errors in the units of the target: those of stores with long vectors would leave the others one shade."""

_CONTROLS = ("r2_mean", "r2_random")


def shading_of(measure: Measure, matrix: Matrix) -> Shading:
    """From the value least alike to the most alike, with what strangers have and what a space has with itself."""
    values = [value for row, line in enumerate(matrix) for column, value in enumerate(line) if row != column]
    numbers = [value for value in values if value is not None] or [0.0]
    logarithmic = measure.key in _LOGARITHMIC and max(numbers) > 0
    if logarithmic:
        everything = [value for line in matrix for value in line if value is not None and value > 0]
        numbers = [min(everything), max(everything)]
    elif measure.itself is not None:
        numbers += [measure.itself, _FAR.get(measure.key, 0.0)]
    if measure.alike is None:
        return Shading(min(numbers), max(numbers), "deeper: more")
    low, high = (min(numbers) if logarithmic else max(min(numbers), _LEAST)), max(numbers)
    ends = (low, high) if measure.alike == "more" else (high, low)
    return Shading(*ends, "deeper: more alike" + (", by order of magnitude" if logarithmic else ""), logarithmic)


@dataclass(frozen=True, slots=True)
class StitchPart:
    """The part of the page on one kind of stitch."""

    spec: str
    fitted_on: int
    judged_on: int
    extremes: Sequence[str]
    maps: Sequence[HeatMap]
    marginals: Sequence[Sequence[str]]
    charts: Sequence[tuple[str, Chart]]


def compare_page(comparison: StoresComparison) -> str:
    """The page, complete in itself."""
    names = [store.name for store in comparison.stores]
    scored = comparison.downstream
    every = [figures for figures in figures_of(comparison) if figures.measure.key not in _CONTROLS]
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
        spaces=[heat_map(figures) for figures in every if not figures.measure.directed],
        kind_rows=kind_rows(comparison) if len(comparison.specs) > 1 else [],
        stitch_parts=[_stitch_part(comparison, spec, every) for spec in comparison.specs],
        controls=[heat_map(figures) for figures in every if figures.measure.is_control],
        control_sentence=controls_sentence(comparison),
        chance_sentence=chance_sentence(comparison, names),
        groups=comparison.groups,
        bounds_sentence="" if comparison.groups is None else bounds_sentence(comparison.groups),
        group_rows=[] if comparison.groups is None else group_rows(comparison.groups),
        distance_rows=[] if comparison.groups is None else distance_rows(comparison.groups),
        local=[_local_rows(comparison, place) for place in range(len(names))],
        labels=None if scored is None else labels_sentence(comparison, scored),
        label_rows=[] if scored is None else list(labels_rows(comparison, scored)),
    )


def _stitch_part(comparison: StoresComparison, spec: str, every: Sequence[MeasureFigures]) -> StitchPart:
    names = [store.name for store in comparison.stores]
    own = comparison.stitches[spec][0, 0]
    return StitchPart(
        spec,
        own.fitted_on,
        own.judged_on,
        list(extremes_sentences(comparison, names, spec)),
        [heat_map(figures) for figures in every if figures.stitch == spec and figures.mean is not None],
        marginal_rows(comparison, names, spec) if len(names) > 2 else [],
        [(words, chart) for words, chart in _charts(comparison, spec) if chart is not None],
    )


def _charts(comparison: StoresComparison, spec: str) -> Iterator[tuple[str, Chart | None]]:
    """Spectra, and the loss curves of networks, of the stitches to the first store."""
    names = [store.name for store in comparison.stores]
    to_first: dict[str, Stitching] = {
        names[a]: stitch for (a, b), stitch in comparison.stitches[spec].items() if a != b == 0
    }
    affine = {name: stitch.singular_values for name, stitch in to_first.items() if stitch.affine}
    yield (
        f"Singular values of the stitches to {names[0]}, in units of the greatest. A line that falls early belongs to "
        "a stitch that uses few directions.",
        spectra(affine) if affine else None,
    )
    for name, stitch in list(to_first.items())[:_MOST_LINES]:
        layers = {} if stitch.affine else dict(enumerate(stitch.layers, 1))
        yield (
            f"Singular values of the layers from {name} to {names[0]}, in units of the greatest of each.",
            spectra({f"layer {place}": layer.singular_values for place, layer in layers.items()}) if layers else None,
        )
    curves = {name: stitch.loss_curve for name, stitch in to_first.items()}
    yield f"The loss of the networks to {names[0]}, epoch by epoch; training draws noise anew.", loss_curves(curves)


_FEW = 8
"""Documents of each end to show on the page."""


def _local_rows(comparison: StoresComparison, place: int) -> list[list[str]]:
    """A head, and documents of low and of high dimension with how their texts begin, and their nearest."""
    local, texts = comparison.local[place], comparison.texts
    documents = (*local.lowest[:_FEW], *reversed(local.highest[:_FEW]))
    shown = [
        [tenths(document.dimension), _document(document.id, texts), "; ".join(document.neighbours)]
        for document in documents
    ]
    return [["dimension", "document", "nearest"], *shown] if shown else []


def _document(doc_id: str, texts: Mapping[str, str]) -> str:
    return f"{doc_id}: {texts[doc_id]}" if texts.get(doc_id) else doc_id


def _store_rows(comparison: StoresComparison) -> list[list[str]]:
    return [
        ["letter", "store", "dim", "documents", "local dimension", "TwoNN", "read back"],
        *(
            [letter(place), store.name, str(store.dim), f"{store.documents:,}", tenths(store.dimension),
             tenths(store.two_nn), "exact" if store.exact else "approximate"]
            for place, store in enumerate(comparison.stores)
        ),
    ]  # fmt: skip
