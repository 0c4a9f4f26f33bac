"""The decision that an audit supports, the next steps, and a chart of what every option keeps and costs.

Decision and first step say the same: both are of `migrate.audit.options.choose`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrate.audit.options import Choice, Option, Step, choose, options_of
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, MEAN, PREFIX, RANDOM, STAY
from migrate.audit.verdict import Bounds, Outcome
from migrate.cost.estimate import dollars
from migrate.report.svg.charts import Interval, Point, cost_chart
from migrate.report.svg.frame import Chart

_MILLION = 1e6
_CONTROLS = (MEAN, RANDOM)


def decision(report: AuditReport) -> str:
    """What to go on with, and what that still costs; empty where nothing is sure."""
    choice = choose(report)
    if choice is None:
        return ""
    option, staying = choice.option, _staying(report)
    if choice.step is Step.STAY:
        return f"stay: the old model answers as well as the new one would ({_kept(option, report)}), and costs nothing"
    others = _others_that_are_safe(report, option)
    if choice.step is Step.REFERENCE:
        return f"use the reference itself: the full re-embed is there, and nothing more is to be paid{others}{staying}"
    if choice.step is Step.BACKFILL:
        return f"make it a full re-embed: every text is embedded already, and in the cache{others}{staying}"
    if choice.step is Step.EMBED:
        return f"{_embedding(report, option)}{staying}"
    full = next(other for other in options_of(report) if other.name == FULL)
    against = f"; a full re-embed would cost {_amount_of(full.usd_left, full.tokens_left)} more" if full.left else ""
    return (
        f"the cheapest option that is SAFE{_provisionally(report)}: `{option.name}` ({_kept(option, report)}; "
        f"{_cost(option)}){against if full.left < float('inf') else ''}{staying}"
    )


def _embedding(report: AuditReport, full: Option) -> str:
    others = [option for option in options_of(report) if option.is_safe and option.name != FULL]
    words = f"embed the whole store again{f', {_cost(full)}' if full.left < float('inf') else ''}"
    if report.verdict.worse_than_stay:
        words = f"stay for now, or {words}"
    if others:
        return f"{words}: `{others[0].name}`, which is SAFE{_provisionally(report)} too, would cost no less"
    shown = "no other option is shown to be" if report.verdict.outcome is Outcome.INCONCLUSIVE else "no other option is"
    return f"{words}: {shown} SAFE"


def _others_that_are_safe(report: AuditReport, chosen: Option) -> str:
    others = [f"`{option.name}`" for option in options_of(report) if option.is_safe and option != chosen]
    return f"; SAFE{_provisionally(report)} too: {', '.join(others)}" if others else ""


def _staying(report: AuditReport) -> str:
    """That staying is as good as the margin asks for, where it is shown to be: it costs nothing."""
    stay = report.comparisons.get(STAY)
    if stay is None or stay.retention.lower < report.verdict.margin:
        return ""
    bounds = stay.retention
    return (
        f"; staying keeps the margin too ({report.verdict.measured} {bounds.estimate:.3f}, at least "
        f"{bounds.lower:.3f}), and costs nothing"
    )


def _provisionally(report: AuditReport) -> str:
    return " (provisional)" if report.verdict.provisional else ""


def _kept(option: Option, report: AuditReport) -> str:
    bounds = option.retention
    return f"{report.verdict.measured} {bounds.estimate:.3f}, at least {bounds.lower:.3f}"


def _cost(option: Option) -> str:
    """What is still to be paid, and what it is in all where that is more."""
    left = f"{_amount_of(option.usd_left, option.tokens_left)} more" if option.left else "nothing more to pay"
    in_all = f", {_amount_of(option.usd, option.tokens)} in all" if option.left < option.cost < float("inf") else ""
    return left + in_all


def _amount_of(usd: float | None, tokens: float | None) -> str:
    return dollars(usd) if usd is not None else f"{(tokens or 0.0) / _MILLION:.2f} Mtok"


def advice(report: AuditReport) -> Iterator[str]:
    """The next steps that the report supports: the first is that of `decision`, others are ways to pay less."""
    verdict, choice = report.verdict, choose(report)
    if report.reference is not None and not report.reference.proven:
        yield _PROVEN_STORE if report.pool else _PROVEN_REFERENCE
    elif verdict.doubts:
        yield "clear up the doubt of the verdict first: while there is one, nothing is SAFE"
        return
    if verdict.lacks_documents:
        yield "embed the whole store again: it is too small to audit, and for a migration to pay off"
        return
    if choice is None:
        yield from ["stay with the source store for now"] if verdict.worse_than_stay else []
        return
    yield _step(choice, report)
    if choice.option.left:
        yield from _cheaper(report, choice)


def _step(choice: Choice, report: AuditReport) -> str:
    verdict, option = report.verdict, choice.option
    if choice.step is Step.STAY:
        return "stay with the source store"
    if choice.step is Step.BACKFILL:
        return (
            "put the true vectors from the cache into the translated store (`backfill STORE --from-cache`): it is a "
            "full re-embed then"
        )
    if choice.step is Step.EMBED and verdict.worse_than_stay:
        return "stay with the source store for now, or embed the whole store again"
    if choice.step is Step.EMBED:
        return "embed the whole store again"
    if _is_budget(choice, report):
        return report.frontier.sentence if report.frontier else ""
    if choice.step is Step.OTHER:
        picked = f"whichever of {len(report.family)} further arms is picked"
        made = ""
        if option.name.startswith(f"{PREFIX}:"):
            made = f"; `embed` with `--prefix {option.name.removeprefix(f'{PREFIX}:')}` makes that store"
        return f"serve by `{option.name}` ({_kept(option, report)} with 95 % confidence, {picked}){made}"
    by = "translated one" if choice.step is Step.TRANSLATED else "full re-embed that it was compared with"
    replacing = f"replace the old store by the {by}, and embed queries with the target model from then on"
    return f"{replacing}; keep the old one until judged queries (--beir) agree" if verdict.provisional else replacing


def _is_budget(choice: Choice, report: AuditReport) -> bool:
    best = report.frontier.cheapest_safe if report.frontier is not None else None
    return best is not None and choice.option.name == best.arm.name


def _cheaper(report: AuditReport, choice: Choice) -> Iterator[str]:
    """What might show that less is enough."""
    verdict = report.verdict
    if verdict.left_to_judge is not None:
        yield _DRAWN_AGAIN
    elif report.frontier is not None:
        yield from [] if _is_budget(choice, report) else [report.frontier.sentence]
    elif report.pool is not None:
        yield "or re-embed a part (`translate --reembed 30%`), and audit what comes of it by a pool"
    else:
        yield (
            "or try what re-embedding a part would keep: `audit` says it with `--frontier`, `--source` and the "
            "`--stitch` of the translation"
        )
    if verdict.outcome is Outcome.INCONCLUSIVE:
        yield from _more_queries(report)


def _more_queries(report: AuditReport) -> Iterator[str]:
    """To judge as many as would settle it, or to grade more of those that were drawn, where that is within reach."""
    verdict = report.verdict
    if verdict.provisional:
        yield "or judge some queries, and audit with --beir"
    needed = verdict.queries_needed
    if needed is None or not verdict.within_reach:
        return
    if verdict.left_to_judge is None:
        yield f"or {'give' if verdict.provisional else 'judge'} about {needed:,} queries"
    else:
        more = needed - verdict.n_queries
        yield f"or grade about {more:,} more of the {verdict.left_to_judge:,} queries that are left in the file"


_DRAWN_AGAIN = (
    "or re-embed a part of the store (`translate --reembed`), and draw queries to judge the new one by (`--judge-next`)"
)
_PROVEN_STORE = "audit a store that says what it was translated for, as `translate` writes it"
_PROVEN_REFERENCE = "build a reference that is beyond doubt: `audit STORE --reference build` embeds every text"


def decision_chart(report: AuditReport) -> Chart | None:
    """What every option, arm and budget keeps, against its cost in all; None where too few costs are known.

    Left out are the controls, and arms that are held against another standard than the full re-embed.
    """
    options = _with_costs(report)
    if len(options) < 2:
        return None
    is_priced = _is_priced(options)
    points = [
        Point(_interval(option.name, option.retention), _amount(option.usd, option.tokens, is_priced=is_priced),
              "good" if option.is_safe else "muted")
        for option in options
    ]  # fmt: skip
    points += _further_points(report, {option.name for option in options}, is_priced=is_priced)
    unit = "US dollars" if is_priced else "million tokens"
    return cost_chart(
        "what every option keeps, and what it costs",
        points,
        margin=report.verdict.margin,
        x_label=f"cost in all, what is paid already included, {unit}",
        y_label=report.verdict.measured,
    )


def _with_costs(report: AuditReport) -> list[Option]:
    return [option for option in options_of(report) if option.cost < float("inf")]


def _is_priced(options: Sequence[Option]) -> bool:
    return all(option.usd is not None for option in options)


def _further_points(report: AuditReport, shown: set[str], *, is_priced: bool) -> Iterator[Point]:
    """Arms that are no options, and the budgets of the frontier."""
    for arm in report.arms:
        comparison = report.comparisons.get(arm.name)
        if comparison is None or comparison.standard != FULL or arm.name in {*shown, *_CONTROLS}:
            continue
        if (arm.usd if is_priced else arm.tokens) is not None:
            cost = _amount(arm.usd, arm.tokens, is_priced=is_priced)
            yield Point(_interval(arm.name, comparison.retention), cost, "other")
    for budget in report.frontier.points if report.frontier is not None else ():
        if not is_priced or budget.price_usd is not None:
            name = f"{budget.share:.0%} re-embedded, chosen by {budget.policy}"
            cost = _amount(budget.price_usd, budget.tokens, is_priced=is_priced)
            yield Point(_interval(name, budget.verdict.retention), cost, "minor")


def _interval(name: str, bounds: Bounds) -> Interval:
    return Interval(name, bounds.lower, bounds.estimate, bounds.upper)


def decision_rows(report: AuditReport) -> list[list[str]]:
    """A head, and one row an option: what it keeps, what it costs in all, and what of that is still to be paid."""
    options = _with_costs(report)
    is_priced = _is_priced(options)
    unit = "usd" if is_priced else "Mtok"
    return [
        ["option", report.verdict.measured, "bounds", f"{unit} in all", f"{unit} still to pay", "SAFE"],
        *(
            [
                option.name,
                f"{option.retention.estimate:.3f}",
                f"{option.retention.lower:.3f}..{option.retention.upper:.3f}",
                f"{_amount(option.usd, option.tokens, is_priced=is_priced):,.4f}",
                _left(option, is_priced=is_priced),
                "yes" if option.is_safe else "",
            ]
            for option in options
        ),
    ]


def _left(option: Option, *, is_priced: bool) -> str:
    left = option.usd_left if is_priced else option.tokens_left
    return "-" if left is None else f"{left if is_priced else left / _MILLION:,.4f}"


def _amount(usd: float | None, tokens: float | None, *, is_priced: bool) -> float:
    return (usd or 0.0) if is_priced else (tokens or 0.0) / _MILLION
