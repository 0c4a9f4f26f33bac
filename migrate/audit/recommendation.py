"""The recommendation of an audit: every way on with its quality and cost, the cheapest SAFE move, its command.

The verdict is on the translated store alone; this is on every way that the audit has looked at. Once an audit is done,
the sample of the stitch, the translation and what was embedded to judge them are paid for: the next step costs what is
left from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from migrate.audit.bounds import Bounds, Outcome
from migrate.audit.locations import Locations
from migrate.audit.pool import PoolSummary
from migrate.audit.result import AuditResult
from migrate.audit.results import (
    BRIDGE,
    FULL,
    STAY,
    TOGETHER,
    TRANSLATED,
    ArmCost,
    ArmResult,
    plan_word,
    rerank_depths,
)
from migrate.audit.verdict import Finding
from migrate.audit_report.records import Option, OwnSearch, Recommendation
from migrate.cost.deal import is_small
from migrate.cost.estimate import duration, token_count
from migrate.display import dollars, percent
from migrate.embedders.kinds import may_cost_money, split_spec
from migrate.files import free_path
from migrate.outcome import decide

_MANY_TIMES = 2.0
"""Retention from which on it is shown as a multiple: of a standard that hardly finds anything, percentages mislead."""

_LITTLE = 0.05
"""Share of a full re-embed, 0-1, that is not worth two stages to put it off; by tokens, where no price is known."""

_NOTHING = ArmCost(0.0, 0.0)
_BUILT = "a reference that is built now is beyond doubt: `audit` with --reference build"
Command = tuple[tuple[str, ...] | None, str]
"""Arguments to type after the program's name, None for none, and a remark on what is left to do."""


def options_of(result: AuditResult) -> tuple[Option, ...]:
    """Return the options, the cheapest first: staying, the translated store, arms that could serve, the full re-embed.

    A reference store that was there before the audit costs nothing here; a pool costs what was embedded for it. No
    option costs more than a full re-embed, as the cache embeds no document twice.
    """
    arms = {arm.name: arm for arm in result.arms}
    full = result.arm(FULL)
    full_left = _left_of_full(result)
    retained = {TRANSLATED: result.verdict.retention, **result.family}
    options = [
        _option(arms[name], bounds, result, full_left, is_safe=result.outcome_of(name) is Outcome.SAFE)
        for name, bounds in retained.items()
        if name in arms
    ]
    if STAY in result.comparisons:
        bounds = result.comparisons[STAY].retention
        is_enough = result.verdict.observations.has_enough and decide(bounds, result.verdict.scale.safe) is Outcome.SAFE
        options.append(Option(STAY, bounds, 0.0, 0.0, 0.0, 0.0, is_enough))
    if not result.is_kept and result.reference_at is None:
        # Without a cache or a store the sample is lost, so a full re-embed pays for it once more
        full_left = ArmCost(full.tokens, full.usd)
    whole = Bounds(1.0, 1.0, 1.0)  # it is the standard
    options.append(Option(FULL, whole, full.tokens, full.usd, full_left.tokens, full_left.usd, True))
    timed = (_with_time(option, result) for option in options)
    return tuple(sorted(timed, key=lambda option: (option.cost, -option.retention.lower)))


def _option(arm: ArmResult, bounds: Bounds, result: AuditResult, full_left: ArmCost, *, is_safe: bool) -> Option:
    """Return an arm as an option, with its cost and what is left of that; `full_left` is what a full re-embed needs."""
    full = result.arm(FULL)
    sample = result.arm(TRANSLATED)
    if arm.reranking is not None and result.pool is not None and result.is_kept:
        # The pool has paid for the queries of the audit; as many new ones are still to come
        n_queries = result.verdict.observations.queries
        further = ArmCost(
            _scaled(arm.reranking.tokens_further, n_queries), _scaled(arm.reranking.usd_further, n_queries)
        )
        cost_of_arm = _combined(_sum, sample, further, full)
        arm = replace(arm, tokens=cost_of_arm.tokens, usd=cost_of_arm.usd)
    remaining = _NOTHING
    # Both are there, and paid for
    if arm.name not in (TRANSLATED, BRIDGE):
        remaining = _combined(_less, arm, sample, full_left)
    cost = _combined(_sum, arm, result.pool or _NOTHING, full)
    return Option(arm.name, bounds, cost.tokens, cost.usd, remaining.tokens, remaining.usd, is_safe)


