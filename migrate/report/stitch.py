"""A saved stitch as facts: what it maps, what it reads, how it was judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from migrate.stitch.base import saved_arrays
from migrate.stitch.fitted import DOCUMENT, FittedStitch, input_dim
from migrate.stitch.select import ScoredStitch, Selection


def stitch_document(folder: str, fitted: FittedStitch) -> dict[str, Any]:
    """Return everything that `inspect` tells of a stitch, as values that JSON holds."""
    manifest, best = fitted.manifest, fitted.selection.best
    models = {"from_model": manifest.source_model, "to_model": manifest.model}
    if fitted.direction != DOCUMENT:
        models = {"from_model": manifest.model, "to_model": manifest.source_model}
    dim = input_dim(manifest)
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
        "facts": dict(fitted.stitch.kind_facts() or manifest.stitch.kind_facts or {}),
        "arrays": {name: list(array.shape) for name, array in saved_arrays(fitted.stitch).items()},
        "files": sorted(manifest.stitch.files or ()),
        "made_by": f"lead-migrate {manifest.tool_version}",
    }


def _told_scores(selection: Selection, row: ScoredStitch) -> dict[str, float | None]:
    """Return the scores of a candidate, without its overlap where documents are too few to tell one."""
    scores = asdict(row.scores)
    return {**scores, "overlap_at_10": None, "overlap_error": None} if selection.is_too_small else scores


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
    for name, value in of["facts"].items():
        yield name, f"{value:.4g}" if isinstance(value, int | float) else str(value)
    yield "files", f"as in the manifest: {', '.join(of['files'])}"
    yield "made by", of["made_by"]
