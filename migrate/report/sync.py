"""The changes of a store, and what a sync does or did about them, as text and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from migrate.facts import document
from migrate.steps.sync.changes import ChangeCounts
from migrate.steps.sync.job import Synced, SyncJob


def counts_text(counts: ChangeCounts) -> str:
    """Return the counts as a line."""
    if counts.metadata is None:
        metadata = "metadata goes along, and is not compared between two kinds of stores"
    else:
        metadata = f"{counts.metadata:,} with other metadata alone"
    return (
        f"{counts.added:,} documents added, {counts.changed:,} changed, {counts.deleted:,} deleted, "
        f"{counts.unchanged:,} unchanged; {metadata}"
    )


def plan_text(job: SyncJob) -> str:
    """Return a text of what would be done."""
    if job.is_current:
        return f"{job.output.display_name}: up to date with {job.old.info.location}"
    counts = job.changes.counts
    lines = [f"{job.output.display_name}: {counts_text(counts)}"]
    if counts.to_embed:
        lines += [f"{counts.to_embed:,} would get true vectors", job.estimate().sentence]
    else:
        lines.append("nothing would be embedded")
    return "\n".join([*lines, *(f"note: {remark}" for remark in job.remarks)])


def synced_text(done: Synced) -> str:
    """Say what was done, and what could not be kept or compared."""
    if not done.written:
        return f"{done.path}: up to date, {done.count:,} vectors, {done.n_true:,} of them true ones"
    lines = [
        f"{done.path}: {counts_text(done.counts)}",
        f"{done.count:,} vectors, {done.n_true:,} of them true ones, in {done.wall_s:.1f} s",
    ]
    counts = done.counts
    if not any((counts.added, counts.changed, counts.metadata, counts.deleted)):
        lines.append("nothing that is compared is another, but the old store was written to: all it has went along")
    return "\n".join([*lines, *(f"note: {remark}" for remark in done.remarks)])


def plan_document(job: SyncJob) -> dict[str, Any]:
    """Return what would be done, for programs."""
    estimate = job.estimate()
    counts = asdict(job.changes.counts)
    content = {"path": job.output.display_name, "up_to_date": job.is_current, "dry_run": True, **counts}
    return document("sync", {**content, "tokens": estimate.tokens, "usd": estimate.usd, "remarks": job.remarks})


def synced_document(done: Synced) -> dict[str, Any]:
    """Return what was done, for programs."""
    content = {"path": done.path, "up_to_date": not done.written, "dry_run": False, **asdict(done.counts)}
    return document("sync", {**content, "count": done.count, "true": done.n_true, "remarks": done.remarks})
