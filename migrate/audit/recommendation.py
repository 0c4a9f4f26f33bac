"""The recommendation of an audit: the cheapest way on that is SAFE, its quality and cost, and the command for it.

The verdict is on the translated store alone; this is on every way that the audit has looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from migrate.audit.options import Option, is_whole, options_of
from migrate.audit.report import AuditReport
from migrate.audit.results import BRIDGE, FULL, PREFIX, REEMBEDDED, STAY, TRANSLATED, TWO_STAGE, plan_word
from migrate.audit.verdict import Bounds, Finding, Outcome
from migrate.cost.answers import is_small
from migrate.cost.estimate import dollars, duration
from migrate.embedders.kinds import may_cost_money, prefix_spec
from migrate.files import free_path

_REEMBED = REEMBEDDED.removesuffix("k%")
_SERVER = "--base-url="
_MANY_TIMES = 2.0
_NEARLY_NOTHING = 0.05
"""Share of a full re-embed that is not worth serving in two stages to put off."""

_BUILT = "a reference that is built now is beyond doubt: `audit` with --reference build"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The way to go on with, and the one command that does it.

    Attributes
    ----------
    plan
        `stay`, `translated`, `two-stage 20`, `reembed 30%`, `full re-embed` or another arm; None where nothing is sure.
    headline
        The plan, what it keeps, what staying and the translated store keep beside it: one sentence.
    retention
        What the plan keeps, with bounds; None without a plan.
    left_usd, left_seconds, left_tokens
        What it still costs: dollars where there is a price, seconds where the model's rate was measured, tokens; None
        where it is not known.
    command
        Words to type after the program's name; None where there is nothing to do, or no command does it.
    serving
        Lines of Python that serve a plan which is more than a store.
    remark
        What else is to be done, or to be known; empty for nothing.
    """

    plan: str | None
    headline: str
    retention: Bounds | None = None
    left_usd: float | None = None
    left_seconds: float | None = None
    left_tokens: float | None = None
    command: tuple[str, ...] | None = None
    serving: tuple[str, ...] = ()
    remark: str = ""

    @property
    def left(self) -> str:
        """The cost that is left, in words; empty where that is not known."""
        return _amount(self.left_usd, self.left_seconds, self.left_tokens)


def recommend(report: AuditReport) -> Recommendation:
    """Stay where the old store answers as well as a full re-embed; else what is SAFE and leaves least to pay.

    Of ways that leave as much to pay, two stages before a full re-embed, unless that costs next to nothing, then the
    one that is sure to keep most. With a doubt nothing is recommended but staying, which changes nothing.
    """
    odd = next((finding for finding in report.findings if finding.level == "doubt"), None)
    stay = report.comparisons.get(STAY)
    if odd is not None and (stay is None or stay.retention.lower < 1):
        command, remark = _clear_up(odd, report)
        headline = f"nothing is shown to be SAFE; clear up first: {odd.text}"
        return Recommendation(plan=None, headline=headline, command=command, remark=remark)
    option = _best(report)
    command, remark = _command(option, report)
    remark = remark if odd is None else f"not to be believed of the new store: {odd.text}"
    paid = option if report.places.can_serve or not option.name.startswith(TWO_STAGE) else _full_of(report)
    seconds = _seconds(paid, report)
    left = _amount(paid.usd_left, seconds, paid.tokens_left)
    return Recommendation(
        plan=option.name.replace(_REEMBED, "reembed "),
        headline="; ".join([_lead(option, report, left), *_others(option, report)]),
        retention=option.retention,
        left_usd=paid.usd_left,
        left_seconds=seconds,
        left_tokens=paid.tokens_left,
        command=command,
        serving=_serving(option, report),
        remark=remark,
    )


def _best(report: AuditReport) -> Option:
    options = {option.name: option for option in options_of(report)}
    if report.verdict.lacks_documents:
        return options[FULL]
    if report.plan != TRANSLATED and report.outcome is Outcome.SAFE:
        return options[report.plan]  # it was asked for
    if STAY in options and options[STAY].retention.lower >= 1:
        return options[STAY]
    safe = [option for option in options.values() if option.is_safe and option.name != STAY]
    if is_whole(report):
        safe = [option for option in safe if option.name != FULL] or [options[TRANSLATED]]
    # of two stages that cost the same now, the shallower one costs less with every new query
    best = min(
        safe, key=lambda option: (option.left, _is_work(option, report), _depth(option), -option.retention.lower)
    )
    return options[FULL] if best.name.startswith(TWO_STAGE) and _is_nearly_done(options[FULL], report) else best


