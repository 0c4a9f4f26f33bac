"""An assessment in sections and as JSON."""

from __future__ import annotations

from typing import Any

from migrate.cost import Assessment
from migrate.cost.assess import RETENTION, QualityKept
from migrate.cost.estimate import duration
from migrate.display import percent
from migrate.facts import as_plain, document
from migrate.report.sections import Either, Facts, Listed, Report, TextTable
from migrate.report.terminal import figure_or_dash, price_or_dash


def assess_sections(assessment: Assessment) -> Report:
    """Return the plans side by side, what is known of the store, and which plan is the better deal."""
    sentences = list(assessment.sentences)
    return Report(
        kind="Cost",
        title=f"Moving {assessment.store.name} to {assessment.target.spec}",
        lead=Either(sentences),
        sections={
            "The plans": TextTable(cost_rows(assessment)),
            "The store": Facts(_store_facts(assessment)),
            "How this is known": Listed(assessment.notes),
        },
        closing=sentences,
    )


def _store_facts(assessment: Assessment) -> list[tuple[str, str]]:
    """Return the facts of the store, name by name."""
    count = assessment.count
    store = assessment.store
    target = assessment.target
    about = ""
    if not target.counter.exact:
        about = f"about (within {percent(target.counter.error, 0)}) "
    over = "no limit is known"
    if target.max_tokens is not None:
        over = f"{count.over_limit:,} over the limit of {target.max_tokens:,}"
    rows = [
        ("store", f"{store.location} ({store.kind}, {store.index_type})"),
        ("target", f"{target.spec}, dimension {target.dim or 'not known'} (now {store.dim})"),
        ("documents", f"{count.documents:,}: {count.duplicates:,} duplicates, {count.blank:,} blank, {over}"),
        ("tokens", f"{about}{count.tokens_read:,} to embed each text once; the longest text has {count.longest:,}"),
    ]
    if count.cached:
        rows.append(("cached", f"{count.cached:,} documents of {count.cached_tokens:,} tokens are paid for already"))
    return rows


def cost_rows(assessment: Assessment) -> list[list[str]]:
    """Return a head, and what each plan costs and keeps."""
    rows = [
        [
            plan.name,
            f"{plan.documents:,}",
            f"{plan.tokens:,}",
            figure_or_dash(plan.requests, ","),
            price_or_dash(plan.usd),
            _duration_or_dash(plan.minutes),
            _kept_or_dash(plan.quality),
        ]
        for plan in assessment.plans
    ]
    return [["plan", "documents", "tokens", "requests", "price", "time", "kept"], *rows]


def _duration_or_dash(minutes: float | None) -> str:
    if minutes is None:
        return "-"
    return duration(minutes)


def _kept_or_dash(quality: QualityKept | None) -> str:
    if quality is None:
        return "-"
    return kept_text(quality)


def kept_text(quality: QualityKept) -> str:
    """Return what is kept, with its bounds.

    >>> kept_text(QualityKept("retention", 0.971, 0.95, 0.9904)), kept_text(QualityKept("retention", None, 0.88, 1.13))
    ('97.1 % (95.0-99.0)', '88 to 113 % elsewhere')
    >>> kept_text(QualityKept("retention", 1, 1, 1)), kept_text(QualityKept("agreement@10", 0.91, 0.885, None))
    ('100 %', 'agreement@10 0.910 (0.885-?)')
    """
    # Of other stores: a range, and no figure of this one
    if quality.estimate is None:
        return f"{100 * (quality.lower or 0):.0f} to {percent(quality.upper or 0, 0)} elsewhere"
    if quality.lower == quality.upper == quality.estimate:
        return percent(quality.estimate, 0)
    if quality.measure == RETENTION:
        return f"{percent(quality.estimate)} ({_bound(quality.lower, 100, 1)}-{_bound(quality.upper, 100, 1)})"
    return f"{quality.measure} {quality.estimate:.3f} ({_bound(quality.lower, 1, 3)}-{_bound(quality.upper, 1, 3)})"


def _bound(bound: float | None, factor: int, decimals: int) -> str:
    if bound is None:
        return "?"
    return f"{factor * bound:.{decimals}f}"


def assess_document(assessment: Assessment) -> dict[str, Any]:
    """Return everything an assessment knows, as values that JSON holds."""
    count = assessment.count
    target = assessment.target
    info = assessment.store
    content = {
        "store": {"path": info.location, "format": info.kind, "index_type": info.index_type, "dim": info.dim},
        "target": {
            "spec": target.spec,
            "dim": target.dim,
            "prefix": target.document_prefix,
            "max_tokens": target.max_tokens,
            "price_usd_per_mtok": target.price_usd_per_mtok,
        },
        "tokens": {"source": target.counter.source, "exact": target.counter.exact, "error": target.counter.error},
        "texts": {**as_plain(count), "distinct": count.distinct, "to_embed": count.to_embed},
        "rate": assessment.rate,
        "plans": assessment.plans,
        "full_is_better": assessment.deal.full_is_better,
        "answers": assessment.sentences,
        "notes": assessment.notes,
    }
    return document("assess", content)