def _with_time(option: Option, result: AuditResult) -> Option:
    """Return the option with how long the model takes for what is left, as fast as it was; documents count alike."""
    everything = result.arm(FULL).tokens
    if result.documents_per_s is None or option.tokens_left is None or not everything:
        return option
    n_documents = result.stores.get(TRANSLATED, {}).get("count", result.data.n_documents)
    share_left = option.tokens_left / everything
    return replace(option, seconds_left=float(share_left * n_documents / result.documents_per_s))


def _depth(option: Option) -> int:
    """Return how many documents of a query are embedded while it is served; 0 but for two stages."""
    return next(iter(rerank_depths(option.name)), 0)


def _needs_old(option: Option) -> bool:
    """Return whether the old store and its model are asked too, for each query."""
    return option.name.startswith(TOGETHER)


def _left_of_full(result: AuditResult) -> ArmCost:
    """Return what a full re-embed would still cost: nothing where it is there, or where every text is in the cache."""
    pool = result.pool
    # Every text is in the cache, or in the reference store: to write it costs no embedding
    if result.reference_at is not None or (result.is_kept and (pool is None or pool.is_exact)):
        return _NOTHING
    full = result.arm(FULL)
    sample = result.arm(TRANSLATED)
    if pool is None or not result.is_kept:
        return _combined(_less, full, sample)
    share = pool.true_outside / pool.count
    outside = ArmCost(_scaled(full.tokens, share), _scaled(full.usd, share))
    return _combined(_less, full, _combined(_sum, pool, outside))


def _scaled(amount: float | None, factor: float) -> float | None:
    """Return a multiple of an amount; None where it is not known."""
    if amount is None:
        return None
    return factor * amount


def _combined(combine: Callable[..., float | None], *costs: ArmCost | ArmResult | PoolSummary) -> ArmCost:
    """Return a combination of costs, in tokens and in dollars."""
    return ArmCost(combine(*(cost.tokens for cost in costs)), combine(*(cost.usd for cost in costs)))


def _less(cost: float | None, paid: float | None, most: float | None = None) -> float | None:
    """Return what is left of a cost; no more than `most`, where that is known."""
    remaining = None
    if cost is not None and paid is not None:
        remaining = max(cost - paid, 0.0)
    if most is None:
        return remaining
    if remaining is None and most:
        return None
    return min(remaining or 0.0, most)


def _sum(cost: float | None, proof: float | None, most: float | None = None) -> float | None:
    """Return both costs together; no more than `most`, where that is known."""
    if cost is None or proof is None:
        return None
    total = cost + proof
    if most is None:
        return total
    return min(total, most)


def recommend(result: AuditResult) -> Recommendation:
    """Stay where the old store answers as well as a full re-embed; else what is SAFE and leaves least to pay.

    An old store that keeps the margin alone is named beside that: who moves wants what the new model is better at.
    Of ways that leave as much to pay, two stages before a full re-embed, unless that costs next to nothing, then the
    one that is sure to keep most. With a doubt nothing is recommended but staying, which changes nothing.
    """
    odd = next((finding for finding in result.examination.findings if finding.level == "doubt"), None)
    stay = result.comparisons.get(STAY)
    staying_loses = stay is None or stay.retention.lower < 1
    if odd is not None and staying_loses:
        command, remark = _clear_up(odd, result)
        headline = f"nothing is shown to be SAFE; clear up first: {odd.text}"
        return Recommendation(plan=None, headline=headline, command=command, remark=remark)
    missing = _missing_index(result)
    if missing is not None and staying_loses:
        return _mend_index(missing, result.locations.audit_again)
    return _Advice(result).recommendation(odd)


def _missing_index(result: AuditResult) -> OwnSearch | None:
    """Return the search of the translated store where its index alone keeps it from being SAFE."""
    if result.plan != TRANSLATED or result.outcome is Outcome.SAFE:
        return None
    # Vectors that are SAFE by exact search need no other translation, but another index or setting
    searches = (search for search in result.examination.searches if search.arm == TRANSLATED)
    return next((search for search in searches if search.remedy is not None and search.is_safe_exactly), None)


def _mend_index(search: OwnSearch, same_audit: Sequence[str]) -> Recommendation:
    """Recommend what makes an index find enough; the same audit with another setting, where one is enough."""
    headline = f"the vectors are SAFE, but their index misses too much of what they would find: {search.remedy}"
    command = None
    if search.setting is not None and same_audit:
        command = (*_without(same_audit, "--search-effort"), f"--search-effort={search.setting}")
    return Recommendation(plan=None, headline=headline, command=command)


