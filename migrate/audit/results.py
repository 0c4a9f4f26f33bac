"""The measures of an arm in an audit: its scores, its cost, and how it compares with its standard.

How an arm answers queries is in `migrate.audit.arms`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from migrate.audit.measures import Scores
from migrate.audit_report.names import AGREEMENT as AGREEMENT
from migrate.audit_report.names import BM25 as BM25
from migrate.audit_report.names import BRIDGE as BRIDGE
from migrate.audit_report.names import FULL as FULL
from migrate.audit_report.names import HYBRID as HYBRID
from migrate.audit_report.names import HYBRID_FULL as HYBRID_FULL
from migrate.audit_report.names import MEAN as MEAN
from migrate.audit_report.names import NDCG as NDCG
from migrate.audit_report.names import RANDOM as RANDOM
from migrate.audit_report.names import STAY as STAY
from migrate.audit_report.names import TOGETHER as TOGETHER
from migrate.audit_report.names import TRANSLATED as TRANSLATED
from migrate.audit_report.names import TWO_STAGE as TWO_STAGE
from migrate.display import dollars, percent
from migrate.errors import UsageError

TIE = 1e-9
"""Differences of nDCG@10 up to this count as a tie."""

TWO_STAGE_DEPTHS = (20, 50, 200)
"""How many documents the arms `two-stage` and `together` embed for a query by default."""


@dataclass(frozen=True, slots=True)
class Reranking:
    """The documents that a two-stage arm embeds, in tokens of the target model.

    `depth` documents for a first query, then `documents_per_query` on average over the queries of the audit, as the
    cache has the others; it ends with `cached_share` of the store. A further query embeds `tokens_further`: what each
    had that no other one had (Good 1953). Money is None where no price is known.
    """

    depth: int
    tokens_first: float
    usd_first: float | None
    documents_per_query: float
    tokens_per_query: float
    usd_per_query: float | None
    cached_share: float
    tokens_further: float
    usd_further: float | None

    @property
    def sentence(self) -> str:
        """The cost in words."""
        return (
            f"two-stage {self.depth} embeds {self.depth} documents for a first query ({self._price(self.usd_first)}"
            f"about {self.tokens_first:,.0f} tokens) and, with a cache, {self.documents_per_query:.1f} per query over "
            f"the queries of this audit ({self._price(self.usd_per_query)}about {self.tokens_per_query:,.0f} tokens); "
            f"the cache then has true vectors of {percent(self.cached_share)} of the store, and `backfill` "
            "puts them in"
        )

    @staticmethod
    def _price(usd: float | None) -> str:
        if usd is None:
            return ""
        return f"{dollars(usd)}, "


@dataclass(frozen=True, slots=True)
class ArmCost:
    """The documents that the target model must embed to have an arm; queries are not counted.

    `tokens` are those of the target model, `usd` is their price; both are about right, and None where unknown.
    `reranking` is what a two-stage arm embeds as queries come.
    """

    tokens: float | None = None
    usd: float | None = None
    reranking: Reranking | None = None


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The quality and the speed of an arm, and what it costs.

    `scores` maps a measure (`nDCG@10`, `recall@100`, `MRR@10`, `judged@10`, `overlap@1`, `overlap@10`, `overlap@100`,
    `RBO`) to one value for each distinct query text (`QuerySet.distinct`); without judgements only `agreement@10` and
    the others against the full re-embed are there. `seconds` is the time to rank, without embedding. `tokens`, `usd`
    and `reranking` are those of `ArmCost`.
    """

    name: str
    meaning: str
    scores: Mapping[str, Scores]
    seconds: float
    tokens: float | None = None
    usd: float | None = None
    reranking: Reranking | None = None

    def mean(self, measure: str) -> float | None:
        """Return mean over all distinct queries, or None where the measure could not be taken."""
        if measure not in self.scores:
            return None
        return float(self.scores[measure].mean())


def plan_word(name: str) -> str:
    """Return the name of an arm as it is typed after `--plan`.

    >>> plan_word("two-stage 20")
    'two-stage-20'
    """
    return name.strip().lower().replace(" ", "-")


def rerank_depths(plan: str) -> tuple[int, ...]:
    """Return how many documents a plan ranks again by true vectors, if it ranks any.

    >>> rerank_depths("two-stage-20"), rerank_depths("together 50"), rerank_depths("translated")
    ((20,), (50,), ())
    """
    match = re.fullmatch(f"(?:{TWO_STAGE}|{TOGETHER})-([1-9][0-9]{{0,8}})", plan_word(plan))
    if match is None:
        return ()
    return (int(match[1]),)


NO_OLD_STORE = "needs the store before the migration and its model: --source STORE, --source-model SPEC"
NO_BRIDGE = "needs a stitch for queries, of `fit --direction query`: --bridge STITCH, with --source STORE"


def check_plan(
    plan: str, count: int, own_arms: Iterable[str] | None = (), *, has_old_model: bool, has_bridge: bool
) -> None:
    """Make sure, before anything is embedded, that a plan is not mistyped, can be, and leaves documents out.

    `count` is the number of documents, and `own_arms` are the arms of somebody's own, None where they are known later.
    `has_old_model` says that the old store and its model are named, `has_bridge` that a stitch for queries is.
    """
    word = plan_word(plan)
    plans = [TRANSLATED, TOGETHER, BRIDGE, f"{TWO_STAGE}-20", f"{TOGETHER}-20"]
    plans += map(plan_word, own_arms or ())
    pattern = f"{TRANSLATED}|{TOGETHER}|{BRIDGE}|(?:{TWO_STAGE}|{TOGETHER})-[1-9][0-9]{{0,8}}"
    if own_arms is not None and word not in plans and not re.fullmatch(pattern, word):
        remedy = f"name one such as {', '.join(plans)}"
        if close := get_close_matches(word, plans, n=1):
            remedy = f"did you mean {close[0]}?"
        raise UsageError(f"--plan: there is no plan {plan!r}; {remedy}")
    for arm, need, is_there in ((TOGETHER, NO_OLD_STORE, has_old_model), (BRIDGE, NO_BRIDGE, has_bridge)):
        if not is_there and word.partition("-")[0] == arm:
            raise UsageError(
                f"--plan: {plan!r} is not an arm of this audit ({arm} {need}); name one such as {TRANSLATED} or "
                f"{TWO_STAGE}-20"
            )
    if any(depth >= count for depth in rerank_depths(plan)):
        raise UsageError(
            f"--plan {plan} ranks all of the store's {count:,} documents again, for which all are embedded; `reembed` "
            "does that once, or rank fewer, such as two-stage-20"
        )


def find_plan(plan: str, names: Iterable[str], skipped: Mapping[str, str]) -> str:
    """Return the one of the `names` of arms that a plan names; `skipped` is what each other arm needs.

    Raises
    ------
    UsageError
        There is no such arm, or it was skipped.
    """
    name_of = {plan_word(name): name for name in names}
    if plan_word(plan) not in name_of:
        event = f"{plan!r} is not an arm of this audit"
        if needs := [f"{name} {need}" for name, need in skipped.items() if plan_word(name) == plan_word(plan)]:
            event += f" ({'; '.join(needs)})"
        raise UsageError(f"--plan: {event}; name one of {', '.join(name_of)}")
    return name_of[plan_word(plan)]


def win_tie_loss(arm: Scores, reference: Scores) -> tuple[int, int, int]:
    """Return how many queries the arm answers better than, as well as, and worse than the reference."""
    difference = arm - reference
    wins = int((difference > TIE).sum())
    losses = int((difference < -TIE).sum())
    return wins, len(difference) - wins - losses, losses
