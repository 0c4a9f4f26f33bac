"""The ways to move a store, side by side: what each embeds, costs, takes and needs, and what is known of quality.

Bytes on disk and in memory, before there are any: simple sums, held against real runs by `benchmarks/cost.py`.

A flat index is told to the byte. What a coded index becomes in another dimension is for the writer to find; here its
size goes with the dimension, and the figure is marked as about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from migrate.cost.count import TextCount
from migrate.cost.quality import NOTHING, REFERENCE, STAYED, KnownPoint, StitchQuality
from migrate.cost.rates import Rate, usd_of
from migrate.embedders.openai import MAX_REQUEST_TEXTS, MAX_REQUEST_TOKENS, fair_share
from migrate.embedders.profile import Profile
from migrate.selection.sample import MOST_PAIRS
from migrate.stitch.confidence import DEPTH
from migrate.stores.base import Store
from migrate.stores.file_store import file_bytes

FLOAT_BYTES = 4
_CACHE_OVERHEAD = 64
"""Bytes of an entry of the embedding cache beside its vector: key, checksum, SQLite's own."""

_PART_DOCUMENTS = 1_024
_MIB = 1 << 20
_BASE = 64 * _MIB
"""Python with NumPy, a client and the reader of a store."""

_BASE_FIT = 350 * _MIB
"""The same with SciPy, scikit-learn and what a fit that reads texts keeps of them."""

_BASE_LOCAL = 900 * _MIB
"""The same with torch and a small model; a large one takes its weights beside."""

_STREAMED = ("IndexFlat", "array", "column")
_VECTORS_ONLY = (*_STREAMED, "IndexIVFFlat", "IndexHNSWFlat")


@dataclass(frozen=True, slots=True)
class StoreBytes:
    """Bytes of a store now and after it moved. `is_exact` says whether those of the new index are known to the byte."""

    now: int
    index_now: int
    index_after: int
    is_exact: bool
    is_built: bool

    @property
    def after(self) -> int:
        """The new store: index, ids and texts, without the few kilobytes of a manifest."""
        return self.now - self.index_now + self.index_after


def store_bytes(store: Store, dim: int) -> StoreBytes:
    """What a store takes up, and will take up with vectors of dimension `dim`.

    An index that keeps whole vectors changes by four bytes a number, an inverted one by its centroids too. One that is
    built anew (`is_built`: all but flat ones) needs its rows on disk and the whole index in memory while it is built.
    """
    info = store.info
    now = file_bytes(store)
    index = int(info.details.get("index_bytes", info.count * info.dim * FLOAT_BYTES))
    rows = info.count + int(info.details.get("nlist", 0))
    after = index + rows * (dim - info.dim) * FLOAT_BYTES
    kind = info.index_type.replace("IndexIDMap2(", "").replace("IndexIDMap(", "").rstrip(")")
    whole = kind.startswith(_VECTORS_ONLY)
    is_flat = kind.startswith(_STREAMED)
    return StoreBytes(max(now, index), index, after if whole else round(index * dim / info.dim), is_flat, not is_flat)


def cache_bytes(documents: int, dim: int) -> int:
    """What the embedding cache grows by."""
    return documents * (dim * FLOAT_BYTES + _CACHE_OVERHEAD)


def stitch_bytes(pairs: int, source_dim: int, dim: int) -> int:
    """A linear map and the true vectors of its sample; one that reads texts keeps a few megabytes more."""
    return (source_dim * dim + pairs * dim) * FLOAT_BYTES


