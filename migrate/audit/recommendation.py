"""The recommendation of an audit: every way on with its quality and cost, the cheapest SAFE one, its command.

The verdict is on the translated store alone; this is on every way that the audit has looked at. Once an audit is done,
the sample of the stitch, the translation and what was embedded to judge them are paid for: the next step costs what is
left from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from migrate.audit.bounds import Bounds, Outcome
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
from migrate.audited.records import Option, OwnSearch, Recommendation
from migrate.cost.deal import is_small
from migrate.cost.estimate import dollars, duration, token_count
from migrate.display import percent
from migrate.embedders.kinds import may_cost_money, split_spec
from migrate.files import free_path
from migrate.outcome import decide

_MANY_TIMES = 2.0
_NOTHING = ArmCost(0.0, 0.0)
_BUILT = "a reference that is built now is beyond doubt: `audit` with --reference build"
Command = tuple[tuple[str, ...] | None, str]
"""Words to type after the program's name, None for nothing, and a remark on what is left to do."""


def options_of(result: AuditResult) -> tuple[Option, ...]:
    """Return the options, the cheapest first: staying, the translated store, arms that could serve, the full re-embed.

    A reference store that was there before the audit costs nothing here; a pool costs what was embedded for it. No
    option costs more than a full re-embed, as the cache embeds no document twice.
    """
    arms, full = {arm.name: arm for arm in result.arms}, result.arm(FULL)
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
    if not (result.is_kept or result.reference_at is not None):  # the sample is embedded again
        full_left = ArmCost(full.tokens, full.usd)
    whole = Bounds(1.0, 1.0, 1.0)  # it is the standard
    options.append(Option(FULL, whole, full.tokens, full.usd, full_left.tokens, full_left.usd, True))
    timed = (_with_time(option, result) for option in options)
    return tuple(sorted(timed, key=lambda option: (option.cost, -option.retention.lower)))


def _option(arm: ArmResult, bounds: Bounds, result: AuditResult, full_left: ArmCost, *, is_safe: bool) -> Option:
    full, sample = result.arm(FULL), result.arm(TRANSLATED)
    reranking, n = arm.reranking, result.verdict.observations.queries
    if reranking is not None and result.pool is not None and result.is_kept:  # the pool has paid for these queries
        further = ArmCost(reranking.tokens_further * n, reranking.usd_further and reranking.usd_further * n)
        whole = _combined(_sum, sample, further, full)
        arm = replace(arm, tokens=whole.tokens, usd=whole.usd)
    remaining = _NOTHING
    if arm.name not in (TRANSLATED, BRIDGE):  # both are there, and paid for
        remaining = _combined(_less, arm, sample, full_left)
    cost = _combined(_sum, arm, result.pool or _NOTHING, full)
    return Option(arm.name, bounds, cost.tokens, cost.usd, remaining.tokens, remaining.usd, is_safe)


def _with_time(option: Option, result: AuditResult) -> Option:
    """Return the option with how long the model takes for what is left, as fast as it was; documents count alike."""
    everything = result.arm(FULL).tokens
    if result.documents_per_s is None or option.tokens_left is None or not everything:
        return option
    count = result.stores.get(TRANSLATED, {}).get("count", result.data.n_documents)
    return replace(option, seconds_left=float(option.tokens_left / everything * count / result.documents_per_s))


def _depth(option: Option) -> int:
    """Return how many documents of a query are embedded while it is served; 0 but for two stages."""
    return next(iter(rerank_depths(option.name)), 0)


def _needs_old(option: Option) -> bool:
    """Return whether the old store and its model are asked too, for each query."""
    return option.name.startswith(TOGETHER)


def _left_of_full(result: AuditResult) -> ArmCost:
    """Return what a full re-embed would still cost: nothing where it is there, or where every text is in the cache."""
    pool = result.pool
    if result.reference_at is not None or (result.is_kept and (pool is None or pool.is_exact)):
        return _NOTHING
    full, sample = result.arm(FULL), result.arm(TRANSLATED)
    if pool is None or not result.is_kept:
        return _combined(_less, full, sample)
    share = pool.true_outside / pool.count
    outside = ArmCost(full.tokens and share * full.tokens, full.usd and share * full.usd)
    return _combined(_less, full, _combined(_sum, pool, outside))


