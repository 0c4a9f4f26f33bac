"""The decision that an audit supports, the next steps, and a chart of what every option keeps and costs.

Decision and first step say the same: both are of `migrate.audit.options.choose`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from migrate.audit.options import Choice, Option, Step, choose, options_of
from migrate.audit.report import AuditReport
from migrate.audit.results import FULL, PREFIX, STAY
from migrate.audit.verdict import Outcome
from migrate.cost.estimate import dollars
from migrate.report.page import Section, html_sentence, html_table
from migrate.report.svg.frame import Frame, short, text

_MILLION = 1e6
_HIGHEST = 1.5
"""Retention above is drawn at the edge: a bound without limit would flatten everything else."""

_LINE = 15.0


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


def decision_section(report: AuditReport) -> Section | None:
    """The chart of all options, and their figures; None where no cost is known."""
    options = [option for option in options_of(report) if option.cost < float("inf")]
    if len(options) < 2:
        return None
    is_priced = all(option.usd is not None for option in options)
    unit = "usd" if is_priced else "Mtok"
    head = ["option", report.verdict.measured, "bounds", f"{unit} in all", f"{unit} still to pay", "SAFE"]
    rows = [
        [
            option.name,
            f"{option.retention.estimate:.3f}",
            f"{option.retention.lower:.3f}..{option.retention.upper:.3f}",
            f"{_amount(option, is_priced=is_priced):,.4f}",
            _left(option, is_priced=is_priced),
            "yes" if option.is_safe else "",
        ]
        for option in options
    ]
    sentence = decision(report)
    proof = "with what was embedded to prove it" if report.pool is not None else "the reference left aside"
    return Section(
        "Quality and cost",
        f"{f'<p>{html_sentence(sentence)}</p>' if sentence else ''}{_chart(report, options, is_priced=is_priced)}"
        f"<p>Costs are those of the target model for documents. In all is from the first text on, {proof}; still to "
        "pay is what of it is left after this audit. A two-stage option costs more with every query: its figures are "
        f"for {report.verdict.n_queries:,} of them.</p>{html_table([head, *rows])}",
    )


def _left(option: Option, *, is_priced: bool) -> str:
    left = option.usd_left if is_priced else option.tokens_left
    return "-" if left is None else f"{left if is_priced else left / _MILLION:,.4f}"


def _amount(option: Option, *, is_priced: bool) -> float:
    return (option.usd or 0.0) if is_priced else (option.tokens or 0.0) / _MILLION


def _chart(report: AuditReport, options: Sequence[Option], *, is_priced: bool) -> str:
    costs = [_amount(option, is_priced=is_priced) for option in options]
    edges = [min(edge, _HIGHEST) for option in options for edge in (option.retention.lower, option.retention.upper)]
    edges.append(report.verdict.margin)
    pad = 0.06 * (max(edges) - min(edges) or 1.0)
    frame = Frame((0.0, max(costs) or 1.0), (min(edges) - pad, max(edges) + pad), height=380, top=30, right=150)
    unit = "US dollars" if is_priced else "million tokens"
    names = _label_heights(frame, options, costs)
    return frame.drawing(
        "what every option keeps, and what it costs",
        frame.x_axis(f"cost in all, what is paid already included, {unit}", short),
        frame.y_axis(report.verdict.measured),
        frame.level(report.verdict.margin, f"SAFE from {report.verdict.margin:.3g}"),
        *(_point(frame, option, cost, y) for option, cost, y in zip(options, costs, names, strict=True)),
    )


def _label_heights(frame: Frame, options: Sequence[Option], costs: Sequence[float]) -> list[float]:
    """Where each name stands, so that those of options of about one cost do not cover each other."""
    heights: list[float] = [0.0] * len(options)
    order = sorted(range(len(options)), key=lambda place: -options[place].retention.estimate)
    placed: list[tuple[float, float]] = []
    for place in order:
        x, y = frame.at_x(costs[place]), frame.at_y(min(options[place].retention.estimate, _HIGHEST)) + 4
        while any(abs(x - other) < 150 and abs(y - height) < _LINE for other, height in placed):
            y += 1
        heights[place] = y
        placed.append((x, y))
    return heights


def _point(frame: Frame, option: Option, cost: float, name_y: float) -> str:
    colour = "var(--good)" if option.is_safe else "var(--muted)"
    low, middle, high = (
        frame.at_y(min(value, _HIGHEST))
        for value in (option.retention.lower, option.retention.estimate, option.retention.upper)
    )
    x = frame.at_x(cost)
    words = f"{option.name}: {option.retention.estimate:.3f}"
    return (
        f"<g><title>{escape(words)}</title>"
        f'<line x1="{x:g}" x2="{x:g}" y1="{low:g}" y2="{high:g}" style="stroke:{colour}" stroke-width="2"/>'
        f'<circle cx="{x:g}" cy="{middle:g}" r="4.5" style="fill:{colour}"/>'
        f"{text(x + 9, name_y, option.name, bold=option.is_safe)}</g>"
    )