def _depth(option: Option) -> int:
    """Return how many documents of a query are embedded while it is served."""
    return int(option.name.removeprefix(f"{TWO_STAGE} ")) if option.name.startswith(TWO_STAGE) else 0


def _is_nearly_done(full: Option, report: AuditReport) -> bool:
    """Return whether next to nothing of a full re-embed is left, by tokens where nobody knows what they cost."""
    is_weighed = full.usd_left is not None or _seconds(full, report) is not None
    return not is_weighed and full.left <= _NEARLY_NOTHING * full.cost


def _full_of(report: AuditReport) -> Option:
    return next(option for option in options_of(report) if option.name == FULL)


def _is_work(option: Option, report: AuditReport) -> bool:
    """Return whether it is a full re-embed that costs something: two stages of that cost serve before it is paid."""
    seconds = _seconds(option, report)
    is_free = not option.left or is_small(option.usd_left, None if seconds is None else seconds / 60)
    return option.name == FULL and not is_free


def _amount(usd: float | None, seconds: float | None, tokens: float | None) -> str:
    known = [amount for amount in (usd, seconds, tokens) if amount is not None]
    if not any(known):
        return "nothing" if known else ""
    if usd is not None:
        return dollars(usd)
    return f"{(tokens or 0) / 1e6:.2f}M tokens" if seconds is None else duration(seconds / 60)


def _seconds(option: Option, report: AuditReport) -> float | None:
    """Return how long the model takes for what is left, as fast as it was; documents are taken to be alike."""
    full = report.arm(FULL).tokens
    if report.documents_per_s is None or option.tokens_left is None or not full:
        return None
    count = report.stores.get(TRANSLATED, {}).get("count", report.n_documents)
    return float(option.tokens_left / full * count / report.documents_per_s)


def _lead(option: Option, report: AuditReport, left: str) -> str:
    """The plan, what it keeps and what is still to be paid."""
    safe = "SAFE (provisional)" if report.verdict.provisional else "SAFE"
    kept = _kept(option.retention, report)
    more = {"": "", "nothing": ", nothing more to pay"}.get(left, f", {left} more")
    if option.name == STAY:
        of_full = "" if option.retention.estimate >= _MANY_TIMES else " of what a full re-embed would answer"
        return f"stay: the old store {kept}{of_full}, and costs nothing"
    if option.name == FULL:
        return _full(option, report, more)
    if option.name == TRANSLATED and is_whole(report):
        return "the store is a full re-embed itself: every vector is the model's own"
    if option.name.startswith(TWO_STAGE):
        depth = _depth(option)
        if not report.places.can_serve:
            at_hand = f" ({left})" if left else ""
            return (
                f"{safe} in two stages, the first {depth} ranked again by true vectors: {kept}; the model's vectors "
                f"are all at hand, so a full re-embed{at_hand} is as good"
            )
        for_queries = f"{more} for as many queries" if left not in ("", "nothing") else more
        return f"{safe} in two stages, the first {depth} ranked again by true vectors: {kept}{for_queries}"
    if option.name.startswith(_REEMBED):
        return f"{safe} with {option.name.removeprefix(_REEMBED)} re-embedded: {kept}{more}"
    if option.name.startswith(PREFIX):
        return f"{safe} by the first {option.name.removeprefix(f'{PREFIX}:')} tokens of each text: {kept}{more}"
    what = "the translated store" if option.name == TRANSLATED else f"the {option.name}"
    return f"{safe}: {what} {kept}{more}"


def _full(full: Option, report: AuditReport, more: str) -> str:
    if report.verdict.lacks_documents:
        return f"re-embed{more}: the store is too small to audit, and for a migration to pay off"
    if report.reference_at is not None:
        return f"SAFE: the full re-embed that this was compared with is there{more}"
    if report.is_kept and not full.left:
        return f"re-embed: every text is in the embedding cache{more}"
    others = [one.name for one in options_of(report) if one.is_safe and one.name not in (FULL, STAY)]
    if others:
        return f"re-embed{more}: {others[0]} is SAFE too, and costs no less"
    return f"re-embed{more}: no other way is shown to be SAFE"


