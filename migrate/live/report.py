"""A live store in sections with its quality and spending over time, as JSON, and as Prometheus has it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

from migrate.audit.unjudged import Limits
from migrate.audit.verdict import margin_remarks
from migrate.cost.estimate import dollars
from migrate.display import percent
from migrate.facts import document
from migrate.live.old_store import MAY_GO
from migrate.live.status import LiveStatus
from migrate.live.worker import WorkerReport
from migrate.report.audit_sections import COLOURS
from migrate.report.page import element, sentence, stamp
from migrate.report.sections import Either, Facts, Report
from migrate.report.svg.charts import Line, line_chart
from migrate.report.svg.frame import Chart, axis_percent
from migrate.report.terminal import wrap
from migrate.version import __version__

_COUNTERS: Final = {
    "queries": "Queries that were answered.",
    "degraded_queries": "Queries that ranked documents by translated vectors.",
    "query_seconds": "Seconds that queries took.",
    "embedded_by_queries": "Documents embedded while a query waited.",
    "embedded_by_worker": "Documents embedded by the worker.",
    "found_in_cache": "True vectors that queries found in the embedding cache.",
    "written_back": "True vectors written into the store.",
    "tokens": "Tokens that were sent to the model.",
    "usd": "US dollars that they cost.",
    "embedder_failures": "Times that the model failed.",
    "embedder_timeouts": "Times that the model was too slow for a query.",
    "refused_documents": "Texts that the model takes no vector of.",
    "old_queries": "Queries that the old store answered too.",
    "old_shown": "Documents among the first ten of an answer that the old store alone has found.",
}


def verdict_sentence(status: LiveStatus) -> str:
    """Return the verdict with its bounds, or what is missing for one."""
    if status.is_all_true:
        return f"{status.outcome}: every vector is the model's own, as in a full re-embed; no query need be scored"
    verdict = status.verdict
    if verdict is None or not verdict.n_queries:
        needed = f", {status.needed:,} more are needed to begin with" if status.needed else ""
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
    refused = f", {status.refused:,} refused by the model" if status.refused else ""
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
    worker, spent = status.worker, status.counters
    cost = f"{spent['tokens']:,.0f} tokens" + (f", {dollars(spent['usd'])}" if spent["usd"] else "")
    paused_since, limits = status.control.paused_since, status.control.limits
    if paused_since is not None:
        state = "the worker is" if status.is_running else "no worker is running, and one that is started is"
        sentence = f"{state} paused since {paused_since}, until `live resume`"
    elif status.is_running:
        sentence = f"the worker is {worker.phase}" + (f": {worker.message}" if worker.message else "")
    elif worker.phase == "none":
        sentence = "no worker has run yet"
    elif worker.phase in ("running", "paused") and not worker.message:
        sentence = "no worker is running: the last one was killed; begin again with `live run`"
    else:
        sentence = f"no worker is running; the last one ended: {worker.message or worker.phase}"
    as_set = f"; {limits} by `live set`" if limits else ""
    return f"{sentence}; spent {cost}{as_set}"


def _old_sentence(status: LiveStatus) -> str | None:
    """Return what the store before the migration still adds, and whether it may be switched off."""
    if status.old is None:
        return None
    return f"the old store adds nothing to true vectors: {MAY_GO}" if status.is_all_true else str(status.old)


def run_text(report: WorkerReport) -> str:
    """Return the end of a run of the worker."""
    refused = f", {report.refused:,} refused" if report.refused else ""
    return wrap(f"{report.phase}: {report.message}; {report.true:,} of {report.count:,} vectors are true ones{refused}")


def status_document(status: LiveStatus) -> dict[str, Any]:
    """Return the status for programs."""
    worker = {name: getattr(status.worker, name) for name in ("phase", "pid", "spent_usd", "message", "updated")}
    entry = {
        "path": status.location,
        "outcome": status.outcome,
        "verdict": status.verdict,
        "count": status.count,
        "true": status.true,
        "queued": status.queued,
        "refused": status.refused,
        "running": status.is_running,
        "worker": worker,
        "counters": status.counters,
    }
    if status.control.paused_since is not None:
        entry["paused_since"] = status.control.paused_since
    if status.old is not None:
        entry["old"] = {"share": status.old.share, "queries": status.old.queries, "needed": status.is_old_needed}
    return document("live status", entry)


def metrics_text(status: LiveStatus) -> str:
    """Return the status in the text format of Prometheus, version 0.0.4."""
    lines: list[str] = []

    def add(name: str, kind: str, about: str, *samples: tuple[str, float]) -> None:
        full = f"lead_migrate_live_{name}"
        lines.extend([f"# HELP {full} {about}", f"# TYPE {full} {kind}"])
        lines.extend(f"{full}{{{_labels(store=status.location)}{more}}} {number!r}" for more, number in samples)

    for counter, about in _COUNTERS.items():
        add(f"{counter}_total", "counter", about, ("", float(status.counters[counter])))  # type: ignore[index]
    add("documents", "gauge", "Documents of the store.", ("", float(status.count)))
    if status.true is not None:
        add("true_documents", "gauge", "Documents with true vectors in the store.", ("", float(status.true)))
    add("queued_documents", "gauge", "Documents that were asked for and are not true.", ("", float(status.queued)))
    add("worker_running", "gauge", "1 while a worker runs.", ("", float(status.is_running)))
    verdict = status.verdict
    outcomes = [(f',outcome="{name}"', float(name == status.outcome)) for name in ("SAFE", "NOT SAFE", "INCONCLUSIVE")]
    add("verdict", "gauge", "1 for the verdict of now.", *outcomes)
    if verdict is not None and verdict.n_queries:
        add("scored_queries", "gauge", "Sampled queries of this epoch.", ("", float(verdict.n_queries)))
        add("scored_kinds", "gauge", "Kinds of queries among them.", ("", float(verdict.n_groups)))
        sides = [(f',bound="{side}"', float(getattr(verdict, side))) for side in ("lower", "likely", "mean", "upper")]
        add("agreement", "gauge", "Agreement@10 with a full re-embed, and its bounds at all looks.", *sides)
    return "\n".join(lines) + "\n"


def _labels(**labels: str) -> str:
    def escaped(value: str) -> str:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    return ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())


def status_sections(status: LiveStatus) -> Report:
    """Return the verdict, what is true, what the worker does, and charts of quality and spending over time."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    verdict = verdict_sentence(status)
    mark = stamp(status.outcome, COLOURS[status.outcome])
    lines = [_true_sentence(status), _worker_sentence(status), *filter(None, [_old_sentence(status)])]
    counters = [(about.rstrip("."), _number(status.counters[name])) for name, about in _COUNTERS.items()]  # type: ignore[index]
    charts = [chart.figure() for chart in (_quality(status), _progress(status), _spending(status)) if chart is not None]
    return Report(
        kind=f"lead-migrate live, {status.location}",
        title=f"What is served is {status.outcome}",
        lead=Either(
            [element("p", mark, " ", sentence(verdict.partition(": ")[2]), class_="lead"), lines],
            [verdict, *lines, _queries_sentences(status)],
        ),
        sections={"Quality and spending over time": charts or None, "Counters": Either(Facts(counters))},
        footer=f"lead-migrate {__version__}, {now}",
    )


