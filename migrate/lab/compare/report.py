"""Compared stores as one JSON document, as tables, and in words: which way a stitch works, and what limits it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from math import isfinite, sqrt
from typing import Any

from migrate.display import notebook_html, percent
from migrate.facts import document
from migrate.lab.compare.comparison import LocalDocument, LocalDocuments, StoresComparison
from migrate.lab.compare.figures import Matrix, MeasureFigures
from migrate.lab.compare.groups import FEWEST_DRAWN, BoundedMean, Contrast, Groups
from migrate.lab.compare.labels import Accuracy, Downstream
from migrate.lab.similarity.measures import MEASURES
from migrate.lab.similarity.spaces import Similarity
from migrate.lab.similarity.stitching import Stitching
from migrate.report.page import notebook_piece
from migrate.report.sections import Listed, TextTable
from migrate.report.terminal import filled_columns, number
from migrate.stitch.select import FEWEST_JUDGED


def compare_document(comparison: StoresComparison) -> dict[str, Any]:
    """Return every matrix, every spectrum and the facts of the stores, as values that JSON holds."""
    names = [store.name for store in comparison.stores]
    return document(
        "compare",
        {
            "documents": comparison.documents,
            "shared": comparison.shared,
            "seed": comparison.seed,
            "stores": comparison.stores,
            "stitches_fitted": comparison.specs,
            "measures": [_measure_document(figures) for figures in comparison.figures()],
            "stitches": [
                {"from": a, "to": b, **_stitch_document(stitch)}
                for fitted in comparison.stitches.values()
                for (a, b), stitch in fitted.items()
            ],
            "sentences": [
                {"between": ends, "sentences": sentences} for ends, sentences in comparison_sentences(comparison, names)
            ],
            "local_dimensions": [
                {
                    end: [
                        {**asdict(document_pair), "text": comparison.texts.get(document_pair.id)}
                        for document_pair in documents
                    ]
                    for end, documents in _ends(local)
                }
                for local in comparison.local
            ],
            "groups": comparison.groups,
            "downstream": comparison.downstream,
            "notes": comparison.notes,
        },
    )


def _ends(local: LocalDocuments) -> tuple[tuple[str, tuple[LocalDocument, ...]], ...]:
    return ("lowest", local.lowest), ("highest", local.highest)


def csv_files(comparison: StoresComparison) -> Iterator[tuple[str, str]]:
    """Yield the name and the content of each table: a matrix a measure, their means, local dimensions, and groups.

    In a matrix a row is from, a column to, and a last row is of a Gaussian, where CKA with one was measured.
    """
    names = [store.name for store in comparison.stores]
    means = [["measure", "stitch", "store", "from_it", "to_it"]]
    for figures in comparison.figures():
        rows = [[name, *map(_exact, values)] for name, values in zip(names, figures.matrix, strict=True)]
        if figures.chance is not None:
            rows.append([GAUSSIAN, *map(_exact, figures.chance)])
        # `r2 mlp:2` is no name for a file everywhere
        file_name = figures.name.replace(" ", "-").replace(":", "-")
        yield file_name, _csv([["from", *names], *rows])
        if figures.measure.directed:
            sides = zip(names, figures.by_source, figures.by_target, strict=True)
            means += [[figures.measure.key, figures.stitch or "", n, _exact(a), _exact(b)] for n, a, b in sides]
    yield "marginals", _csv(means)
    documents = [
        [store.name, end, document.id, _exact(document.dimension), *document.neighbours]
        for store, local in zip(comparison.stores, comparison.local, strict=True)
        for end, several in _ends(local)
        for document in several
    ]
    # Four columns stand before the neighbours
    nearest = max((len(row) for row in documents), default=4) - 4
    head = ["store", "end", "id", "dimension", *(f"nearest_{n}" for n in range(1, nearest + 1))]
    yield "dimensions", _csv([head, *documents])
    if comparison.groups is not None:
        yield "groups", _csv([["measure", "where", "lower", "mean", "upper"], *_groups_rows(comparison.groups)])


def _groups_rows(groups: Groups) -> Iterator[list[str]]:
    for contrast in groups.contrasts:
        for name in ("within", "between", "difference"):
            mean: BoundedMean | None = getattr(contrast, name)
            if mean is not None:
                yield [contrast.key, name, _exact(mean.lower), _exact(mean.mean), _exact(mean.upper)]
    for start, line in zip(groups.places, groups.layer_distances, strict=True):
        for end, distance in zip(groups.places, line, strict=True):
            if distance is not None and start != end:
                yield ["layer_distance", f"{start} to {end}", "", _exact(distance), ""]


def bounds_sentence(groups: Groups) -> str:
    """Say where the bounds come from, or why there are none."""
    if groups.contrasts[0].between.lower is None:
        return f"means over pairs, without bounds, which need {FEWEST_DRAWN} stores in each group"
    return "means over pairs, with 95 % bounds from drawing stores from their groups"


def group_rows(groups: Groups) -> list[list[str]]:
    """Return a head, and for each measure its means within groups, between them, and the difference, with bounds."""
    rows = [[contrast.title, *_intervals(contrast)] for contrast in groups.contrasts]
    return [["measure", "within", "between", "within less between"], *rows]


def _intervals(contrast: Contrast) -> Iterator[str]:
    for interval in (contrast.within, contrast.between, contrast.difference):
        if interval is None:
            yield "-"
        elif interval.lower is None:
            yield number(interval.mean)
        else:
            yield f"{number(interval.mean)} ({number(interval.lower)} to {number(interval.upper)})"


def distance_rows(groups: Groups) -> list[list[str]]:
    """Return a head, and the distance of layers from each group to each; no rows where no two have as many stores."""
    names = list(groups.places)
    rows = [[name, *map(number, line)] for name, line in zip(names, groups.layer_distances, strict=True)]
    # Half of the matrix: the other half is the same, and the diagonal is 0
    distances = [value for row, line in enumerate(groups.layer_distances) for value in line[:row] if value is not None]
    if not distances:
        return []
    return [["", *names], *rows]


def _stitch_document(stitch: Stitching) -> dict[str, Any]:
    """Return all facts; an affine stitch has its one layer as `singular_values` and `bias_norm`."""
    return {
        **asdict(stitch),
        "layers": [] if stitch.affine else stitch.layers,
        "singular_values": stitch.singular_values,
        "bias_norm": stitch.bias_norm,
        "mae_explained": stitch.mae_explained,
    }


def _measure_document(figures: MeasureFigures) -> dict[str, Any]:
    measure = figures.measure
    document = {name: getattr(measure, name) for name in ("key", "title", "meaning", "alike", "directed")}
    document |= {"stitch": figures.stitch, "matrix": figures.matrix, "mean": figures.mean}
    for name, pair in (("best", figures.best), ("worst", figures.worst)):
        document[name] = pair and {"from": pair.start, "to": pair.end, "value": pair.value}
    if measure.directed:
        document |= {"by_source": figures.by_source, "by_target": figures.by_target}
    if figures.chance is not None:
        document["gaussian"] = figures.chance
    return document


GAUSSIAN = "a Gaussian"
"""Stands in the place of a store where figures are of a Gaussian of its shape."""


def long_csv(comparison: StoresComparison) -> str:
    """Return all matrices as one table: measure, from, to, value, stitch; without the values that are not there."""
    names = [store.name for store in comparison.stores]
    rows = [
        [figures.measure.key, start, end, _exact(value), figures.stitch or ""]
        for figures in comparison.figures()
        for start, end, value in _cells_of(figures, names)
        if value is not None
    ]
    return _csv([["measure", "from", "to", "value", "stitch"], *rows])


def _cells_of(figures: MeasureFigures, names: Sequence[str]) -> Iterator[tuple[str, str, float | None]]:
    """Yield every cell with the names of its row and its column; of means by source and target one name is empty."""
    for name, line in zip(names, figures.matrix, strict=True):
        yield from ((name, end, value) for end, value in zip(names, line, strict=True))
    if figures.chance is not None:
        yield from ((GAUSSIAN, name, value) for name, value in zip(names, figures.chance, strict=True))
    if figures.measure.directed:
        yield from ((name, "", value) for name, value in zip(names, figures.by_source, strict=True))
        yield from (("", name, value) for name, value in zip(names, figures.by_target, strict=True))


def _exact(value: float | None) -> str:
    if value is None:
        return ""
    # All digits, as tables are for further computation
    return repr(float(value))


def _csv(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    # By default lines end as on Windows
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


_STITCHES = {
    "r2": "R²", "mse": "MSE", "mae_explained": "MAE expl.", "penalty": "penalty", "penalty_above_self": "above self",
    "penalty_identity": "as is", "bias_norm": "bias", "mean_norm": "mean", "spread": "spread",
    "effective_rank": "rank",
}  # fmt: skip
_JUDGES = ("r2", "penalty")
"""Measures whose best and worst pairs and means by source and target are shown."""


def shorten(name: str, longest: int) -> str:
    """Return the name, without its middle where it is longer than that.

    >>> shorten("a-very-long-name", 9)
    'a-ve…name'
    """
    if len(name) <= longest:
        return name
    # Both ends are kept: the names of layers and models differ there
    tail = (longest - 1) // 2
    return f"{name[: longest - 1 - tail]}…{name[-tail:]}"


def tenths(value: float) -> str:
    """Return an intrinsic dimension; a dash where it is not known."""
    if not isfinite(value):
        return "-"
    return f"{value:.1f}"


def stitch_rows(comparison: StoresComparison, letters: Sequence[str], spec: str) -> list[list[str]]:
    """Return a head, and the figures of a stitch in each direction and from a store to itself."""
    pairs = sorted(comparison.stitches[spec], key=lambda ends: (ends[0] == ends[1], min(ends), max(ends), ends))
    rows = _rows(comparison, pairs, letters, "→", list(_STITCHES), spec)
    return filled_columns([["from→to", *_STITCHES.values()], *rows])


def _of_stitch(comparison: StoresComparison, keys: Sequence[str], spec: str) -> list[MeasureFigures]:
    """Return the figures of these measures by this stitch, in the order of the keys."""
    figures_by_key = {
        figures.measure.key: figures for figures in comparison.figures() if figures.stitch in (spec, None)
    }
    return [figures_by_key[key] for key in keys]


def extremes_sentences(comparison: StoresComparison, names: Sequence[str], spec: str) -> Iterator[str]:
    """Yield the stores between which a stitch works best and worst, by these names."""
    for figures in _of_stitch(comparison, _JUDGES, spec):
        best = figures.best
        worst = figures.worst
        if best is not None and worst is not None:
            yield (
                f"{figures.measure.title}: best {names[best.start]} to {names[best.end]} {number(best.value)}, worst "
                f"{names[worst.start]} to {names[worst.end]} {number(worst.value)}"
            )


def marginal_rows(comparison: StoresComparison, names: Sequence[str], spec: str) -> list[list[str]]:
    """Return a head, and for each store the means over all others, from it and to it."""
    judged = _of_stitch(comparison, (*_JUDGES, "penalty_above_self"), spec)
    columns = [values for figures in judged for values in (figures.by_source, figures.by_target)]
    head = [f"{_STITCHES[figures.measure.key]} {way}" for figures in judged for way in ("from", "to")]
    return [["mean", *head], *([name, *(number(column[row]) for column in columns)] for row, name in enumerate(names))]


def kind_rows(comparison: StoresComparison) -> list[list[str]]:
    """Return a head, and for each kind of stitch the means over all pairs of stores."""
    keys = ("r2", "mae_explained", "penalty", "penalty_above_self", "spread")
    titles = [figures.measure.title for figures in _of_stitch(comparison, keys, comparison.specs[0])]
    rows = [
        [spec, *(number(figures.mean) for figures in _of_stitch(comparison, keys, spec))] for spec in comparison.specs
    ]
    return [["stitch", *titles], *rows]


def chance_sentence(comparison: StoresComparison, names: Sequence[str]) -> str:
    """Return CKA of each store with a Gaussian, by these names."""
    each = "; ".join(
        f"{name} {number(chance.cka)}, biased {number(chance.cka_biased)}"
        for name, chance in zip(names, comparison.chance, strict=True)
    )
    return f"CKA with a Gaussian of the same shape, which is chance: {each}"


def controls_sentence(comparison: StoresComparison) -> str:
    """Return the spans of the controls over all pairs."""
    spans = (figures for figures in comparison.figures() if figures.measure.key in ("r2_mean", "r2_random"))
    return "; ".join(f"{figures.measure.title} {_span(figures.matrix)}" for figures in spans)


def _span(matrix: Matrix) -> str:
    values = [value for line in matrix for value in line if value is not None]
    if not values:
        return "-"
    return f"{number(min(values))} to {number(max(values))}"


def comparison_sentences(
    comparison: StoresComparison, names: Sequence[str]
) -> Iterator[tuple[tuple[int, int], list[str]]]:
    """Yield for each pair, by these names, which way a stitch would work, whether one is needed, and what limits it."""
    for (a, b), pair in comparison.pairs.items():
        ends = names[a], names[b]
        judged = pair.forth.judged_on
        if judged < FEWEST_JUDGED:
            few = f"{ends[0]} and {ends[1]}: {judged} held-out documents are too few to tell what a stitch finds"
            yield (a, b), [f"{few} ({FEWEST_JUDGED} at least)"]
            continue
        own_stitch_of = {name: comparison.own_stitches[index] for name, index in zip(ends, (a, b), strict=True)}
        yield (
            (a, b),
            [
                _direction(ends, pair),
                _sample_size(ends, pair),
                _self_stitch_sentence(own_stitch_of),
                _more_than_mean(ends, pair),
            ],
        )


def _direction(ends: tuple[str, str], pair: Similarity) -> str:
    a, b = ends
    forth = pair.forth.stitch.overlap_at_10
    back = pair.back.stitch.overlap_at_10
    if abs(forth - back) < _noise(pair.forth):
        which = "neither way is clearly better"
    elif forth > back:
        which = f"{a} to {b} works better"
    else:
        which = f"{b} to {a} works better"
    return (
        f"a stitch from {a} to {b} finds {percent(forth, 0)} of the 10 nearest neighbours that {b} has, one from {b} "
        f"to {a} {percent(back, 0)} of those that {a} has: {which}; {_what_to_do(pair)}"
    )


def _what_to_do(pair: Similarity) -> str:
    plain = pair.forth.identity
    stitched = pair.forth.stitch
    if plain is not None and stitched.overlap_at_10 - plain.overlap_at_10 <= _noise(pair.forth):
        shared = percent(plain.overlap_at_10, 0)
        return f"without a stitch, as they are, they share {shared}, and a stitch adds nothing to that"
    # Below it, stitches of vectors alone have not been SAFE: docs/benchmarks.md
    if max(stitched.overlap_at_10, pair.back.stitch.overlap_at_10) >= 0.8:
        enough = "vectors alone may be enough, which `audit` can say"
    else:
        enough = "vectors alone lose much, so let the stitch read texts too, or re-embed a part"
    if plain is None:
        return enough
    return f"as they are, they share {percent(plain.overlap_at_10, 0)}, so one is needed; {enough}"


def _noise(stitch: Stitching) -> float:
    """Return a difference of two shares that chance may make: twice the standard error of about 0.25 a document."""
    # The floor of a point is arbitrary: of many documents smaller differences are sure, and change nothing
    return max(0.5 / sqrt(stitch.judged_on), 0.01)


def _sample_size(ends: tuple[str, str], pair: Similarity) -> str:
    stitch = pair.forth
    start, end = ends
    # The better way of the two is the one that more documents could make worth while
    if pair.forth.stitch.overlap_at_10 < pair.back.stitch.overlap_at_10:
        stitch = pair.back
        end, start = ends
    whole = stitch.stitch.overlap_at_10
    half = stitch.from_half.overlap_at_10
    gain = whole - half
    more = "the number of documents is not what limits it"
    if gain > _noise(stitch):
        more = f"that doubling brought {100 * gain:.1f} points, and more documents would bring some more"
    return (
        f"sample size: fitted on {stitch.fitted_on:,} documents, the stitch from {start} to {end} finds "
        f"{percent(whole)}, on half of them {percent(half)}: {more}"
    )


def _self_stitch_sentence(self_stitches: Mapping[str, Stitching]) -> str:
    shares = " and ".join(
        f"{name} finds {percent(stitch.stitch.overlap_at_10)}" for name, stitch in self_stitches.items()
    )
    worst = min(stitch.stitch.overlap_at_10 for stitch in self_stitches.values())
    lost = "what a stitch between them misses is not lost by the fit itself"
    # A space is stitched to itself by the identity, which enough documents determine
    if worst < 0.98:
        lost = "so few documents do not span the dimensions, and a part of what stitches miss is owed to that"
    return f"stitched to itself in the same way, {shares} of its own neighbours: {lost}"


def _more_than_mean(ends: tuple[str, str], pair: Similarity) -> str:
    """Say if the stitches do more than give the target's mean, whose norm the bias of such a one would have."""
    each = []
    for start, end, stitch in ((*ends, pair.forth), (*ends[::-1], pair.back)):
        bias = ""
        if stitch.bias_norm is not None:
            bias = f", its bias norm is {number(stitch.bias_norm)}"
        each.append(
            f"from {start} to {end} it gives {percent(stitch.stitch.spread, 0)} of the target's variance{bias}, and "
            f"the norm of the target's mean is {number(stitch.mean_norm)}"
        )
    least = min(pair.forth.stitch.r2, pair.back.stitch.r2)
    answer = "no" if least > 0.05 else "nearly, one way or both"
    return f"is the stitch only a mean estimator? {answer}: {'; '.join(each)}"