def _combined(combine: Callable[..., float | None], *costs: ArmCost | ArmResult | PoolSummary) -> ArmCost:
    """Return a combination of costs, in tokens and in dollars."""
    return ArmCost(combine(*(cost.tokens for cost in costs)), combine(*(cost.usd for cost in costs)))


def _less(cost: float | None, paid: float | None, most: float | None = None) -> float | None:
    """Return what is left of a cost; no more than `most`, where that is known."""
    remaining = None if cost is None or paid is None else max(cost - paid, 0.0)
    if most is None:
        return remaining
    return None if remaining is None and most else min(remaining or 0.0, most)


def _sum(cost: float | None, proof: float | None, most: float | None = None) -> float | None:
    if cost is None or proof is None:
        return None
    return cost + proof if most is None else min(cost + proof, most)


def recommend(result: AuditResult) -> Recommendation:
    """Stay where the old store answers as well as a full re-embed; else what is SAFE and leaves least to pay.

    Of ways that leave as much to pay, two stages before a full re-embed, unless that costs next to nothing, then the
    one that is sure to keep most. With a doubt nothing is recommended but staying, which changes nothing.
    """
    odd = next((finding for finding in result.examination.findings if finding.level == "doubt"), None)
    stay = result.comparisons.get(STAY)
    if odd is not None and (stay is None or stay.retention.lower < 1):
        command, remark = _clear_up(odd, result)
        headline = f"nothing is shown to be SAFE; clear up first: {odd.text}"
        return Recommendation(plan=None, headline=headline, command=command, remark=remark)
    missing = _missing_index(result)
    if missing is not None and (stay is None or stay.retention.lower < 1):
        headline = f"the vectors are SAFE, but their index misses too much of what they would find: {missing.remedy}"
        effort = () if missing.setting is None else (f"--search-effort={missing.setting}",)
        again = result.locations.audit_again if effort else ()
        command = (*_without(again, "--search-effort"), *effort) if again else None
        return Recommendation(plan=None, headline=headline, command=command)
    return _Advice(result).recommendation(odd)


def _missing_index(result: AuditResult) -> OwnSearch | None:
    """Return the search of the translated store where its index alone keeps it from being SAFE."""
    if result.plan != TRANSLATED or result.outcome is Outcome.SAFE:
        return None
    searches = (search for search in result.examination.searches if search.arm == TRANSLATED)
    return next((search for search in searches if search.remedy is not None and search.is_safe_exactly), None)


def _amount(usd: float | None, seconds: float | None, tokens: float | None) -> str:
    amounts = [amount for amount in (usd, seconds, tokens) if amount is not None]
    if not any(amounts):
        return "nothing" if amounts else ""
    if usd is not None:
        return dollars(usd)
    return token_count(tokens or 0) if seconds is None else duration(seconds / 60)