def _amount(usd: float | None, seconds: float | None, tokens: float | None) -> str:
    """Return a cost in words, by money, else time, else tokens; empty where nothing is known."""
    amounts = [amount for amount in (usd, seconds, tokens) if amount is not None]
    if not amounts:
        return ""
    if not any(amounts):
        return "nothing"
    if usd is not None:
        return dollars(usd)
    if seconds is not None:
        return duration(seconds / 60)
    return token_count(tokens or 0)


def _and_more(remaining: str) -> str:
    """Return the end of a sentence that says what is still to be paid."""
    if not remaining:
        return ""
    if remaining == "nothing":
        return ", nothing more to pay"
    return f", {remaining} more"


class _Advice:
    """The options of an audit that nothing speaks against, the best of them, and how that is done."""

    def __init__(self, result: AuditResult) -> None:
        self.result = result
        self.verdict = result.verdict
        self.locations = result.locations
        self.options = {option.name: option for option in options_of(result)}
        self.full = self.options[FULL]
        self.safe = "SAFE"
        if self.verdict.scale.provisional:
            self.safe = "SAFE (provisional)"
        everything = result.arm(FULL).tokens
        sample = result.arm(TRANSLATED).tokens
        # The translated store may have true vectors alone: it is a full re-embed itself
        self.is_whole = everything is not None and sample is not None and 0 < everything <= sample

    def recommendation(self, odd: Finding | None) -> Recommendation:
        """Return the best option; a doubt about the new store, `odd`, does not speak against staying."""
        option = self._best()
        command, remark = self._command(option)
        if odd is not None:
            remark = self._distrust(odd)
        paid = option
        if _depth(option) and not self.locations.can_serve:
            # The command is that of a full re-embed then
            paid = self.full
        remaining = _amount(paid.usd_left, paid.seconds_left, paid.tokens_left)
        return Recommendation(
            plan=option.name,
            headline="; ".join([self._lead(option, remaining), *self._other_plans(option)]),
            retention=option.retention,
            left_usd=paid.usd_left,
            left_seconds=paid.seconds_left,
            left_tokens=paid.tokens_left,
            remaining=remaining,
            command=command,
            serving=self._serving(option),
            remark=remark,
        )

    def _distrust(self, odd: Finding) -> str:
        """Return the remark on a doubt, which is not repeated where the verdict has it."""
        distrust = "the figures of the new store are not to be trusted"
        if odd.text in self.verdict.doubts:
            return distrust
        return f"{distrust}: {odd.text}"

    def _best(self) -> Option:
        options = self.options
        result = self.result
        full = self.full
        if self.verdict.observations.lacks_documents:
            return full
        if result.plan != TRANSLATED and result.outcome is Outcome.SAFE:
            return options[result.plan]  # it was asked for
        if STAY in options and options[STAY].retention.lower >= 1:
            return options[STAY]
        may_ask_both = self.locations.old_model is not None and self.locations.can_serve
        safe = [option for option in options.values() if option.is_safe and option.name != STAY]
        safe = [option for option in safe if may_ask_both or not _needs_old(option)]
        # A full re-embed of what is one already is no way on
        if self.is_whole:
            safe = [option for option in safe if option.name != FULL] or [options[TRANSLATED]]
        best = min(safe, key=self._preference)
        is_weighed = full.usd_left is not None or full.seconds_left is not None
        if _depth(best) and not is_weighed and full.remaining <= _LITTLE * full.cost:
            return full
        return best

    def _preference(self, option: Option) -> tuple[float, bool, bool, int, float]:
        """Return the order of SAFE options, the best first."""
        return (
            option.remaining,
            self._is_work(option),
            _needs_old(option),
            _depth(option),  # of two stages that cost the same now, the shallower one costs less with every new query
            -option.retention.lower,
        )

    def _is_work(self, option: Option) -> bool:
        """Return whether it is a full re-embed that costs something: two stages serve before that is paid."""
        if option.name != FULL or not option.remaining:
            return False
        minutes = None
        if option.seconds_left is not None:
            minutes = option.seconds_left / 60
        return not is_small(option.usd_left, minutes)

    def _lead(self, option: Option, remaining: str) -> str:
        """Return the plan, what it keeps and what is still to be paid."""
        name = option.name
        retained = self._retained(option.retention)
        more = _and_more(remaining)
        if name == STAY:
            return self._stay_lead(option, retained)
        if name == FULL:
            return self._full_lead(more)
        if name == TRANSLATED and self.is_whole:
            return "the store is a full re-embed itself: every vector is the model's own"
        if _needs_old(option):
            return self._together_lead(option, retained, remaining)
        if _depth(option):
            return self._two_stage_lead(option, retained, remaining)
        subject = f"the {name}"
        if name == TRANSLATED:
            subject = "the translated store"
        return f"{self.safe}: {subject} {retained}{more}"

    @staticmethod
    def _stay_lead(option: Option, retained: str) -> str:
        if option.retention.estimate < _MANY_TIMES:
            retained = f"{retained} of what a full re-embed would answer"
        return f"stay: the old store {retained}, and costs nothing"

    def _together_lead(self, option: Option, retained: str, remaining: str) -> str:
        depth = _depth(option)
        reranked = ""
        if depth:
            reranked = f", the first {depth} ranked again by true vectors"
        model = self.locations.old_model or "the old model"
        both = f"the old store asked beside the new one{reranked} {retained}"
        lead = f"{self.safe} as long as {model} answers too: {both}"
        if depth and not self.locations.can_serve:
            return f"{lead}{self._at_hand(remaining)}"
        return f"{lead}{_and_more(remaining)}"

    def _two_stage_lead(self, option: Option, retained: str, remaining: str) -> str:
        lead = f"{self.safe} in two stages, the first {_depth(option)} ranked again by true vectors: {retained}"
        if not self.locations.can_serve:
            return f"{lead}{self._at_hand(remaining)}"
        lead = f"{lead}{_and_more(remaining)}"
        if remaining in ("", "nothing"):
            return lead
        return f"{lead} for as many queries"

    @staticmethod
    def _at_hand(remaining: str) -> str:
        """Return why `live` cannot serve what ranks again."""
        amount = ""
        if remaining:
            amount = f" ({remaining})"
        return f"; all true vectors are already available, so a full re-embed{amount} is as good"

    def _full_lead(self, more: str) -> str:
        if self.verdict.observations.lacks_documents:
            return f"re-embed{more}: the store is too small to audit, and for a migration to pay off"
        if self.result.reference_at is not None:
            return f"SAFE: the full re-embed that this was compared with is there{more}"
        if self.result.is_kept and not self.full.remaining:
            return f"re-embed: every text is in the embedding cache{more}"
        safe_names = [name for name, option in self.options.items() if option.is_safe and name not in (FULL, STAY)]
        if safe_names:
            return f"re-embed{more}: {safe_names[0]} is SAFE too, and costs no less"
        # Staying may be, and is no way there
        return f"re-embed{more}: no other way to the new model is shown to be SAFE"

    def _other_plans(self, option: Option) -> list[str]:
        """Return what staying and the translated store keep, where they are not the plan itself."""
        sentences = []
        stay = self.result.comparisons.get(STAY)
        if stay is not None and option.name != STAY and stay.retention.is_known:
            is_enough = stay.retention.lower >= self.verdict.scale.safe
            sentence = f"staying {self._retained(stay.retention, with_bound=is_enough)}"
            if is_enough:
                sentence += " and costs nothing"
            sentences.append(sentence)
        if option.name != TRANSLATED and not self.is_whole:
            outcome = self.result.outcome_of()
            bounds = self.verdict.retention
            if bounds.is_known:
                sentences.append(f"translated alone {self._retained(bounds, with_bound=False)}, {outcome}")
            else:
                sentences.append(f"translated alone is {outcome}")
        return sentences

    def _retained(self, bounds: Bounds, *, with_bound: bool = True) -> str:
        if self.verdict.scale.provisional:
            statement = f"has {self.verdict.scale.measured} {bounds.estimate:.3f}"
            least = f"{bounds.lower:.3f}"
        elif bounds.estimate >= _MANY_TIMES:
            statement = f"scores {bounds.estimate:.3g} times what a full re-embed does"
            least = f"{bounds.lower:.3g} times"
        else:
            statement = f"keeps {percent(bounds.estimate)}"
            least = percent(bounds.lower)
        if not with_bound:
            return statement
        return f"{statement} (at least {least})"

    def _command(self, option: Option) -> Command:
        """Return the command for an option, and what it leaves to do."""
        locations = self.locations
        result = self.result
        reranks = bool(_depth(option))
        asks_both = _needs_old(option)
        if option.name == STAY or not locations.translated:
            return None, ""
        if option.name == TRANSLATED:
            return self._switch(locations.translated, needs_proof=not self.is_whole)
        if option.name == FULL and result.reference_at is not None:
            return self._switch(result.reference_at, needs_proof=False)
        if reranks and result.plan == option.name and not asks_both:
            return self._switch(locations.translated, needs_proof=True)
        if asks_both and locations.old_model is None:
            return None, "serve it by your own program: the old model is not at hand for queries that are new"
        if (reranks or asks_both) and locations.can_serve:
            return self._live(option)
        if option.name == BRIDGE:
            return None, "the old store is asked by queries that the stitch of --bridge maps back"
        if option.name == FULL or reranks:
            return self._reembed()
        return None, f"no command makes or serves {option.name}: your own program does"

    def _live(self, option: Option) -> Command:
        """Return the command that serves the new store, or both, while a worker puts in true vectors."""
        locations = self.locations
        agreement: tuple[str, ...] = ()
        if len(locations.target) > 1:
            agreement = worker_agreement(locations.target[1])
        # `live` wants to keep what it embeds
        model = (word for word in locations.model if word != "--cache=none")
        remark = self._two_stage_remark(option)
        if _needs_old(option):
            remark = (
                "keep the old store and its model until the worker has put true vectors into the new one, as "
                "`live status` says"
            )
        return ("live", "run", locations.translated, *model, *agreement), remark

    def _reembed(self) -> Command:
        """Return the command that embeds the whole store."""
        locations = self.locations
        if not locations.target:
            return None, ""
        if not locations.has_texts:
            return ("inspect", locations.old), "the store has no texts to embed: `inspect` says how to give it some"
        return ("reembed", locations.old, *locations.target, "-o", locations.full), ""

    def _switch(self, new: str, *, needs_proof: bool) -> Command:
        """Return the command by which a store answers under the old name, or that which leaves the proof for it."""
        locations = self.locations
        if locations.source is not None and locations.server is not None and locations.stitch is not None:
            remark = f"{new} lies in files: this writes it to the server of {locations.source}"
            return ("translate", locations.source, locations.stitch, "-o", locations.server), remark
        if locations.source is None or not locations.can_switch:
            remark = f"let your programs open {new}"
            if len(locations.target) > 1:
                remark += f", and embed queries with {locations.target[1]}"
            return None, remark
        arguments = ("switch", locations.source, new)
        if not needs_proof:
            return arguments, ""
        if self.verdict.scale.provisional:
            remark = "nothing is judged: keep the old store until judged queries (--judged) agree"
            return (*arguments, "--unproven"), remark
        if locations.report is not None:
            return (*arguments, "--audit", locations.report), ""
        if locations.audit_again:
            remark = "`switch` wants the report of the audit: the same again with --report keeps it"
            return locations.audit_again, remark
        return None, "`switch` wants the report of the audit: keep it as JSON"

    def _two_stage_remark(self, option: Option) -> str:
        locations = self.locations
        remarks = []
        if len(locations.target) > 1 and worker_agreement(locations.target[1]):
            whole = "the worker embeds the whole store in the end"
            remaining = _amount(self.full.usd_left, None, self.full.tokens_left)
            if remaining:
                whole += f", {remaining} in all"
            remarks.append(f"{whole}; a --budget in the place of --yes ends it before")
        if not self.verdict.scale.provisional and locations.can_switch:
            plan_flags = f"--plan {plan_word(option.name)}"
            if not locations.report:
                plan_flags += " --report FILE"
            remarks.append(
                f"`switch` takes the store too, if it is served like this: the same with {plan_flags} is the proof"
            )
        return "; ".join(remarks)

    def _serving(self, option: Option) -> tuple[str, ...]:
        """Return lines that serve two stages as the audit ranks them: all of the first documents by true vectors."""
        locations = self.locations
        if not (_depth(option) or _needs_old(option)) or not locations.translated or not locations.can_serve:
            return ()
        old = None
        if _needs_old(option):
            if locations.source is None or locations.old_model is None:
                return ()
            old = (locations.source, locations.old_model)
        location = locations.translated
        is_switched = self.result.plan == option.name and locations.can_switch and old is None
        if is_switched and locations.source is not None:
            # The new store answers under the old name then
            location = locations.source
        flag = "--base-url="
        servers = [word.removeprefix(flag) for word in locations.target if word.startswith(flag)]
        if servers:
            return serving_lines(location, _depth(option), locations.target[1], server=servers[0], old=old)
        spec = None
        if locations.model[:1] == ("--target",):
            spec = locations.model[1]
        return serving_lines(location, _depth(option), spec, old=old)