def _others(option: Option, report: AuditReport) -> list[str]:
    """Return what staying and the translated store keep, where they are not the plan itself."""
    said, verdict = [], report.verdict
    stay = report.comparisons.get(STAY)
    if stay is not None and option.name != STAY:
        is_enough = stay.retention.lower >= verdict.margin
        kept = _kept(stay.retention, report, with_bound=is_enough)
        said.append(f"staying {kept}{' and costs nothing' if is_enough else ''}")
    if option.name != TRANSLATED and not is_whole(report):
        said.append(f"translated alone {_kept(verdict.retention, report, with_bound=False)}, {report.outcome_of()}")
    return said


def _kept(bounds: Bounds, report: AuditReport, *, with_bound: bool = True) -> str:
    if report.verdict.provisional:
        least = f" (at least {bounds.lower:.3f})" if with_bound else ""
        return f"has {report.verdict.measured} {bounds.estimate:.3f}{least}"
    if bounds.estimate >= _MANY_TIMES:  # of a standard that hardly finds anything, percentages are no words for it
        least = f" (at least {bounds.lower:.3g} times)" if with_bound else ""
        return f"scores {bounds.estimate:.3g} times what a full re-embed does{least}"
    least = f" (at least {100 * bounds.lower:.1f} %)" if with_bound else ""
    return f"keeps {100 * bounds.estimate:.1f} %{least}"


def _command(option: Option, report: AuditReport) -> tuple[tuple[str, ...] | None, str]:
    """The command for an option, and what it leaves to do."""
    places = report.places
    if option.name == STAY or not places.translated:
        return None, ""
    if option.name == TRANSLATED:
        return _switch(places.translated, report, needs_proof=not is_whole(report))
    if option.name == FULL and report.reference_at is not None:
        return _switch(report.reference_at, report, needs_proof=False)
    if option.name.startswith(TWO_STAGE):
        if report.plan == option.name:
            return _switch(places.translated, report, needs_proof=True)
        if not places.can_serve:
            return _reembed(_full_of(report), report)
        limit = worker_limit(places.target[1]) if len(places.target) > 1 else ()
        model = (word for word in places.model if word != "--cache=none")  # `live` wants to keep what it embeds
        return ("live", "run", places.translated, *model, *limit), _two_stage_remark(option, report)
    if option.name == BRIDGE:
        return None, "the old store is asked by queries that the stitch of --bridge maps back"
    return _reembed(option, report)


def _reembed(option: Option, report: AuditReport) -> tuple[tuple[str, ...] | None, str]:
    """The command that embeds the whole store, a part of it, or the first tokens of all texts."""
    places = report.places
    old = places.translated if places.source is None else places.source
    if not places.target:
        return None, ""
    if not places.has_texts:
        return ("inspect", old), "the store has no texts to embed: `inspect` says how to give it some"
    part: tuple[str, ...] = ()
    flag, spec, *others = places.target
    if option.name.startswith(_REEMBED):
        if places.stitch is None:
            return None, "a part is re-embedded with the stitch of the translation"
        part = ("--share", option.name.removeprefix(_REEMBED), "--stitch", places.stitch)
    if option.name.startswith(PREFIX):
        spec = prefix_spec(int(option.name.removeprefix(f"{PREFIX}:")), spec)
    return ("reembed", old, *part, flag, spec, *others, "-o", places.full), ""


def _switch(new: str, report: AuditReport, *, needs_proof: bool) -> tuple[tuple[str, ...] | None, str]:
    """The command by which a store answers under the old name, or that which leaves the proof for it."""
    places = report.places
    model = "" if len(places.target) < 2 else f", and embed queries with {places.target[1]}"
    if places.source is not None and places.server is not None and places.stitch is not None:
        remark = f"{new} lies in files: this writes it to the server of {places.source}"
        return ("translate", places.source, places.stitch, "-o", places.server), remark
    if places.source is None or not places.can_switch:
        return None, f"let your programs open {new}{model}"
    words = ("switch", places.source, new)
    if not needs_proof:
        return words, ""
    if report.verdict.provisional:
        return (*words, "--unproven"), "nothing is judged: keep the old store until judged queries (--beir) agree"
    if places.report is not None:
        return (*words, "--report", places.report), ""
    if places.again:
        return places.again, "`switch` wants the report of the audit: the same again with --report keeps it"
    return None, "`switch` wants the report of the audit: keep it as JSON"


