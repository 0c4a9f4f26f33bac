"""What became of a store, and what a sync does or did about it, as text and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from migrate.sync import ChangeCounts, Synced, SyncPlan


def counts_text(counts: ChangeCounts) -> str:
    """The counts as a line."""
    if counts.metadata is None:
        metadata = "metadata goes along, and is not compared between two kinds of stores"
    else:
        metadata = f"{counts.metadata:,} with other metadata alone"
    return (
        f"{counts.added:,} documents added, {counts.changed:,} changed, {counts.deleted:,} deleted, "
        f"{counts.unchanged:,} unchanged; {metadata}"
    )


def plan_text(plan: SyncPlan) -> str:
    """What would be done."""
    if plan.is_current:
        return f"{plan.output.where}: up to date with {plan.old.info.location}"
    will = f"{plan.counts.to_embed:,} would get true vectors" if plan.counts.to_embed else "nothing would be embedded"
    lines = [f"{plan.output.where}: {counts_text(plan.counts)}", will]
    if plan.counts.to_embed:
        lines.append(plan.estimate().sentence)
    return "\n".join([*lines, *(f"note: {remark}" for remark in plan.remarks)])


def synced_text(done: Synced) -> str:
    """What was done, and what could not be kept or compared."""
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


def plan_document(plan: SyncPlan) -> dict[str, Any]:
    """What would be done, for programs."""
    estimate = plan.estimate()
    facts = {"path": str(plan.output.where), "up_to_date": plan.is_current, "dry_run": True, **asdict(plan.counts)}
    return _document({**facts, "tokens": estimate.tokens, "usd": estimate.usd, "remarks": list(plan.remarks)})


def synced_document(done: Synced) -> dict[str, Any]:
    """What was done, for programs."""
    facts = {"path": str(done.path), "up_to_date": not done.written, "dry_run": False, **asdict(done.counts)}
    return _document({**facts, "count": done.count, "true": done.n_true, "remarks": list(done.remarks)})


def _document(facts: dict[str, Any]) -> dict[str, Any]:
    return {"schema_version": 1, "kind": "sync", **facts}
