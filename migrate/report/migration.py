"""A whole migration in sections: what was moved, what it cost, and what it would take where it is not SAFE."""

from __future__ import annotations

from collections.abc import Iterator

from migrate.audit_report.names import FULL, TRANSLATED
from migrate.audit_report.records import ReportedAudit, ReportedMigration
from migrate.cost.estimate import duration
from migrate.manifest import ModelIdentity
from migrate.outcome import Outcome
from migrate.report.sections import Block, Facts, Heading, Listed, Note, TextTable
from migrate.report.summary import still_to_pay
from migrate.report.terminal import figure_or_dash, filled_columns, price_or_dash


def what_it_would_take(audit: ReportedAudit) -> Block:
    """Return the ways to a SAFE store; nothing where it is SAFE already, or where no run made it."""
    if audit.migration is None or audit.plan.outcome is Outcome.SAFE:
        return None
    return list(_ways(audit))


def _ways(audit: ReportedAudit) -> Iterator[Block]:
    verdict = audit.verdict
    # A doubt is of the audit as a whole, by which nothing is SAFE
    if verdict.doubts:
        yield "before anything is SAFE, clear up"
        yield Listed(verdict.doubts)
        return
    if verdict.queries_needed is not None:
        yield (
            f"about {verdict.queries_needed:,} queries like these, in place of {verdict.queries:,}, would settle 8 of "
            "10 audits like this one"
        )
    safe = [option for option in audit.options if option.is_safe]
    if not safe:
        yield "no way to go on is shown to be SAFE"
        return
    yield "each of these is SAFE by the same queries"
    rows = [[option.name, audit.verdict.figure(option.retention.lower), still_to_pay(option)] for option in safe]
    yield TextTable([["way", "at least", "to pay"], *rows])


def what_was_moved(audit: ReportedAudit) -> Block:
    """Return the stores, the models and the costs of a run; nothing where no run made the store."""
    if audit.migration is None:
        return None
    return [Facts(list(_names(audit, audit.migration))), Heading("What it cost"), *_costs(audit, audit.migration)]


def _names(audit: ReportedAudit, migration: ReportedMigration) -> Iterator[tuple[str, str]]:
    manifest = audit.manifest
    yield "old store", migration.source
    yield "old model", _model(manifest.source_model)
    yield "new store", audit.store
    yield "new model", _model(manifest.model)


def _model(model: ModelIdentity | None) -> str:
    if model is None:
        return "not named (--source-model)"
    return f"{model.spec}, {model.dim:,} dimensions"


def _costs(audit: ReportedAudit, migration: ReportedMigration) -> Iterator[Block]:
    options = {option.name: option for option in audit.options}
    rows = [["what", "tokens", "price", "time"]]
    for spending in migration.spending:
        rows.append([f"estimated, {spending.model}", *_cost(spending.estimated_tokens, spending.estimated_usd)])
        rows.append([f"spent, {spending.model}", *_cost(spending.tokens, spending.usd)])
    if TRANSLATED in options:
        option = options[TRANSLATED]
        rows.append(["documents embedded in all", *_cost(option.tokens, option.usd)])
    if FULL in options:
        option = options[FULL]
        rows.append(["full re-embed from the start", *_cost(option.tokens, option.usd)])
        left = _cost(option.tokens_left, option.usd_left, option.seconds_left)
        rows.append(["full re-embed from here", *left])
    if not migration.spending:
        yield "no model of this run costs money"
    yield TextTable(filled_columns(rows), text_columns=[0])
    yield Note(_counted_in(audit))
    if migration.is_continued and migration.spending:
        yield Note(
            "this run continued an earlier one: `spent` is what its last attempt cost, and what earlier attempts had "
            "embedded is not in it"
        )


def _counted_in(audit: ReportedAudit) -> str:
    """Return what is counted as embedded in all."""
    if audit.pool is None:
        return "embedded in all: the sample of the fit, without the full re-embed that the new store was compared with"
    return "embedded in all: the sample of the fit and the pool of the audit, with what was in the cache before"


def _cost(tokens: float | None, usd: float | None, seconds: float | None = None) -> list[str]:
    """Return the cells of a cost; a dash for what is not known."""
    time = "-"
    if seconds is not None:
        time = duration(seconds / 60)
    return [figure_or_dash(tokens, ",.0f"), price_or_dash(usd), time]
