"""Compared stores as one HTML page: heat maps of every measure, tables, spectra."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import pi

from migrate import __version__
from migrate.report.compare import labels_rows, labels_sentence, number, tenths
from migrate.report.heat_map import Shading, heat_map
from migrate.report.page import Section, html_page, html_table
from migrate.report.spectra import spectra
from migrate.similarity.comparison import StoresComparison
from migrate.similarity.measures import MEASURES, Matrix, Measure

_FEW = 8
"""Stores up to which two heat maps stand side by side."""

_LEAST = -1.0
"""A value from which on down the shade is the same: R² has no lower end."""

_FAR = {"cka_distance": pi / 2, "penalty": 1.0, "penalty_identity": 1.0}
"""What spaces have that have nothing in common, where it is not 0."""

_CONTROLS = ("r2_mean", "r2_random")


def compare_page(found: StoresComparison) -> str:
    """The page, complete in itself."""
    spaces = [measure for measure in MEASURES if not measure.directed]
    stitches = [measure for measure in MEASURES if measure.directed]
    sections = [
        Section("The stores", _stores(found)),
        Section("How alike the spaces are", _maps(spaces, found)),
        Section("What a stitch makes of them", _stitches(stitches, found)),
        Section("Spectra", _spectra(found)),
    ]
    if found.downstream is not None:
        sections.insert(3, Section("Labels", _labels(found)))
    footer = f"lead-migrate {escape(__version__)}, seed {found.seed}"
    return html_page("Comparison of vector stores", _title(found), _lead(found), sections, footer=footer)


def _title(found: StoresComparison) -> str:
    return f"{len(found.stores)} spaces of the same {found.documents:,} documents"


def _lead(found: StoresComparison) -> str:
    names = [escape(one.name) for one in found.stores]
    order = sorted(found.pairs, key=lambda pair: found.pairs[pair].cka)
    sentences = [
        f"{word} by CKA: <b>{names[a]}</b> and <b>{names[b]}</b> ({number(found.pairs[a, b].cka)})."
        for word, (a, b) in (("Most alike", order[-1]), ("Least alike", order[0]))[: len(order)]
    ]
    return f'<p class="lead">{" ".join(sentences)}</p>'


def _stores(found: StoresComparison) -> str:
    head = ["store", "dim", "documents", "dimension near a document", "dimension by TwoNN", "read back"]
    rows = [
        [one.name, str(one.dim), f"{one.documents:,}", tenths(one.dimension), tenths(one.two_nn),
         "exact" if one.exact else "approximate"]
        for one in found.stores
    ]  # fmt: skip
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in found.notes)
    about = (
        "The intrinsic dimension near a document is the maximum likelihood estimate of Levina and Bickel from its 20 "
        "nearest, the harmonic mean over documents; TwoNN (Facco et al.) takes the ratio of the two nearest distances."
    )
    return f'{html_table([head, *rows])}<p class="note">{about}</p>{notes}'


def _stitches(measures: Sequence[Measure], found: StoresComparison) -> str:
    first = next(iter(found.pairs.values())).forth
    controls = [measure for measure in measures if measure.key in _CONTROLS]
    spans = "; ".join(f"{escape(measure.title)}: {_span(measure.matrix(found))}" for measure in controls)
    about = (
        "An affine stitch, ridge with a penalty chosen by retrieval, from the store of the row to the store of the "
        f"column: fitted on {first.fitted_on:,} documents, judged on {first.judged_on:,} others. Errors are in the "
        f"target's own units. Controls, over all pairs: {spans}."
    )
    return f"<p>{about}</p>{_maps([measure for measure in measures if measure not in controls], found)}"


def _span(matrix: Matrix) -> str:
    values = [value for line in matrix for value in line if value is not None]
    return f"{number(min(values))} to {number(max(values))}" if values else "-"


def _maps(measures: Sequence[Measure], found: StoresComparison) -> str:
    names = [one.name for one in found.stores]
    maps = "".join(
        f'<div><h3>{escape(measure.title)}</h3><p class="note">{escape(measure.meaning)}</p>'
        f"{heat_map(measure.title, names, matrix, shading_of(measure, matrix), number)}</div>"
        for measure, matrix in ((measure, measure.matrix(found)) for measure in measures)
    )
    return f'<div class="pair">{maps}</div>' if len(names) <= _FEW else maps


def shading_of(measure: Measure, matrix: Matrix) -> Shading:
    """From the value least alike to the most alike, with what strangers have and what a space has with itself."""
    values = [value for row, line in enumerate(matrix) for column, value in enumerate(line) if row != column]
    known = [value for value in values if value is not None] or [0.0]
    if measure.itself is not None:
        known += [measure.itself, _FAR.get(measure.key, 0.0)]
    if measure.alike is None:
        return Shading(min(known), max(known), "deeper: more")
    low, high = max(min(known), _LEAST), max(known)
    ends = (low, high) if measure.alike == "more" else (high, low)
    return Shading(*ends, "deeper: more alike")


def _spectra(found: StoresComparison) -> str:
    target = escape(found.stores[0].name)
    series = {found.stores[b].name: found.pairs[a, b].back.singular_values for a, b in found.pairs if a == 0}
    about = (
        f"Singular values of the stitches to {target}, in units of the greatest. A line that falls early belongs to a "
        "stitch that uses few directions."
    )
    return f"<p>{about}</p>{spectra(series)}"


def _labels(found: StoresComparison) -> str:
    scored = found.downstream
    if scored is None:
        return ""
    return f"<p>{escape(labels_sentence(found, scored))}</p>{html_table(list(labels_rows(found, scored)), marked=[0])}"
