"""Compared stores in sections: the words, heat maps of every measure, tables, spectra, loss curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log10, pi
from xml.etree.ElementTree import Element

from migrate.lab.compare.comparison import StoresComparison
from migrate.lab.compare.figures import Matrix, MeasureFigures
from migrate.lab.compare.groups import Groups
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
    shorten,
    space_rows,
    stitch_rows,
    tenths,
)
from migrate.lab.similarity.measures import Measure
from migrate.lab.similarity.stitching import Stitching
from migrate.report.page import Content, content, element, items, note, sentence
from migrate.report.sections import Block, Either, Heading, Listed, Note, Report, TextTable
from migrate.report.svg.charts import Line, line_chart, spectra, thinned
from migrate.report.svg.frame import Chart
from migrate.report.terminal import number
from migrate.version import __version__

_MOST_LINES = 6
"""Lines of a chart that can be told apart by their colours."""


def loss_curves(series: Mapping[str, Sequence[Sequence[float]]]) -> Chart | None:
    """For each network the loss while it trained and the one on held-out pairs, by epoch; None without any."""
    lines = []
    for name, curve in series.items():
        if not curve:
            continue
        columns = {"training": 1}
        # Of few pairs none are held out
        if len(curve[0]) > 2:
            columns = {"held out": 2, "training": 1}
        for label, column in columns.items():
            points = [(row[0], row[column]) for row in curve]
            lines.append(Line(f"{name}, {label}", thinned(points)))
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
        faintest = self.faintest
        deepest = self.deepest
        if self.logarithmic:
            # An error of 0 has no logarithm
            value = log10(max(value, min(faintest, deepest)))
            faintest = log10(faintest)
            deepest = log10(deepest)
        span = deepest - faintest
        if not span:
            return 0.0
        # A value may lie beyond the ends: R² has no lower one
        return min(max((value - faintest) / span, 0), 1)


def heat_map(figures: MeasureFigures, names: Sequence[str]) -> Element:
    """Return a measure between all stores, with a last row for a Gaussian where it was measured."""
    shading = shading_of(figures.measure, figures.matrix)

    def row(head: Content, values: Sequence[float | None], kind: str | None = None) -> Element:
        shares = [0.0 if value is None else shading.share(value) for value in values]
        cells = [
            element("td", number(value), style=f"--shade:{50 * share:.0f}%")
            for value, share in zip(values, shares, strict=True)
        ]
        return element("tr", element("th", head, scope="row"), cells, class_=kind)

    letters = [letter(index) for index in range(len(names))]
    head = element("tr", element("td"), [element("th", mark, scope="col") for mark in letters])
    rows = [
        row([mark, " ", element("span", name)], values)
        for mark, name, values in zip(letters, names, figures.matrix, strict=True)
    ]
    if figures.chance:
        rows.append(row("a Gaussian", figures.chance, "chance"))
    heat = element("table", element("thead", head), element("tbody", rows), class_="heat")
    return element(
        "div",
        element("h3", figures.measure.title),
        note(f"{figures.measure.meaning} {shading.deeper.capitalize()}."),
        element("div", heat, class_="scroll"),
    )


def shading_of(measure: Measure, matrix: Matrix) -> Shading:
    """From the value least alike to the most alike, with what strangers have and what a space has with itself."""
    values = [value for row, line in enumerate(matrix) for column, value in enumerate(line) if row != column]
    numbers = [value for value in values if value is not None] or [0.0]
    # Errors are in the units of the target: those of stores with long vectors would leave the others one shade
    logarithmic = measure.key == "mse" and max(numbers) > 0
    if logarithmic:
        everything = [value for line in matrix for value in line if value is not None and value > 0]
        numbers = [min(everything), max(everything)]
    elif measure.itself is not None:
        # Between spaces that have nothing in common; the other measures have 0 there
        unlike = {"cka_distance": pi / 2, "penalty": 1.0, "penalty_identity": 1.0}
        numbers += [measure.itself, unlike.get(measure.key, 0.0)]
    low = min(numbers)
    high = max(numbers)
    if measure.alike is None:
        return Shading(low, high, "deeper: more")
    deeper = "deeper: more alike"
    if logarithmic:
        deeper += ", by order of magnitude"
    else:
        # R² has no lower end
        low = max(low, -1.0)
    if measure.alike == "more":
        return Shading(low, high, deeper, logarithmic)
    return Shading(high, low, deeper, logarithmic)


def compare_sections(comparison: StoresComparison) -> Report:
    """Return the words, maps of every measure, which are tables of letters on a terminal, spectra and loss curves."""
    names = [store.name for store in comparison.stores]
    letters = [letter(index) for index in range(len(names))]
    every = [figures for figures in comparison.figures() if figures.measure.key not in ("r2_mean", "r2_random")]
    spaces = [figures for figures in every if not figures.measure.directed]
    controls = [figures for figures in every if figures.measure.is_control]
    title = f"{len(names)} spaces of the same {comparison.documents:,} documents"
    meanings = _meanings(comparison, names)
    chance = chance_sentence(comparison, names)
    without = "The vectors as they are, and what a stitch would give that knows nothing but the mean of its target."
    kinds: list[Block] | None = None
    if len(comparison.specs) > 1:
        kinds = ["Means over all pairs of stores, both ways", TextTable(kind_rows(comparison))]
    by_stitch = {}
    for index, spec in enumerate(comparison.specs):
        title_of_stitch = f"What {spec if index else 'a stitch'} makes of them"
        by_stitch[title_of_stitch] = list(_stitch(comparison, spec, every, index))
    groups = None
    if comparison.groups is not None:
        groups = list(_groups(comparison.groups))
    labels: list[Block] | None = None
    if comparison.downstream is not None:
        rows = list(labels_rows(comparison, comparison.downstream))
        labels = [labels_sentence(comparison, comparison.downstream), TextTable(rows, marked=[0])]
    closing: Block = "what this means for each pair: --report FILE.html"
    # A terminal has room for so many
    if len(comparison.pairs) <= 3:
        closing = meanings
    return Report(
        kind="Comparison of vector stores",
        title=title,
        lead=Either(_most_alike(comparison, names), title),
        sections={
            "What the figures mean": Either(meanings),
            "The stores": _stores(comparison),
            "The stitches": kinds,
            **by_stitch,
            "Without a stitch": [element("p", without), _maps(controls, names)],
            "How alike the spaces are": [
                Either(f"{chance}. The unbiased CKA has about none of it", chance),
                Either(_maps(spaces, names), TextTable(space_rows(comparison, letters))),
            ],
            "Groups of stores": groups,
            "Where the local dimension is low, and where it is high": list(_local_dimensions(comparison)),
            "Labels": labels,
        },
        closing=closing,
        footer=f"lead-migrate {__version__}, seed {comparison.seed}",
    )


def _most_alike(comparison: StoresComparison, names: Sequence[str]) -> Element:
    # By the unbiased figure, which chance has about none of
    order = sorted(comparison.pairs.items(), key=lambda item: -item[1].cka)

    def ends(index: int) -> Content:
        (a, b), pair = order[index]
        return [element("b", names[a]), " and ", element("b", names[b]), f" ({number(pair.cka)})."]

    least = None
    if len(order) > 1:
        least = [" Least alike: ", ends(-1)]
    return element("p", "Most alike by CKA: ", ends(0), least, class_="lead")


def _meanings(comparison: StoresComparison, names: Sequence[str]) -> list[Block]:
    blocks: list[Block] = []
    for (a, b), sentences in comparison_sentences(comparison, names):
        if len(comparison.pairs) > 1:
            blocks.append(Heading(f"{names[a]} and {names[b]}"))
        blocks.append(_bullets(sentences))
    return blocks


def _bullets(sentences: Sequence[str]) -> Either:
    return Either(items(map(sentence, sentences)), Listed(sentences))


def _stores(comparison: StoresComparison) -> list[Block]:
    head = ["letter", "store", "dim", "documents", "local dimension", "TwoNN", "read back"]
    rows = [
        [
            letter(index),
            store.name,
            str(store.dim),
            f"{store.documents:,}",
            tenths(store.dimension),
            tenths(store.two_nn),
            "exact" if store.exact else "approximate",
        ]
        for index, store in enumerate(comparison.stores)
    ]
    dimensions = (
        "Local dimension and TwoNN are intrinsic dimensions. The local one is the maximum likelihood estimate of "
        "Levina and Bickel from its 20 nearest, the harmonic mean over documents; TwoNN (Facco et al.) takes the ratio "
        "of the two nearest distances."
    )
    return [TextTable([head, *rows], text_columns=[1]), note(dimensions), list(map(Note, comparison.notes))]


def _maps(several: Sequence[MeasureFigures], names: Sequence[str]) -> Element:
    return element("div", [heat_map(figures, names) for figures in several], class_="pair")


def _stitch(comparison: StoresComparison, spec: str, every: Sequence[MeasureFigures], index: int) -> Iterator[Block]:
    names = [store.name for store in comparison.stores]
    letters = [letter(index) for index in range(len(names))]
    on_self = comparison.stitches[spec][0, 0]
    penalty = ", whose penalty is chosen by retrieval" if spec == "ridge" else ""
    controls = controls_sentence(comparison)
    about = element(
        "p",
        "The stitch ",
        element("code", spec),
        f"{penalty}, from the store of the row to the store of the column: fitted on {on_self.fitted_on:,} "
        f"documents, judged on {on_self.judged_on:,} others. On the diagonal a store is stitched to itself in the "
        "same way: what is lost there, is lost for want of documents. Errors are in the target's own units. ",
        None if index else sentence(controls),
    )
    fitted = f"stitches: {spec}, fitted on {on_self.fitted_on:,} documents and judged on {on_self.judged_on:,} others"
    yield Either(about, [fitted, [] if index else f"controls: {controls}"])
    yield _bullets(list(extremes_sentences(comparison, names, spec)))
    maps = _maps([figures for figures in every if figures.stitch == spec and figures.mean is not None], names)
    yield Either(maps, TextTable(stitch_rows(comparison, letters, spec)))
    if len(names) > 2:
        yield Heading("By source and by target")
        yield Note("means over all other stores, from each and to each")
        yield TextTable(marginal_rows(comparison, names, spec), text_columns=[0])
    charts = [(text, chart) for text, chart in _charts(comparison, spec) if chart is not None]
    if charts:
        yield element("h3", "Spectra and losses" if len(charts) > 1 else "Spectra")
        yield [[element("p", text), chart.figure()] for text, chart in charts]


def _groups(groups: Groups) -> Iterator[Block]:
    listed = "; ".join(f"{name}: {', '.join(map(letter, indices))}" for name, indices in groups.places.items())
    yield f"{listed}. {bounds_sentence(groups).capitalize()}"
    yield TextTable(group_rows(groups))
    if distances := distance_rows(groups):
        yield Heading("Layer by layer")
        yield Note("the root of the summed squared angles, arccos CKA, over the stores of two groups in their order")
        yield TextTable(distances)


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
            spectra({f"layer {index}": layer.singular_values for index, layer in layers.items()}) if layers else None,
        )
    curves = {name: stitch.loss_curve for name, stitch in to_first.items()}
    yield f"The loss of the networks to {names[0]}, epoch by epoch; training draws noise anew.", loss_curves(curves)


def _local_dimensions(comparison: StoresComparison) -> Iterator[Block]:
    about = (
        "Documents by the intrinsic dimension near them, the lowest first and the highest last, with their nearest "
        "documents in the same store."
    )
    yield element("p", about)
    for index, (store, local) in enumerate(zip(comparison.stores, comparison.local, strict=True)):
        few = ", ".join(f"{shorten(document.id, 20)} {tenths(document.dimension)}" for document in local.lowest[:3])
        yield Either(_local(comparison, index), f"lowest in {letter(index)} {store.name}: {few}" if few else None)


def _local(comparison: StoresComparison, index: int) -> Element | None:
    """Return documents of low and of high dimension with how their texts begin, and their nearest; None without any."""
    local = comparison.local[index]
    rows = []
    for document in (*local.lowest[:8], *reversed(local.highest[:8])):
        name = document.id
        if text := comparison.texts.get(document.id):
            name += f": {text}"
        rows.append([tenths(document.dimension), name, "; ".join(document.neighbours)])
    if not rows:
        return None
    shown = content(TextTable([["dimension", "document", "nearest"], *rows], text_columns=[1, 2]))
    summary = element("summary", f"{letter(index)} {comparison.stores[index].name}")
    # One is open, to show what is in the others
    is_open = "" if index == 0 else None
    return element("details", summary, shown, open=is_open)