def worker_agreement(spec: str) -> tuple[str, ...]:
    """Return the agreement to embed all of a store, which `live run` wants of a model that may cost money.

    A budget of 100 % is less: the texts that prove the model at each start count, and the last documents lack as many.
    """
    if may_cost_money(spec):
        return ("--yes",)
    return ()


def serving_lines(
    location: str,
    depth: int,
    spec: str | None = None,
    *,
    server: str | None = None,
    old: tuple[str, str] | None = None,
) -> tuple[str, ...]:
    """Return lines of Python that serve a store, by its own model or by that of a spec and a server.

    The first `depth` documents are ranked by true vectors, where there are any; the `old` store, by its location and
    the spec of its model, is asked too, by the same server where that is one of OpenAI's protocol.
    """
    arguments = [repr(location)]
    if server is not None:
        arguments.append(_at_server(spec, server))
    elif spec is not None:
        arguments.append(repr(spec))
    if old is not None:
        old_location, old_spec = old
        old_model = repr(old_spec)
        if server is not None and split_spec(old_spec)[0] == "openai":
            old_model = _at_server(old_spec, server)
        arguments += [f"old={old_location!r}", f"old_model={old_model}"]
    if depth:
        arguments.append(f"limits=LiveLimits(depth={depth}, max_documents={depth}, max_ms=60_000)")
    names = ["LiveSearcher"]
    if depth:
        names.insert(0, "LiveLimits")
    if server is not None:
        names.append("load_embedder")
    return (
        f"from migrate import {', '.join(names)}",
        f"searcher = LiveSearcher({', '.join(arguments)})",
        'answer = searcher.search("a question", k=10)',
    )


