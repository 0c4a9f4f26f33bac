"""The worth of translated vectors to trained models, in words, in sections and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from migrate.audit.bounds import Outcome
from migrate.audit.verdict import margin_remarks
from migrate.display import percent
from migrate.facts import as_plain, document
from migrate.lab.labels.judge import DownstreamAudit, KeptTask
from migrate.lab.labels.roc import Bounded
from migrate.report.sections import Block, TextTable
from migrate.report.suite import STATES, Case, Suite, as_markdown, heading_of


def downstream_blocks(audit: DownstreamAudit) -> list[Block]:
    """Return a table of the tasks, and what it rests on."""
    return [TextTable(downstream_rows(audit)), *downstream_sentences(audit)]


def downstream_rows(audit: DownstreamAudit) -> list[list[str]]:
    """Return a head, and a row a task: right answers by true and by translated vectors, and what is kept of them."""
    head = ["trained on true vectors", "documents", "true", "translated", "kept", "at least", "at most", "outcome"]
    return [head, *(_row(task) for task in audit.tasks)]


def _row(task: KeptTask) -> list[str]:
    right = [f"{share:.3f}" for share in (task.true, task.translated)]
    kept = [percent(share) for share in (task.bounds.estimate, task.bounds.lower, task.bounds.upper)]
    return [task.task, f"{task.judged_on:,}", *right, *kept, task.outcome.value]


def downstream_sentences(audit: DownstreamAudit) -> Iterator[str]:
    """Yield the remarks on the table, the outcome last."""
    yield (
        f"{audit.labels} labels, trained on {audit.trained_on:,} documents and judged on others, each label "
        f"counting for the same; {percent(audit.majority)} of these have the most frequent one"
    )
    if audit.left_out:
        yield f"{audit.left_out:,} labelled documents with true vectors in the translated store judge nothing"
    if audit.outside_true is not None and audit.outside_translated is not None:
        yield (
            f"documents from outside are told from the others with an AUC of {_area(audit.outside_true)} by true "
            f"vectors, and {_area(audit.outside_translated)} by translated ones"
        )
    yield from (f"{task.task}: {task.doubt}" for task in audit.tasks if task.doubt)
    yield from (f"doubt: {doubt}" for doubt in audit.doubts)
    yield from (f"caveat: {remark}" for remark in margin_remarks(audit.margin, audit.margin_from))
    yield downstream_sentence(audit)


def _area(area: Bounded) -> str:
    return f"{area.estimate:.3f} (at least {area.lower:.3f})"


def downstream_sentence(audit: DownstreamAudit) -> str:
    """Return the outcome, and the task that decides it."""
    worst = min(audit.tasks, key=_rank)
    if audit.outcome is Outcome.SAFE:
        least = min(task.bounds.lower for task in audit.tasks)
        needed = f"{100 * audit.margin:g} %"
        return f"SAFE for what was trained: every task keeps at least {percent(least)}; SAFE needs {needed}"
    if audit.outcome is Outcome.INCONCLUSIVE and audit.doubts and worst.outcome is Outcome.SAFE:
        return "INCONCLUSIVE for what was trained: the reference is not proven to be one"
    return f"{audit.outcome} for what was trained: {task_sentence(worst)}"


def _rank(task: KeptTask) -> tuple[int, float]:
    order = [Outcome.NOT_SAFE, Outcome.INCONCLUSIVE, Outcome.SAFE]
    return order.index(task.outcome), task.bounds.lower


def task_sentence(task: KeptTask) -> str:
    """Return the share of a task that is kept, or why that cannot be said."""
    if task.doubt is not None:
        return f"{task.task}: {task.doubt}"
    bounds = task.bounds
    span = f"{100 * bounds.lower:.1f}-{percent(bounds.upper)}"
    return f"{task.task} keeps {percent(bounds.estimate)} (95 % bounds: {span})"


def downstream_facts(audit: DownstreamAudit) -> dict[str, Any]:
    """Return the same as JSON."""
    return {"outcome": audit.outcome.value, "sentence": downstream_sentence(audit), **as_plain(audit)}


def downstream_document(audit: DownstreamAudit) -> dict[str, Any]:
    """Return a document of its own."""
    caveats = list(margin_remarks(audit.margin, audit.margin_from))
    return document("labels", {"caveats": caveats, **downstream_facts(audit)})


def downstream_cases(audit: DownstreamAudit) -> list[Case]:
    """Return a case a task for what trained models keep."""
    return [Case(task.task, STATES[task.outcome], task_sentence(task)) for task in audit.tasks]


def downstream_suite(audit: DownstreamAudit, store: str) -> Suite:
    """Return the tasks of trained models alone, as cases."""
    remarks = "; ".join(margin_remarks(audit.margin, audit.margin_from))
    properties = {"margin": f"{audit.margin:g}"}
    if remarks:
        properties["caveat"] = remarks
    heading = f"{heading_of(STATES[audit.outcome], store)} {downstream_sentence(audit)}"
    markdown = f"{heading}\n\n{as_markdown(TextTable(downstream_rows(audit)), remarks or None)}\n"
    cases = [
        replace(case, title=f"{task.outcome}: {store}, {task.task}")
        for case, task in zip(downstream_cases(audit), audit.tasks, strict=True)
    ]
    return Suite("lead-migrate labels", "labels", cases, markdown, properties, store)
