"""Compared stores as plain text that fits 100 columns.

Compared stores as one JSON document and as tables of commas: the source of truth for every other form.

Singular values of several stitches as lines on a logarithmic scale, an inline picture.

Compared stores as one HTML page: heat maps of every measure, tables, spectra.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from html import escape
from math import isfinite, log10, pi
from typing import Any

from migrate import __version__
from migrate.report.page import Section, html_page, html_table
from migrate.report.svg.charts import Shading, heat_map, shorten
from migrate.report.terminal import filled_columns, table, wrap
from migrate.similarity.comparison import StoresComparison
from migrate.similarity.downstream import Accuracy, Downstream
from migrate.similarity.measures import MEASURES, Matrix, Measure

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
        ]
    )


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


_WIDTH, _HEIGHT = 640, 240
_LEFT, _TOP, _BOTTOM, _RIGHT = 44, 12, 36, 150
_DECADES = 4
_POINTS = 160
_COLOURS = 6
_DASHES = ("", "6 3", "2 3")


def spectra(series: Mapping[str, Sequence[float]]) -> str:
    """An SVG element with a line for each series, its values in units of its first; what is below 10⁻⁴ is left out."""
    most = max(map(len, series.values()))
    names = "".join(_key(place, name) for place, name in enumerate(series))
    lines = "".join(_line(place, values, most) for place, values in enumerate(series.values()))
    height = max(_HEIGHT, _TOP + 18 * len(series) + _BOTTOM)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" style="max-width:{_WIDTH + 160}px" role="img" '
        f'aria-label="Singular values of the stitches">{_axes(most)}{lines}{names}</svg>'
    )


def _x(place: float, most: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (place - 1) / max(most - 1, 1)


def _y(share: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * min(-log10(share) / _DECADES, 1)


def _axes(most: int) -> str:
    right, bottom = _x(most, most), _y(10**-_DECADES)
    parts = []
    for decade in range(_DECADES + 1):
        y = _y(10.0**-decade)
        label = "1" if decade == 0 else f"{10.0**-decade:g}"
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="muted" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for place in sorted({1, (most + 1) // 2, most}):
        x = _x(place, most)
        parts.append(f'<text class="muted" x="{x:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{place}</text>')
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text class="muted" x="{middle:.1f}" y="{bottom + 31:.1f}" text-anchor="middle">'
        "singular value, by rank</text>"
    )
    return "".join(parts)


def _style(place: int) -> str:
    dash = _DASHES[place // _COLOURS % len(_DASHES)]
    return f'stroke="var(--series-{place % _COLOURS + 1})" stroke-width="2"' + (
        f' stroke-dasharray="{dash}"' if dash else ""
    )


def _line(place: int, values: Sequence[float], most: int) -> str:
    step = max(len(values) // _POINTS, 1)
    shares = [(rank, value / values[0]) for rank, value in enumerate(values, 1) if values[0] > 0]
    points = [(rank, share) for rank, share in shares if share >= 10**-_DECADES]
    kept = [*points[::step], *points[-1:]]
    path = " ".join(f"{_x(rank, most):.1f},{_y(share):.1f}" for rank, share in kept)
    return f'<polyline points="{path}" fill="none" {_style(place)}/>'


def _key(place: int, name: str) -> str:
    x, y = _WIDTH - _RIGHT + 14, _TOP + 6 + 18 * place
    return (
        f'<line x1="{x}" x2="{x + 18}" y1="{y}" y2="{y}" {_style(place)}/>'
        f'<text x="{x + 24}" y="{y + 4}">{escape(shorten(name, 18))}</text>'
    )


_FEW = 8
"""Stores up to which two heat maps stand side by side."""

_LEAST = -1.0
"""A value from which on down the shade is the same: R² has no lower end."""

_FAR = {"cka_distance": pi / 2, "penalty": 1.0, "penalty_identity": 1.0}
"""What spaces have that have nothing in common, where it is not 0."""

_CONTROLS = ("r2_mean", "r2_random")


def compare_page(comparison: StoresComparison) -> str:
    """The page, complete in itself."""
    spaces = [measure for measure in MEASURES if not measure.directed]
    stitches = [measure for measure in MEASURES if measure.directed]
    sections = [
        Section("The stores", _stores(comparison)),
        Section("How alike the spaces are", _maps(spaces, comparison)),
        Section("What a stitch makes of them", _stitches(stitches, comparison)),
        Section("Spectra", _spectra(comparison)),
    ]
    if comparison.downstream is not None:
        sections.insert(3, Section("Labels", _labels(comparison)))
    footer = f"lead-migrate {escape(__version__)}, seed {comparison.seed}"
    return html_page("Comparison of vector stores", _title(comparison), _lead(comparison), sections, footer=footer)


def _title(comparison: StoresComparison) -> str:
    return f"{len(comparison.stores)} spaces of the same {comparison.documents:,} documents"


def _lead(comparison: StoresComparison) -> str:
    names = [escape(store.name) for store in comparison.stores]
    order = sorted(comparison.pairs, key=lambda pair: comparison.pairs[pair].cka)
    sentences = [
        f"{word} by CKA: <b>{names[a]}</b> and <b>{names[b]}</b> ({number(comparison.pairs[a, b].cka)})."
        for word, (a, b) in (("Most alike", order[-1]), ("Least alike", order[0]))[: len(order)]
    ]
    return f'<p class="lead">{" ".join(sentences)}</p>'


def _stores(comparison: StoresComparison) -> str:
    head = ["store", "dim", "documents", "dimension near a document", "dimension by TwoNN", "read back"]
    rows = [
        [store.name, str(store.dim), f"{store.documents:,}", tenths(store.dimension), tenths(store.two_nn),
         "exact" if store.exact else "approximate"]
        for store in comparison.stores
    ]  # fmt: skip
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in comparison.notes)
    about = (
        "The intrinsic dimension near a document is the maximum likelihood estimate of Levina and Bickel from its 20 "
        "nearest, the harmonic mean over documents; TwoNN (Facco et al.) takes the ratio of the two nearest distances."
    )
    return f'{html_table([head, *rows])}<p class="note">{about}</p>{notes}'


def _stitches(measures: Sequence[Measure], comparison: StoresComparison) -> str:
    first = next(iter(comparison.pairs.values())).forth
    controls = [measure for measure in measures if measure.key in _CONTROLS]
    spans = "; ".join(f"{escape(measure.title)}: {_span(measure.matrix(comparison))}" for measure in controls)
    about = (
        "An affine stitch, ridge with a penalty chosen by retrieval, from the store of the row to the store of the "
        f"column: fitted on {first.fitted_on:,} documents, judged on {first.judged_on:,} others. Errors are in the "
        f"target's own units. Controls, over all pairs: {spans}."
    )
    return f"<p>{about}</p>{_maps([measure for measure in measures if measure not in controls], comparison)}"


def _span(matrix: Matrix) -> str:
    values = [value for line in matrix for value in line if value is not None]
    return f"{number(min(values))} to {number(max(values))}" if values else "-"


def _maps(measures: Sequence[Measure], comparison: StoresComparison) -> str:
    names = [store.name for store in comparison.stores]
    maps = "".join(
        f'<div><h3>{escape(measure.title)}</h3><p class="note">{escape(measure.meaning)}</p>'
        f"{heat_map(measure.title, names, matrix, shading_of(measure, matrix), number)}</div>"
        for measure, matrix in ((measure, measure.matrix(comparison)) for measure in measures)
    )
    return f'<div class="pair">{maps}</div>' if len(names) <= _FEW else maps


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


def _spectra(comparison: StoresComparison) -> str:
    target = escape(comparison.stores[0].name)
    series = {
        comparison.stores[b].name: comparison.pairs[a, b].back.singular_values for a, b in comparison.pairs if a == 0
    }
    about = (
        f"Singular values of the stitches to {target}, in units of the greatest. A line that falls early belongs to a "
        "stitch that uses few directions."
    )
    return f"<p>{about}</p>{spectra(series)}"


def _labels(comparison: StoresComparison) -> str:
    scored = comparison.downstream
    if scored is None:
        return ""
    rows = list(labels_rows(comparison, scored))
    return f"<p>{escape(labels_sentence(comparison, scored))}</p>{html_table(rows, marked=[0])}"
