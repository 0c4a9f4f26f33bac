"""A saved stitch as facts: what it maps, what it reads, how it was judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from migrate.manifest import ModelIdentity
from migrate.stitch.base import saved_arrays
from migrate.stitch.fitted import DOCUMENT, FittedStitch, input_dim
from migrate.stitch.select import ScoredStitch, Selection


def stitch_document(folder: str, fitted: FittedStitch) -> dict[str, Any]:
    """Return everything that `inspect` tells of a stitch, as values that JSON holds."""
    manifest = fitted.manifest
    maps = "documents"
    from_model = manifest.source_model
    to_model = manifest.model
    if fitted.direction != DOCUMENT:
        maps = "queries"
        from_model = manifest.model
        to_model = manifest.source_model
    fallback = None
    if fitted.fallback is not None:
        fallback = fitted.fallback.stitch.spec
    dim = input_dim(manifest)
    return {
        "stitch": folder,
        "spec": fitted.stitch.spec,
        "maps": maps,
        "from_model": _spec_of(from_model),
        "to_model": _spec_of(to_model),
        "from_dimension": dim,
        "to_dimension": fitted.dim,
        "output_norm": fitted.norm,
        "pairs": manifest.counts.get("pairs", len(fitted.sample.ids)),
        "true_vectors": len(fitted.sample.ids),
        "views": sorted(fitted.stitch.views),
        "reads_texts": fitted.reads_texts,
        "without_texts": fallback,
        "held_out": _told_scores(fitted.selection, fitted.selection.best),
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
    # In JSON a figure that says nothing would be read all the same
    scores = asdict(row.scores)
    if selection.is_too_small:
        scores |= {"overlap_at_10": None, "overlap_error": None}
    return scores


def _spec_of(model: ModelIdentity | None) -> str | None:
    if model is None:
        return None
    return model.spec


def stitch_rows(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the facts of the document as names and lines for a person."""
    of = document
    yield "stitch", of["stitch"]
    yield "spec", of["spec"]
    yield "maps", f"{of['maps']}: {of['from_model'] or 'a model that is not named'} -> {of['to_model'] or '?'}"
    yield "dimensions", f"{of['from_dimension']:,} -> {of['to_dimension']:,}, vectors of length {of['output_norm']:.4g}"
    yield "pairs", f"{of['pairs']:,}, and {of['true_vectors']:,} true vectors are kept"
    yield "views", ", ".join(of["views"]) or "the old vector alone"
    if of["without_texts"]:
        yield "without texts", of["without_texts"]
    judged = of["held_out"]
    overlap = "too few documents for an overlap@10"
    if judged["overlap_at_10"] is not None:
        overlap = f"overlap@10 {judged['overlap_at_10']:.3f}"
    yield "held out", f"{overlap}, R² {judged['r2']:.3f}, cosine {judged['cosine']:.3f}"
    yield "candidates", ", ".join(_candidate(spec, share) for spec, share in of["candidates"].items())
    for name, value in of["facts"].items():
        if isinstance(value, int | float):
            yield name, f"{value:.4g}"
        else:
            yield name, str(value)
    yield "files", f"as in the manifest: {', '.join(of['files'])}"
    yield "made by", of["made_by"]


def _candidate(spec: str, overlap: float | None) -> str:
    if overlap is None:
        return spec
    return f"{spec} {overlap:.3f}"