class _Advice:
    """The options of an audit that nothing speaks against, the best of them, and how that is done."""

    def __init__(self, result: AuditResult) -> None:
        self.result, self.verdict, self.locations = result, result.verdict, result.locations
        self.options = {option.name: option for option in options_of(result)}
        self.full = self.options[FULL]
        everything, sample = result.arm(FULL).tokens, result.arm(TRANSLATED).tokens
        # The translated store may have true vectors alone: it is a full re-embed itself
        self.is_whole = everything is not None and sample is not None and 0 < everything <= sample

    def recommendation(self, odd: Finding | None) -> Recommendation:
        """Return the best option; what is `odd` of the new store does not keep from staying."""
        option = self._best()
        command, remark = self._command(option)
        paid = option if self.locations.can_serve or not _depth(option) else self.full
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
            remark=remark if odd is None else self._distrust(odd),
        )

    def _distrust(self, odd: Finding) -> str:
        """Return the remark on a doubt, which is not repeated where the verdict has it."""
        distrust = "the figures of the new store are not to be trusted"
        return distrust if odd.text in self.verdict.doubts else f"{distrust}: {odd.text}"

    def _best(self) -> Option:
        options, result, full = self.options, self.result, self.full
        if self.verdict.observations.lacks_documents:
            return full
        if result.plan != TRANSLATED and result.outcome is Outcome.SAFE:
            return options[result.plan]  # it was asked for
        if STAY in options and options[STAY].retention.lower >= 1:
            return options[STAY]
        may_ask_both = self.locations.old_model is not None and self.locations.can_serve
        safe = [option for option in options.values() if option.is_safe and option.name != STAY]
        safe = [option for option in safe if may_ask_both or not _needs_old(option)]
        if self.is_whole:
            safe = [option for option in safe if option.name != FULL] or [options[TRANSLATED]]
        # of two stages that cost the same now, the shallower one costs less with every new query
        best = min(
            safe,
            key=lambda option: (
                option.remaining,
                self._is_work(option),
                _needs_old(option),
                _depth(option),
                -option.retention.lower,
            ),
        )
        is_weighed = full.usd_left is not None or full.seconds_left is not None
        # 5 % of a full re-embed are not worth serving in two stages to put them off, by tokens if nobody knows the cost
        return full if _depth(best) and not is_weighed and full.remaining <= 0.05 * full.cost else best

    def _is_work(self, option: Option) -> bool:
        """Return whether it is a full re-embed that costs something: two stages serve before that is paid."""
        minutes = None if option.seconds_left is None else option.seconds_left / 60
        is_free = not option.remaining or is_small(option.usd_left, minutes)
        return option.name == FULL and not is_free

    def _lead(self, option: Option, remaining: str) -> str:
        """Return the plan, what it keeps and what is still to be paid."""
        name, safe = option.name, "SAFE (provisional)" if self.verdict.scale.provisional else "SAFE"
        retained = self._retained(option.retention)
        more = {"": "", "nothing": ", nothing more to pay"}.get(remaining, f", {remaining} more")
        if name == STAY:
            of_full = "" if option.retention.estimate >= _MANY_TIMES else " of what a full re-embed would answer"
            return f"stay: the old store {retained}{of_full}, and costs nothing"
        if name == FULL:
            return self._full_lead(more)
        if name == TRANSLATED and self.is_whole:
            return "the store is a full re-embed itself: every vector is the model's own"
        if _needs_old(option):
            reranked = f", the first {_depth(option)} ranked again by true vectors" if _depth(option) else ""
            model = self.locations.old_model or "the old model"
            both = f"{safe} as long as {model} answers too: the old store asked beside the new one{reranked} {retained}"
            return (
                f"{both}{self._at_hand(remaining)}" if _depth(option) and not self.locations.can_serve else both + more
            )
        if _depth(option):
            stages = f"{safe} in two stages, the first {_depth(option)} ranked again by true vectors: {retained}"
            if not self.locations.can_serve:
                return f"{stages}{self._at_hand(remaining)}"
            return f"{stages}{more} for as many queries" if remaining not in ("", "nothing") else f"{stages}{more}"
        return f"{safe}: {'the translated store' if name == TRANSLATED else f'the {name}'} {retained}{more}"

    @staticmethod
    def _at_hand(remaining: str) -> str:
        """Return why `live` cannot serve what ranks again."""
        amount = f" ({remaining})" if remaining else ""
        return f"; the model's vectors are all at hand, so a full re-embed{amount} is as good"

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
        return f"re-embed{more}: no other way is shown to be SAFE"

    def _other_plans(self, option: Option) -> list[str]:
        """Return what staying and the translated store keep, where they are not the plan itself."""
        sentences, stay = [], self.result.comparisons.get(STAY)
        if stay is not None and option.name != STAY and stay.retention.is_known:
            is_enough = stay.retention.lower >= self.verdict.scale.safe
            retained = self._retained(stay.retention, with_bound=is_enough)
            sentences.append(f"staying {retained}{' and costs nothing' if is_enough else ''}")
        if option.name != TRANSLATED and not self.is_whole:
            outcome, bounds = self.result.outcome_of(), self.verdict.retention
            retained = f"{self._retained(bounds, with_bound=False)}," if bounds.is_known else "is"
            sentences.append(f"translated alone {retained} {outcome}")
        return sentences

    def _retained(self, bounds: Bounds, *, with_bound: bool = True) -> str:
        if self.verdict.scale.provisional:
            statement, least = f"has {self.verdict.scale.measured} {bounds.estimate:.3f}", f"{bounds.lower:.3f}"
        elif (
            bounds.estimate >= _MANY_TIMES
        ):  # of a standard that hardly finds anything, percentages are no words for it
            statement = f"scores {bounds.estimate:.3g} times what a full re-embed does"
            least = f"{bounds.lower:.3g} times"
        else:
            statement, least = f"keeps {percent(bounds.estimate)}", percent(bounds.lower)
        return f"{statement} (at least {least})" if with_bound else statement

    def _command(self, option: Option) -> Command:
        """Return the command for an option, and what it leaves to do."""
        locations, result = self.locations, self.result
        if option.name == STAY or not locations.translated:
            return None, ""
        if option.name == TRANSLATED:
            return self._switch(locations.translated, needs_proof=not self.is_whole)
        if option.name == FULL and result.reference_at is not None:
            return self._switch(result.reference_at, needs_proof=False)
        if _depth(option) and result.plan == option.name and not _needs_old(option):
            return self._switch(locations.translated, needs_proof=True)
        if _needs_old(option) and locations.old_model is None:
            return None, "serve it by your own program: the old model is not at hand for queries that are new"
        if (_depth(option) or _needs_old(option)) and locations.can_serve:
            agreement = worker_agreement(locations.target[1]) if len(locations.target) > 1 else ()
            model = (word for word in locations.model if word != "--cache=none")  # `live` wants to keep what it embeds
            remark = self._together_remark() if _needs_old(option) else self._two_stage_remark(option)
            return ("live", "run", locations.translated, *model, *agreement), remark
        if option.name == BRIDGE:
            return None, "the old store is asked by queries that the stitch of --bridge maps back"
        if option.name == FULL or _depth(option):
            return self._reembed(self.full if _depth(option) else option)
        return None, f"no command makes or serves {option.name}: your own program does"

    def _reembed(self, option: Option) -> Command:
        """Return the command that embeds the whole store."""
        locations = self.locations
        if not locations.target:
            return None, ""
        if not locations.has_texts:
            return ("inspect", locations.old), "the store has no texts to embed: `inspect` says how to give it some"
        flag, spec, *settings = locations.target
        return ("reembed", locations.old, flag, spec, *settings, "-o", locations.full), ""

    def _switch(self, new: str, *, needs_proof: bool) -> Command:
        """Return the command by which a store answers under the old name, or that which leaves the proof for it."""
        locations = self.locations
        if locations.source is not None and locations.server is not None and locations.stitch is not None:
            remark = f"{new} lies in files: this writes it to the server of {locations.source}"
            return ("translate", locations.source, locations.stitch, "-o", locations.server), remark
        if locations.source is None or not locations.can_switch:
            model = "" if len(locations.target) < 2 else f", and embed queries with {locations.target[1]}"
            return None, f"let your programs open {new}{model}"
        arguments = ("switch", locations.source, new)
        if not needs_proof:
            return arguments, ""
        if self.verdict.scale.provisional:
            return (
                *arguments,
                "--unproven",
            ), "nothing is judged: keep the old store until judged queries (--judged) agree"
        if locations.report is not None:
            return (*arguments, "--audit", locations.report), ""
        if locations.audit_again:
            return (
                locations.audit_again,
                "`switch` wants the report of the audit: the same again with --report keeps it",
            )
        return None, "`switch` wants the report of the audit: keep it as JSON"

    def _together_remark(self) -> str:
        return (
            "keep the old store and its model until the worker has put true vectors into the new one, as `live status` "
            "says"
        )

    def _two_stage_remark(self, option: Option) -> str:
        locations, remarks = self.locations, []
        if len(locations.target) > 1 and worker_agreement(locations.target[1]):
            remaining = _amount(self.full.usd_left, None, self.full.tokens_left)
            amount = f", {remaining} in all" if remaining else ""
            whole = f"the worker embeds the whole store in the end{amount}"
            remarks.append(f"{whole}; a --budget in the place of --yes ends it before")
        if not self.verdict.scale.provisional and locations.can_switch:
            plan_flags = f"--plan {plan_word(option.name)}{'' if locations.report else ' --report FILE'}"
            remarks.append(
                f"`switch` takes the store too, if it is served like this: the same with {plan_flags} is the proof"
            )
        return "; ".join(remarks)

    def _serving(self, option: Option) -> tuple[str, ...]:
        """Return lines that serve two stages as the audit ranks them: all of the first documents by true vectors."""
        locations, old = self.locations, None
        if not (_depth(option) or _needs_old(option)) or not locations.translated or not locations.can_serve:
            return ()
        if _needs_old(option):
            if locations.source is None or locations.old_model is None:
                return ()
            old = (locations.source, locations.old_model)
        switched = self.result.plan == option.name and locations.can_switch and old is None
        location = locations.source if switched and locations.source is not None else locations.translated
        flag = "--base-url="
        servers = [word.removeprefix(flag) for word in locations.target if word.startswith(flag)]
        if servers:
            return serving_lines(location, _depth(option), locations.target[1], server=servers[0], old=old)
        spec = locations.model[1] if locations.model[:1] == ("--target",) else None
        return serving_lines(location, _depth(option), spec, old=old)