def embed_memory(size: StoreBytes, documents: int, dim: int, *, is_local: bool) -> int:
    """Peak memory of embedding the store: one part of vectors and texts, ids and texts of the store, a built index."""
    base = _BASE_LOCAL if is_local else _BASE
    part = _PART_DOCUMENTS * (2 * dim * FLOAT_BYTES + (size.now - size.index_now) // max(documents, 1))
    return base + part + 3 * (size.now - size.index_now) + (2 * size.index_after if size.is_built else 0)


def migrate_memory(size: StoreBytes, pairs: int, source_dim: int, dim: int, *, is_local: bool) -> int:
    """Peak memory of a fit on so many pairs, or of the translation, whichever is more.

    A fit holds every true vector, its pairs in float64 some times over, and the system of the old dimension; a
    translation holds batches of 16 MiB and, where the stitch reads texts, many times that of their words.
    """
    width, fitted = source_dim + dim, min(pairs, MOST_PAIRS)
    fit = pairs * dim * FLOAT_BYTES + (4 * fitted * width + 3 * source_dim * width) * 2 * FLOAT_BYTES
    translate = 20 * 16 * _MIB + (2 * size.index_after if size.is_built else 0)
    base = _BASE_LOCAL if is_local else _BASE_FIT
    return base + max(fit, translate) + 3 * (size.now - size.index_now)


SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of the store that a migration may re-embed, each a plan."""

_IN_FLIGHT = 8
QUERIES = 1_000
_NEAR = 1.05
"""A share this much above the sample of a stitch is a plan of its own."""

FEWEST_PAIRS = 40
"""Below these a fit draws no learning curve: too few to learn a map from."""

FULL, STAY, MIGRATE, FIRST_TOKENS, TWO_STAGE = "full re-embed", "stay", "migrate", "first tokens", "two-stage"


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to move a store.

    `documents` are embedded, a `share` (0-1) of those with a text of their own, with `tokens` in `requests` (None for
    a local model). Money is None where no price is known, minutes and bytes where they cannot be. `quality` is what
    is known of the result; `first_tokens` of every document are embedded too.
    """

    kind: str
    name: str
    share: float
    documents: int
    tokens: int
    requests: int | None = None
    usd: float | None = None
    batch_usd: float | None = None
    minutes: float | None = None
    disk_bytes: int | None = None
    memory_bytes: int | None = None
    quality: str = NOTHING
    known: KnownPoint | None = None
    downtime: str = "none"
    first_tokens: int | None = None

    @property
    def quality_known(self) -> float:
        """What is expected or was measured; 0 where nothing is known."""
        return 0.0 if self.known is None else self.known.estimate

    @property
    def outcome(self) -> str | None:
        """What an audit has found of it; None where none has."""
        return None if self.known is None else self.known.outcome


@dataclass(frozen=True, slots=True)
class Pricing:
    """All that a plan's cost depends on, beside what it embeds."""

    target: Profile
    count: TextCount
    size: StoreBytes | None
    source_dim: int
    rate: Rate | None
    texts_per_request: int | None = None

    @property
    def tokens_per_document(self) -> float:
        """On average, of what is not in the cache."""
        return self.count.tokens_to_embed / max(self.count.to_embed, 1)

    def usd(self, tokens: int) -> tuple[float | None, float | None]:
        """Return what tokens cost, and what they cost in a batch."""
        target = self.target
        return usd_of(tokens, target.price_usd_per_mtok), usd_of(tokens, target.batch_price_usd_per_mtok)

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
            *self.usd(tokens),
            None if rate is None else rate.minutes(sent, tokens),
        )


def full_plan(pricing: Pricing) -> Plan:
    """Embed everything that is not in the cache."""
    count, size, dim = pricing.count, pricing.size, pricing.target.dim
    plan = pricing.cost(FULL, FULL, count.to_embed, count.tokens_to_embed)
    if size is None or dim is None:
        return replace(plan, quality=REFERENCE)
    memory = embed_memory(size, count.documents, dim, is_local=pricing.target.is_local)
    return replace(
        plan, quality=REFERENCE, disk_bytes=size.after + cache_bytes(count.to_embed, dim), memory_bytes=memory
    )


def stay_plan(pricing: Pricing, known: KnownPoint | None) -> Plan:
    """Leave everything as it is: what a move has to beat."""
    plan = pricing.cost(STAY, STAY, 0, 0)
    return replace(plan, quality=known.sentence if known else STAYED, known=known, disk_bytes=0, minutes=0.0)