def _at_server(spec: str | None, server: str | None) -> str:
    return f"load_embedder({spec!r}, base_url={server!r})"


def _clear_up(odd: Finding, result: AuditResult) -> Command:
    """Return the command that takes a doubt away: the same audit with another input, or what makes that input."""
    locations = result.locations
    same_audit = locations.audit_again
    about = odd.about
    if about == "reference" and (not locations.has_texts or not same_audit):
        return _explain_build(locations)
    if not same_audit:  # from a program, whose arguments are not known
        return None, ""
    if about == "reference" and "--reference=build" in same_audit:
        # A reference that is built now is of the model that was named
        about = "target"
    if about == "groups":
        return _without(same_audit, "--group-field"), ""
    if about == "queries":
        return _other_queries(same_audit, has_texts=locations.has_texts)
    if about == "reference":
        return (*_without(same_audit, "--reference"), "--reference=build"), _BUILT
    if about == "target":
        return (*_without(same_audit, "--target"), "--target", "SPEC"), ""
    if about == "model":
        remark = "a model that answers worse than that is not worth moving to"
        return ("assess", locations.old, "--target", "SPEC"), remark
    source = "OLD"
    # A source that is doubted itself is another store than it should be
    if about == "store" and locations.source:
        source = locations.source
    return ("translate", source, locations.stitch or "STITCH", "-o", str(free_path(Path("translated")))), ""


def _explain_build(locations: Locations) -> Command:
    """Return what a built reference needs, where no command can build one."""
    if locations.has_texts:
        return None, _BUILT
    remark = f"{_BUILT}, for which the store needs texts: `inspect` says how"
    if not locations.old:
        return None, remark
    return ("inspect", locations.old), remark


def _other_queries(same_audit: Sequence[str], *, has_texts: bool) -> Command:
    """Return the audit with synthetic queries, or with judged ones where those cannot be made or were just doubted."""
    arguments = _without(same_audit, "--judged", "--queries", "--group-field")
    is_file = any(word.startswith("--target=file:") for word in same_audit)  # which has no vectors of new queries
    if "--queries=synthetic" in same_audit or not has_texts or is_file:
        return (*arguments, "--judged", "DIR"), ""
    remark = "synthetic queries need no judgements; better are queries that users ask (--judged)"
    return (*arguments, "--queries=synthetic"), remark


def _without(arguments: Sequence[str], *flags: str) -> tuple[str, ...]:
    """Return arguments without these options, which hold their values after an equals sign."""
    return tuple(word for word in arguments if word.partition("=")[0] not in flags)