def worker_agreement(spec: str) -> tuple[str, ...]:
    """Return the agreement to embed all of a store, which `live run` wants of a model that may cost money.

    A budget of 100 % is less: the texts that prove the model at each start count, and the last documents lack as many.
    """
    return ("--yes",) if may_cost_money(spec) else ()


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
    model = repr(spec) if server is None else _at_server(spec, server)
    named = repr(location) if spec is None else f"{location!r}, {model}"
    options = []
    if old is not None:
        has_server = server is not None and split_spec(old[1])[0] == "openai"
        options = [f"old={old[0]!r}", f"old_model={_at_server(old[1], server) if has_server else repr(old[1])}"]
    if depth:
        options.append(f"limits=LiveLimits(depth={depth}, max_documents={depth}, max_ms=60_000)")
    names = ["LiveLimits"] * bool(depth) + ["LiveSearcher"] + ["load_embedder"] * (server is not None)
    return (
        f"from migrate import {', '.join(names)}",
        f"searcher = LiveSearcher({', '.join([named, *options])})",
        'answer = searcher.search("a question", k=10)',
    )


def _at_server(spec: str | None, server: str | None) -> str:
    return f"load_embedder({spec!r}, base_url={server!r})"


def _clear_up(odd: Finding, result: AuditResult) -> Command:
    """Return the command that takes a doubt away: the same audit with another input, or what makes that input."""
    locations, about, same_audit = result.locations, odd.about, result.locations.audit_again
    if about == "reference" and not locations.has_texts:
        remark = f"{_BUILT}, for which the store needs texts: `inspect` says how"
        return ("inspect", locations.old) if locations.old else None, remark
    if about == "reference" and "--reference=build" in same_audit:
        about = "target"  # a reference that is built now is of the model that was named
    if not same_audit:  # from a program, which says it in its own words
        return None, _BUILT if about == "reference" else ""
    if about == "groups":
        return _without(same_audit, "--group-field"), ""
    if about == "queries":
        queries = _without(same_audit, "--judged", "--queries", "--group-field")
        is_file = any(word.startswith("--target=file:") for word in same_audit)  # which has no vectors of new queries
        if "--queries=synthetic" in same_audit or not locations.has_texts or is_file:
            return (*queries, "--judged", "DIR"), ""
        remark = "synthetic queries need no judgements; better are queries that users ask (--judged)"
        return (*queries, "--queries=synthetic"), remark
    if about == "reference":
        return (*_without(same_audit, "--reference"), "--reference=build"), _BUILT
    if about == "target":
        return (*_without(same_audit, "--target"), "--target", "SPEC"), ""
    if about == "model":
        return (
            "assess",
            locations.old,
            "--target",
            "SPEC",
        ), "a model that answers worse than that is not worth moving to"
    known_source = locations.source if about == "store" else None  # a doubted one is another store than it should be
    words = (known_source or "OLD", locations.stitch or "STITCH")
    return ("translate", *words, "-o", str(free_path(Path("translated")))), ""


def _without(arguments: Sequence[str], *flags: str) -> tuple[str, ...]:
    """Return words without these options, which hold their values after an equals sign."""
    return tuple(word for word in arguments if word.partition("=")[0] not in flags)
