"""A saved stitch as facts: what it maps, what it reads, how it was judged, what its layers look like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from migrate.report.terminal import number
from migrate.stitch.fitted import DOCUMENT, FittedStitch, input_dim
from migrate.stitch.select import ScoredStitch, Selection
from migrate.stitch.spectrum import LayerSpectrum, layer_spectra


def stitch_document(folder: str, fitted: FittedStitch) -> dict[str, Any]:
    """Return everything that `inspect` tells of a stitch, as values that JSON holds."""
    manifest, best = fitted.manifest, fitted.selection.best
    models = {"from_model": manifest.source_model, "to_model": manifest.model}
    if fitted.direction != DOCUMENT:
        models = {"from_model": manifest.model, "to_model": manifest.source_model}
    dim = input_dim(manifest)
    curve = fitted.stitch.loss_curve
    return {
        "stitch": folder,
        "spec": fitted.stitch.spec,
        "maps": "documents" if fitted.direction == DOCUMENT else "queries",
        **{name: None if model is None else model.spec for name, model in models.items()},
        "from_dimension": dim,
        "to_dimension": fitted.dim,
        "output_norm": fitted.norm,
        "pairs": manifest.counts.get("pairs", len(fitted.sample.ids)),
        "true_vectors": len(fitted.sample.ids),
        "views": sorted(fitted.stitch.views),
        "reads_texts": fitted.reads_texts,
        "without_texts": None if fitted.fallback is None else fitted.fallback.stitch.spec,
        "held_out": _told_scores(fitted.selection, best),
        "candidates": {
            row.stitch: _told_scores(fitted.selection, row)["overlap_at_10"] for row in fitted.selection.candidates
        },
        "mean_norm": _mean_norm(fitted),
        "layers": [{**asdict(layer), **_summary(layer)} for layer in layer_spectra(fitted.stitch, dim)],
        "loss_curve": [] if curve is None else curve,
        "facts": dict(fitted.stitch.kind_facts() or manifest.stitch.kind_facts or {}),
        "arrays": {name: list(array.shape) for name, array in fitted.stitch.saved().items()},
        "files": sorted(manifest.stitch.files or ()),
        "made_by": f"lead-migrate {manifest.tool_version}",
    }


def _told_scores(selection: Selection, row: ScoredStitch) -> dict[str, float | None]:
    """Return the scores of a candidate, without its overlap where documents are too few to tell one."""
    scores = asdict(row.scores)
    return {**scores, "overlap_at_10": None, "overlap_error": None} if selection.is_too_small else scores


def _mean_norm(fitted: FittedStitch) -> float | None:
    """Return the norm of the mean of the true vectors, which a bias that only gives the mean has; None without any."""
    vectors = fitted.sample.vectors
    return float(np.linalg.norm(vectors.mean(axis=0, dtype=np.float64))) if len(vectors) else None


def _summary(layer: LayerSpectrum) -> dict[str, float]:
    """Return the effective rank, and how many directions have nine tenths of the energy."""
    energy = np.cumsum(np.square(layer.singular_values))
    enough = int(np.searchsorted(energy, 0.9 * energy[-1])) + 1 if energy.size and energy[-1] > 0 else 0
    return {"effective_rank": layer.effective_rank, "directions_for_90_percent": enough}


def stitch_rows(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the facts of the document as names and lines for a person."""
    of = document
    yield "stitch", of["stitch"]
    yield "spec", of["spec"]
    yield "maps", f"{of['maps']}: {of['from_model'] or 'a model that is not named'} -> {of['to_model'] or '?'}"
    yield "dimensions", f"{of['from_dimension']:,} -> {of['to_dimension']:,}, vectors of length {of['output_norm']:.4g}"
    yield "pairs", f"{of['pairs']:,}, of {of['true_vectors']:,} the true vectors are kept"
    yield "views", ", ".join(of["views"]) or "the old vector alone"
    if of["without_texts"]:
        yield "without texts", of["without_texts"]
    judged = of["held_out"]
    overlap = "too few documents for an overlap@10"
    if judged["overlap_at_10"] is not None:
        overlap = f"overlap@10 {judged['overlap_at_10']:.3f}"
    yield "held out", f"{overlap}, R² {judged['r2']:.3f}, cosine {judged['cosine']:.3f}"
    told = (f"{spec} {share:.3f}" if share is not None else spec for spec, share in of["candidates"].items())
    yield "candidates", ", ".join(told)
    if of["mean_norm"] is not None:
        yield "mean norm", f"{number(of['mean_norm'])}, of the true vectors' mean"
    yield from _layer_rows(of["layers"])
    if of["loss_curve"]:
        yield "loss curve", curve_sentence(of["loss_curve"])
    for name, value in of["facts"].items():
        if name not in ("layers", "epochs", "held_out_loss"):  # its layers and its curve tell these already
            yield name, f"{value:.4g}" if isinstance(value, int | float) else str(value)
    yield "files", f"as in the manifest: {', '.join(of['files'])}"
    yield "made by", of["made_by"]


def _layer_rows(layers: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    if not layers:
        yield "layers", "none: a sum of kernels, which has no matrix"
    for place, layer in enumerate(layers, 1):
        values = layer["singular_values"]
        yield (
            "map" if len(layers) == 1 else f"layer {place}",
            f"{len(values):,} singular values from {number(values[0])} to {number(values[-1])}, effective rank "
            f"{number(layer['effective_rank'])}, 90 % of the energy in {layer['directions_for_90_percent']:,}, bias "
            f"norm {number(layer['bias_norm'])}",
        )


def curve_sentence(curve: Sequence[Sequence[float]]) -> str:
    """Return a loss curve in words, and drawn; its last column is what training stopped by.

    >>> curve_sentence([[1, 0.9, 2.0], [2, 0.8, 1.5], [3, 0.7, 1.75]])
    '3 epochs, held-out loss 2.000 at first, least 1.500 at epoch 2  █▁▅'
    """
    losses = [row[-1] for row in curve]
    kind = "held-out" if len(curve[0]) > 2 else "training"
    least = min(losses)
    at = int(curve[losses.index(least)][0])
    shown = [losses[round(x)] for x in np.linspace(0, len(losses) - 1, min(len(losses), 40))]
    bars = "▁▂▃▄▅▆▇█"
    span = max(shown) - min(shown) or 1.0
    drawn = "".join(bars[round((loss - min(shown)) / span * (len(bars) - 1))] for loss in shown)
    figures = f"{kind} loss {number(losses[0])} at first, least {number(least)} at epoch {at}"
    return f"{len(losses)} epochs, {figures}  {drawn}"