def _queries_sentences(status: LiveStatus) -> list[str]:
    counters = status.counters
    if not counters["queries"]:
        return []
    return [
        f"{counters['queries']:,.0f} queries, {counters['degraded_queries'] / counters['queries']:.1%} of them ranked "
        f"by some translated vectors; {counters['embedded_by_queries']:,.0f} documents embedded while they waited"
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def _hours(status: LiveStatus, *names: str) -> list[tuple[float, Mapping[str, Any]]]:
    """Return the notes that have these facts, in hours since the first note; thinned to some sixty."""
    history = [((at - status.history[0][0]) / 3600, entry) for at, entry in status.history]
    complete = [(hours, entry) for hours, entry in history if all(name in entry for name in names)]
    return [*complete[: -1 : max(len(complete) // 60, 1)], *complete[-1:]]


def _quality(status: LiveStatus) -> Chart | None:
    history = _hours(status, "mean", "lower", "upper")
    if not history or status.verdict is None:
        return None
    points = [(hours, float(entry["mean"])) for hours, entry in history]
    bounds = [(float(entry["lower"]), float(entry["upper"])) for _, entry in history]
    line = Line("agreement in the pool, between its bounds", points, bounds)
    return line_chart(
        "quality over time",
        [line],
        x_label="hours",
        y_label="agreement@10, between its bounds",
        level=status.verdict.safe,
        level_label=f"SAFE needs at least {status.verdict.safe:.3f}",
    )


def _progress(status: LiveStatus) -> Chart | None:
    points = [(hours, entry["true"] / max(entry["count"], 1)) for hours, entry in _hours(status, "true", "count")]
    if not points:
        return None
    line = Line("true vectors", points)
    return line_chart("true vectors over time", [line], x_label="hours", y_label="true vectors", y_form=axis_percent)


def _spending(status: LiveStatus) -> Chart | None:
    history = _hours(status, "tokens", "usd")
    if not history:
        return None
    name = "usd" if any(entry["usd"] for _, entry in history) else "tokens"
    line = Line(name, [(hours, float(entry[name])) for hours, entry in history])
    label = "US dollars spent by the worker" if name == "usd" else "tokens sent by the worker"
    return line_chart("spending over time", [line], x_label="hours", y_label=label)