def worker_limit(spec: str) -> tuple[str, ...]:
    """Return how far the worker of `live run` may go, which it wants to be told of a model that may cost money."""
    return ("--budget=100%",) if may_cost_money(spec) else ()


def _two_stage_remark(option: Option, report: AuditReport) -> str:
    places, remarks = report.places, []
    if len(places.target) > 1 and worker_limit(places.target[1]):
        full = _full_of(report)
        left = _amount(full.usd_left, None, full.tokens_left)
        amount = f", {left} in all" if left else ""
        remarks.append(f"the worker embeds the whole store in the end{amount}; a smaller --budget ends it before")
    if not report.verdict.provisional and places.can_switch:
        again = f"--plan {plan_word(option.name)}{'' if places.report else ' --report FILE'}"
        remarks.append(
            f"`switch` takes the store too, if it is served like this: the same again with {again} is the proof"
        )
    return "; ".join(remarks)


def _serving(option: Option, report: AuditReport) -> tuple[str, ...]:
    """Lines that serve two stages as the audit ranks them: all of the first documents by their true vectors."""
    places = report.places
    if not option.name.startswith(TWO_STAGE) or not places.translated or not places.can_serve:
        return ()
    switched = report.plan == option.name and places.can_switch and places.source is not None
    location = places.source if switched and places.source is not None else places.translated
    depth = _depth(option)
    servers = [word.removeprefix(_SERVER) for word in places.target if word.startswith(_SERVER)]
    if servers:
        return serving_lines(location, depth, places.target[1], server=servers[0])
    return serving_lines(location, depth, places.model[1] if places.model[:1] == ("--target",) else None)


def serving_lines(location: str, depth: int, spec: str | None = None, *, server: str | None = None) -> tuple[str, ...]:
    """Return lines of Python that serve a store in two stages, by its own model or by that of a spec and a server."""
    model = repr(spec) if server is None else f"load_embedder({spec!r}, base_url={server!r})"
    named = repr(location) if spec is None else f"{location!r}, {model}"
    return (
        f"from migrate import LiveLimits, LiveSearcher{'' if server is None else ', load_embedder'}",
        f"searcher = LiveSearcher({named}, limits=LiveLimits(depth={depth}, max_documents={depth}, max_ms=60_000))",
        'answer = searcher.search("a question", k=10)',
    )


def _clear_up(odd: Finding, report: AuditReport) -> tuple[tuple[str, ...] | None, str]:
    """Return the command that takes a doubt away: the same audit with another input, or what makes that input."""
    places, about = report.places, odd.about
    again, old = places.again, places.translated if places.source is None else places.source
    if about == "reference" and not places.has_texts:
        return ("inspect", old) if old else None, f"{_BUILT}, for which the store needs texts: `inspect` says how"
    if about == "reference" and "--reference=build" in again:
        about = "target"  # a reference that is built now is of the model that was named
    if not again:  # from a program, which says it in its own words
        return None, _BUILT if about == "reference" else ""
    if about == "queries":
        is_synthetic = "--queries=synthetic" in again or not places.has_texts
        judges = ("--beir", "DIR") if is_synthetic else ("--queries=synthetic",)
        remark = (
            "" if is_synthetic else "synthetic queries need no judgements; better are queries that users ask (--beir)"
        )
        return (*_without(again, "--beir", "--queries", "--group-field"), *judges), remark
    if about == "reference":
        return (*_without(again, "--reference"), "--reference=build"), _BUILT
    if about == "target":
        return (*_without(again, "--target"), "--target", "SPEC"), ""
    if about == "model":
        return ("assess", old, "--target", "SPEC"), "a model that answers worse than that is not worth moving to"
    return ("translate", "OLD", "STITCH", "-o", str(free_path(Path("translated")))), ""


def _without(words: Sequence[str], *flags: str) -> tuple[str, ...]:
    """Words without these options, which hold their values after an equals sign."""
    return tuple(word for word in words if word.partition("=")[0] not in flags)