def migrate_plan(
    pricing: Pricing,
    documents: int,
    name: str | None = None,
    measured: KnownPoint | None = None,
    *,
    pairs: int | None = None,
) -> Plan:
    """Embed so many documents, learn from them, or from `pairs` with what was paid for, and translate the others."""
    pairs = documents if pairs is None else pairs
    count, size, dim = pricing.count, pricing.size, pricing.target.dim
    share = documents / max(count.to_embed, 1)
    tokens = round(documents * pricing.tokens_per_document)
    plan = pricing.cost(MIGRATE, name or f"migrate {share:.0%}", documents, tokens)
    quality = measured.sentence if measured else NOTHING
    plan = replace(plan, quality=quality if pairs >= FEWEST_PAIRS else "too few to learn from", known=measured)
    if size is None or dim is None:
        return plan
    disk = size.after + cache_bytes(documents, dim) + stitch_bytes(pairs, pricing.source_dim, dim)
    memory = migrate_memory(size, pairs, pricing.source_dim, dim, is_local=pricing.target.is_local)
    return replace(plan, disk_bytes=disk, memory_bytes=memory)


def make_plans(
    pricing: Pricing,
    measured: Sequence[KnownPoint],
    shares: Iterable[float] = SHARES,
    quality: StitchQuality | None = None,
) -> list[Plan]:
    """The full re-embed, a migration for each share, and one for each point of which something is known.

    Of the others `quality` says what to expect; its sample is paid for, and counts: a share is then of all documents
    that will have true vectors.
    """
    if quality is not None:
        return [full_plan(pricing), *_plans_of_stitch(pricing, measured, shares, quality)]
    total = pricing.count.to_embed
    at = {max(round(share * total), 1): f"migrate {share:.0%}" for share in shares if total}
    points = best_points(measured)
    for documents in points:
        near = [number for number in at if abs(number - documents) <= 0.005 * total]
        for number in near:
            del at[number]
        at[documents] = f"migrate {documents / max(total, 1):.0%}"
    return [full_plan(pricing), *(migrate_plan(pricing, n, at[n], points.get(n)) for n in sorted(at))]


def _plans_of_stitch(
    pricing: Pricing, measured: Sequence[KnownPoint], shares: Iterable[float], quality: StitchQuality
) -> list[Plan]:
    """The stitch as it is, and with true vectors for larger shares of the store; what an audit found goes first."""
    total, points = pricing.count.distinct, best_points(measured)
    at = {round(share * total): f"migrate {share:.0%}" for share in shares if share * total > quality.pairs * _NEAR}
    at |= {documents: f"migrate {documents / max(total, 1):.0%}" for documents in points}
    at[quality.pairs] = f"the stitch as it is, {quality.pairs / max(total, 1):.0%}"
    expected = {n: points.get(n) or quality.expected(n, total, first_tokens=quality.leans) for n in at}
    return [migrate_plan(pricing, max(n - quality.pairs, 0), at[n], expected[n], pairs=n) for n in sorted(at)]


def mixed_plans(
    pricing: Pricing, quality: StitchQuality, wanted: float, cuts: Mapping[int, TextCount]
) -> Iterator[Plan]:
    """The plans that `wanted` overlap@10 may be expected of, for the fewest documents: without first tokens, and with.

    `cuts` are the counts of first tokens, of the numbers that were looked at.
    """
    total = pricing.count.distinct
    documents = quality.fewest(wanted, total)
    if documents is not None:
        point = quality.expected(documents, total)
        yield migrate_plan(pricing, documents - quality.pairs, f"for {wanted:g}", point, pairs=documents)
    tokens = quality.first_tokens
    documents = None if tokens is None else quality.fewest(wanted, total, first_tokens=True)
    if tokens is not None and documents is not None:
        point = quality.expected(documents, total, first_tokens=True)
        more, name = documents - quality.pairs, f"for {wanted:g}, first {tokens} tokens of all"
        yield first_tokens_plan(pricing, tokens, cuts[tokens], more, point, name=name)