def space_rows(comparison: StoresComparison, names: Sequence[str]) -> list[list[str]]:
    """Return one row a pair of stores, by these names: what their spaces have in common."""
    columns = {
        "cka": "CKA", "cka_biased": "biased", "cka_distance": "arccos", "jaccard": "Jaccard@10",
        "rank_similarity": "rank@10", "relative_orientation": "orientation", "local_geometry": "local geom.",
        "dimension_agreement": "dimension",
    }  # fmt: skip
    rows = _rows(comparison, list(comparison.pairs), names, "–", list(columns))
    return filled_columns([["pair", *columns.values()], *rows])


def letter(index: int) -> str:
    """Return a short name for a column, as spreadsheets have it.

    >>> [letter(place) for place in (0, 25, 26, 51, 52)]
    ['A', 'Z', 'AA', 'AZ', 'BA']
    """
    last = chr(ord("A") + index % 26)
    if index < 26:
        return last
    return letter(index // 26 - 1) + last


def _rows(
    comparison: StoresComparison,
    pairs: Sequence[tuple[int, int]],
    letters: Sequence[str],
    sign: str,
    keys: Sequence[str],
    spec: str | None = None,
) -> Iterator[list[str]]:
    by_key = {measure.key: measure for measure in MEASURES}
    matrices = [comparison.matrix(by_key[key], spec) for key in keys]
    for a, b in pairs:
        yield [f"{letters[a]}{sign}{letters[b]}", *(number(matrix[a][b]) for matrix in matrices)]


def labels_sentence(comparison: StoresComparison, scored: Downstream) -> str:
    """Say what was trained and judged, and what guessing gives."""
    true = shorten(comparison.stores[0].name, 50)
    return (
        f"labels: {scored.labels} labels, classifiers trained on {scored.trained_on:,} vectors of {true}, taken for "
        f"the true ones, judged on {scored.judged_on:,} other documents; the most frequent label alone: "
        f"accuracy {number(scored.majority)}"
    )


def labels_rows(comparison: StoresComparison, scored: Downstream) -> Iterator[list[str]]:
    """Return a head, and a row for each store: its name, accuracy and macro-F1 of the probe and of kNN."""
    yield ["vectors of", "probe accuracy", "probe macro-F1", "kNN accuracy", "kNN macro-F1"]
    for index, store in enumerate(comparison.stores):
        name = shorten(store.name, 30)
        # The classifiers were trained on vectors of the first store
        if index == 0:
            name += " (true)"
        yield [name, *_cells(scored.probe[index]), *_cells(scored.knn[index])]


def _cells(accuracy: Accuracy | None) -> list[str]:
    if accuracy is None:
        return ["-", "-"]
    return [number(accuracy.accuracy), number(accuracy.macro_f1)]


@notebook_html.register
def _(comparison: StoresComparison) -> str:
    names = [store.name for store in comparison.stores]
    sentences = [sentence for _, several in comparison_sentences(comparison, names) for sentence in several]
    answer = f"{len(comparison.stores)} spaces of the same {comparison.documents:,} documents"
    return notebook_piece(answer, TextTable(space_rows(comparison, names)), sentences, Listed(comparison.notes))
