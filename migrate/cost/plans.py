"""The ways to move a store, side by side: what each embeds, costs, takes and needs, and what is known of quality."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from migrate.cost.count import TextCount
from migrate.cost.price import usd_of
from migrate.cost.quality import NOTHING, REFERENCE, KnownPoint
from migrate.cost.rates import Rate
from migrate.cost.resources import StoreBytes, cache_bytes, embed_memory, migrate_memory, stitch_bytes
from migrate.cost.target import Target
from migrate.embedders.openai_requests import MAX_REQUEST_TEXTS, MAX_REQUEST_TOKENS, fair_share

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of the store that a migration may re-embed, each a plan."""

DEPTH = 50
_IN_FLIGHT = 8
QUERIES = 1_000
FEWEST_PAIRS = 40
"""Below these a fit draws no learning curve: too few to learn a map from."""

FULL, MIGRATE, TWO_STAGE = "full re-embed", "migrate", "two-stage"
NO_DOWNTIME = "none"


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to move a store.

    `documents` are embedded, a `share` (0-1) of those with a text of their own, with `tokens` in `requests` (None for
    a local model). Money is None where no price is known, minutes and bytes where they cannot be. `quality` is what
    is known of the result.
    """

    kind: str
    name: str
    share: float
    documents: int
    tokens: int
    requests: int | None
    usd: float | None
    batch_usd: float | None
    minutes: float | None
    disk_bytes: int | None
    memory_bytes: int | None
    quality: str
    known: KnownPoint | None = None
    downtime: str = NO_DOWNTIME


@dataclass(frozen=True, slots=True)
class Pricing:
    """All that a plan's cost depends on, beside what it embeds."""

    target: Target
    count: TextCount
    size: StoreBytes | None
    source_dim: int
    rate: Rate | None
    texts_per_request: int | None = None

    @property
    def tokens_per_document(self) -> float:
        """On average, of what is not in the cache."""
        return self.count.tokens_to_embed / max(self.count.to_embed, 1)

    def cost(self, kind: str, name: str, documents: int, tokens: int) -> Plan:
        """A plan that embeds so much, without what belongs to its kind."""
        target, rate = self.target, self.rate
        sent = documents
        if target.is_api:
            each = self.texts_per_request or fair_share(documents, _IN_FLIGHT, MAX_REQUEST_TEXTS)
            sent = ceil(max(documents / each, tokens / MAX_REQUEST_TOKENS))
        return Plan(
            kind,
            name,
            documents / max(self.count.to_embed, 1),
            documents,
            tokens,
            sent if target.is_api else None,
            usd_of(tokens, target.price_usd_per_mtok),
            usd_of(tokens, target.batch_price_usd_per_mtok),
            None if rate is None else rate.minutes(sent, tokens),
            None,
            None,
            NOTHING,
        )


def full_plan(pricing: Pricing) -> Plan:
    """Embed everything that is not in the cache."""
    count, size, dim = pricing.count, pricing.size, pricing.target.dim
    plan = pricing.cost(FULL, FULL, count.to_embed, count.tokens_to_embed)
    if size is None or dim is None:
        return replace(plan, quality=REFERENCE)
    memory = embed_memory(size, count.documents, dim, is_local=_is_local(pricing.target))
    return replace(
        plan, quality=REFERENCE, disk_bytes=size.after + cache_bytes(count.to_embed, dim), memory_bytes=memory
    )


def migrate_plan(pricing: Pricing, documents: int, name: str | None = None, known: KnownPoint | None = None) -> Plan:
    """Embed so many documents, learn from them, and translate the others."""
    count, size, dim = pricing.count, pricing.size, pricing.target.dim
    share = documents / max(count.to_embed, 1)
    tokens = round(documents * pricing.tokens_per_document)
    plan = pricing.cost(MIGRATE, name or f"migrate {share:.0%}", documents, tokens)
    quality = known.sentence if known is not None else NOTHING
    if documents < FEWEST_PAIRS:
        quality = "too few to learn from"
    plan = replace(plan, quality=quality, known=known)
    if size is None or dim is None:
        return plan
    disk = size.after + cache_bytes(documents, dim) + stitch_bytes(documents, pricing.source_dim, dim)
    memory = migrate_memory(size, documents, pricing.source_dim, dim, is_local=_is_local(pricing.target))
    return replace(plan, disk_bytes=disk, memory_bytes=memory)


def _is_local(target: Target) -> bool:
    return target.provider in ("sentence-transformers", "packaged")


def make_plans(pricing: Pricing, known: Sequence[KnownPoint], shares: Iterable[float] = SHARES) -> list[Plan]:
    """The full re-embed, a migration for each share, and one for each point of which something is known."""
    total = pricing.count.to_embed
    at = {max(round(share * total), 1): f"migrate {share:.0%}" for share in shares if total}
    points = best_points(known)
    for documents in points:
        near = [other for other in at if abs(other - documents) <= 0.005 * total]
        for other in near:
            del at[other]
        at[documents] = f"migrate {documents / max(total, 1):.0%}"
    return [full_plan(pricing), *(migrate_plan(pricing, n, at[n], points.get(n)) for n in sorted(at))]


def best_points(known: Sequence[KnownPoint]) -> dict[int, KnownPoint]:
    """One point for each number of documents: a frontier's before a fit's, of policies the one that keeps most."""
    found: dict[int, KnownPoint] = {}
    for point in known:
        other = found.get(point.documents)
        if other is None or _rank(point) > _rank(other):
            found[point.documents] = point
    return found


def _rank(point: KnownPoint) -> tuple[bool, bool, float]:
    return point.outcome is not None, point.is_cheapest_safe, point.lower if point.lower is not None else -1.0


def two_stage_plan(pricing: Pricing, documents: int, query_tokens: int, *, is_bound: bool) -> Plan:
    """What 1,000 queries embed beside a translated store: `documents` for the first time, and themselves."""
    tokens = round(documents * pricing.tokens_per_document) + query_tokens
    at_most = ", at most" if is_bound else ""
    plan = pricing.cost(TWO_STAGE, f"two-stage {DEPTH}, {QUERIES:,} queries{at_most}", documents, tokens)
    dim = pricing.target.dim
    return plan if dim is None else replace(plan, disk_bytes=cache_bytes(documents, dim))