def bought_plans(
    pricing: Pricing, quality: StitchQuality | None, left: float, name: str, cuts: Mapping[int, TextCount]
) -> Iterator[Plan]:
    """What so many tokens, beside a stitch's sample, buy: more documents, or first tokens and the rest."""
    each = pricing.tokens_per_document
    pairs, total = (0, pricing.count.distinct) if quality is None else (quality.pairs, pricing.count.distinct)
    documents = min(max(int(left / each), 0), pricing.count.to_embed) if each else 0
    expected = None if quality is None else quality.expected(pairs + documents, total)
    yield migrate_plan(pricing, documents, name, expected, pairs=pairs + documents)
    tokens = None if quality is None else quality.first_tokens
    if quality is None or tokens is None or left < cuts[tokens].tokens_to_embed:
        return
    more = min(int((left - cuts[tokens].tokens_to_embed) / each), pricing.count.to_embed) if each else 0
    point = quality.expected(pairs + more, total, first_tokens=True)
    yield first_tokens_plan(pricing, tokens, cuts[tokens], more, point, name=f"{name}, first {tokens} tokens of all")


def first_tokens_plan(
    pricing: Pricing, tokens: int, cut: TextCount, documents: int, known: KnownPoint | None, *, name: str | None = None
) -> Plan:
    """Embed the first tokens of all documents, counted by `cut`, beside a migration that leans on them."""
    name = name or f"{documents:,} and first {tokens} tokens of all"
    plan = migrate_plan(pricing, documents, name, known, pairs=known.documents if known else None)
    total = plan.tokens + cut.tokens_to_embed
    usd, batch_usd = pricing.usd(total)
    return replace(
        plan, kind=FIRST_TOKENS, tokens=total, usd=usd, batch_usd=batch_usd, minutes=None, first_tokens=tokens
    )


def _comparable(plans: Iterable[Plan]) -> list[Plan]:
    """Return the plans of which something is known by one measure: retention where an audit has it, else overlap@10."""
    known = [plan for plan in plans if plan.known is not None and plan.kind != STAY]
    return [plan for plan in known if plan.outcome is not None] or known


def best_within(plans: Sequence[Plan], tokens: float) -> Plan | None:
    """Return the plan of so many tokens at most of which most is expected; None where of none anything is."""
    able = _comparable(plan for plan in plans if plan.tokens <= tokens)
    return max(able, key=lambda plan: plan.quality_known, default=None)


def cheapest_for(plans: Sequence[Plan], wanted: float) -> Plan | None:
    """Return the plan of the fewest tokens that `wanted` is expected of, or more."""
    able = [plan for plan in _comparable(plans) if plan.quality_known >= wanted]
    return min(able, key=lambda plan: plan.tokens, default=None)


def best_points(points: Sequence[KnownPoint]) -> dict[int, KnownPoint]:
    """One point for each number of documents: a frontier's before a fit's, of policies the one that keeps most."""
    best: dict[int, KnownPoint] = {}
    for point in points:
        rival = best.get(point.documents)
        if rival is None or _rank(point) > _rank(rival):
            best[point.documents] = point
    return best


def _rank(point: KnownPoint) -> tuple[bool, bool, float]:
    return point.outcome is not None, point.is_cheapest_safe, point.lower if point.lower is not None else -1.0


def two_stage_plan(
    pricing: Pricing, documents: int, query_tokens: int, *, is_bound: bool, known: KnownPoint | None = None
) -> Plan:
    """What 1,000 queries embed beside a translated store: `documents` for the first time, and themselves."""
    tokens = round(documents * pricing.tokens_per_document) + query_tokens
    at_most = ", at most" if is_bound else ""
    plan = pricing.cost(TWO_STAGE, f"two-stage {DEPTH}, {QUERIES:,} queries{at_most}", documents, tokens)
    if known is not None:
        plan = replace(plan, quality=known.sentence, known=known)
    dim = pricing.target.dim
    return plan if dim is None else replace(plan, disk_bytes=cache_bytes(documents, dim))
