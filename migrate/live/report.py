"""A live store in sentences, the verdict first, and as JSON."""

from __future__ import annotations

from typing import Any

from migrate.audit.unjudged import Limits
from migrate.audit.verdict import margin_remarks
from migrate.display import dollars, percent
from migrate.facts import document
from migrate.live.control import as_iso
from migrate.live.status import LiveStatus
from migrate.live.worker import WorkerReport
from migrate.report.terminal import as_text, wrap


def verdict_sentence(status: LiveStatus) -> str:
    """Return the verdict with its bounds, or what is missing for one."""
    if status.is_all_true:
        return f"{status.outcome}: every vector is the model's own, as in a full re-embed; no query need be scored"
    verdict = status.verdict
    if verdict is None or not verdict.n_queries:
        needed = ""
        if status.needed:
            needed = f", {status.needed:,} more are needed to begin with"
        waiting = 0 if verdict is None else verdict.waiting
        return f"INCONCLUSIVE: no sampled query was scored yet ({waiting:,} wait{needed})"
    span = f"agreement@10 {verdict.likely:.3f} to {verdict.mean:.3f} over {verdict.n_queries:,} sampled queries"
    span += f" of {verdict.n_groups:,} kinds" if verdict.n_groups < verdict.n_queries else ""
    bounds = f"95 % bounds at all looks: {verdict.lower:.3f}-{verdict.upper:.3f}"
    why = {
        "SAFE": f"at least {verdict.safe:.3f}, which stands for a retention of {100 * verdict.margin:g} %",
        "NOT SAFE": f"below {verdict.harmful:.3f}, which stands for a retention below {100 * verdict.margin:g} %",
    }
    tail = why.get(str(verdict.outcome), Limits(verdict.safe, verdict.harmful).sentence)
    remarks = "".join(f"; {remark}" for remark in margin_remarks(verdict.margin, verdict.margin_from))
    return f"{verdict.outcome}: {span} ({bounds}), {tail}{remarks}"


def _true_sentence(status: LiveStatus) -> str:
    refused = ""
    if status.refused:
        refused = f", {status.refused:,} refused by the model"
    if status.true is None or (share := status.share) is None:
        return (
            "another store is there than the one that was served and worked at: which vectors are true ones is known "
            "once `live run` or a searcher has opened it"
        )
    return (
        f"{status.true:,} of {status.count:,} vectors are true ones ({percent(share)}){refused}; "
        f"{status.queued:,} more were asked for"
    )


def _worker_sentence(status: LiveStatus) -> str:
    worker = status.worker
    spent = status.counters
    cost = f"{spent['tokens']:,.0f} tokens" + (f", {dollars(spent['usd'])}" if spent["usd"] else "")
    paused_since = as_iso(status.paused_at)
    if paused_since is not None:
        state = "no worker is running, and one that is started is"
        if status.is_running:
            state = "the worker is"
        sentence = f"{state} paused since {paused_since}, until `live resume`"
    elif status.is_running:
        sentence = f"the worker is {worker.phase}" + (f": {worker.message}" if worker.message else "")
    elif worker.phase == "none":
        sentence = "no worker has run yet"
    elif worker.phase in ("running", "paused") and not worker.message:
        sentence = "no worker is running: the last one was killed; begin again with `live run`"
    else:
        sentence = f"no worker is running; the last one ended: {worker.message or worker.phase}"
    return f"{sentence}; spent {cost}"


def _queries_sentences(status: LiveStatus) -> list[str]:
    counters = status.counters
    if not counters["queries"]:
        return []
    return [
        f"{counters['queries']:,.0f} queries, {counters['degraded_queries'] / counters['queries']:.1%} of them ranked "
        f"by some translated vectors; {counters['embedded_by_queries']:,.0f} documents embedded while they waited"
    ]


def run_text(report: WorkerReport) -> str:
    """Return the end of a run of the worker."""
    refused = ""
    if report.refused:
        refused = f", {report.refused:,} refused"
    return wrap(f"{report.phase}: {report.message}; {report.true:,} of {report.count:,} vectors are true ones{refused}")


def status_text(status: LiveStatus) -> str:
    """Return the verdict, what is true, what the worker does, and what was asked, as lines."""
    return as_text(
        [
            verdict_sentence(status),
            _true_sentence(status),
            _worker_sentence(status),
            *_queries_sentences(status),
        ]
    )


def status_document(status: LiveStatus) -> dict[str, Any]:
    """Return the status for programs."""
    entry = {
        "path": status.location,
        "outcome": status.outcome,
        "verdict": status.verdict,
        "count": status.count,
        "true": status.true,
        "queued": status.queued,
        "refused": status.refused,
        "running": status.is_running,
        "worker": status.worker,
        "counters": status.counters,
    }
    if status.paused_at is not None:
        entry["paused_since"] = as_iso(status.paused_at)
    return document("live status", entry)
