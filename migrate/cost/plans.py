"""The ways to move a store, side by side: what each embeds, costs, takes and needs, and what is known of quality.

Bytes on disk and in memory, before there are any, are simple sums, held against real runs by `benchmarks/cost.py`. A
flat index is told to the byte. What a coded index becomes in another dimension is for the writer to find; here its size
goes with the dimension, and the figure is marked as about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from migrate.cost.count import TextCount
from migrate.cost.quality import KnownPoint, StitchQuality
from migrate.cost.rates import Rate, usd_of
from migrate.embedders.openai import fair_share
from migrate.embedders.profile import Profile
from migrate.selection.sample import MOST_PAIRS
from migrate.stitch.confidence import DEPTH
from migrate.stores.base import Store
from migrate.stores.file_store import file_bytes

FLOAT_BYTES = 4
_MIB = 1 << 20
_BASE_LOCAL = 900 * _MIB
"""Python with torch and a small model; a large one takes its weights beside."""


@dataclass(frozen=True, slots=True)
class StoreBytes:
    """Bytes of a store now and after it moved. `is_exact` says whether those of the new index are known to the byte."""

    now: int
    index_now: int
    index_after: int
    is_exact: bool
    is_built: bool

    @property
    def total_after(self) -> int:
        """The new store: index, ids and texts, without the few kilobytes of a manifest."""
        return self.now - self.index_now + self.index_after


def store_bytes(store: Store, dim: int) -> StoreBytes:
    """Return what a store takes up, and will take up with vectors of dimension `dim`.

    An index that keeps whole vectors changes by four bytes a number, an inverted one by its centroids too. One that is
    built anew (`is_built`: all but flat ones) needs its rows on disk and the whole index in memory while it is built.
    """
    info = store.info
    now = file_bytes(store)
    index = int(info.details.get("index_bytes", info.count * info.dim * FLOAT_BYTES))
    rows = info.count + int(info.details.get("nlist", 0))
    new_bytes = index + rows * (dim - info.dim) * FLOAT_BYTES
    kind = info.index_type.replace("IndexIDMap2(", "").replace("IndexIDMap(", "").rstrip(")")
    is_flat = kind.startswith(("IndexFlat", "array", "column"))
    whole = is_flat or kind.startswith(("IndexIVFFlat", "IndexHNSWFlat"))
    return StoreBytes(
        max(now, index), index, new_bytes if whole else round(index * dim / info.dim), is_flat, not is_flat
    )


def cache_bytes(documents: int, dim: int) -> int:
    """Return the bytes that the embedding cache grows by."""
    return documents * (dim * FLOAT_BYTES + 64)  # key, checksum, SQLite's own


def stitch_bytes(pairs: int, source_dim: int, dim: int) -> int:
    """Return the bytes of a linear map and the true vectors of its sample; a reader of texts takes some MB more."""
    return (source_dim * dim + pairs * dim) * FLOAT_BYTES


def embed_memory(size: StoreBytes, documents: int, dim: int, *, is_local: bool) -> int:
    """Return the peak memory of embedding: a part of vectors and texts, ids and texts of the store, a built index."""
    base = _BASE_LOCAL if is_local else 64 * _MIB  # NumPy, a client and the reader of a store
    block_bytes = 1_024 * (2 * dim * FLOAT_BYTES + (size.now - size.index_now) // max(documents, 1))
    return base + block_bytes + 3 * (size.now - size.index_now) + (2 * size.index_after if size.is_built else 0)


def migrate_memory(size: StoreBytes, pairs: int, source_dim: int, dim: int, *, is_local: bool) -> int:
    """Return the peak memory of a fit on so many pairs, or of the translation, whichever is more.

    A fit holds every true vector, its pairs in float64 some times over, and the system of the old dimension; a
    translation holds batches of 16 MiB and, where the stitch reads texts, many times that of their words.
    """
    width, fitted = source_dim + dim, min(pairs, MOST_PAIRS)
    fit = pairs * dim * FLOAT_BYTES + (4 * fitted * width + 3 * source_dim * width) * 2 * FLOAT_BYTES
    translate = 20 * 16 * _MIB + (2 * size.index_after if size.is_built else 0)
    base = _BASE_LOCAL if is_local else 350 * _MIB  # SciPy, scikit-learn and what is kept of texts
    return base + max(fit, translate) + 3 * (size.now - size.index_now)


QUERIES = 1_000
FULL, STAY, MIGRATE, TWO_STAGE = "full re-embed", "stay", "migrate", "two-stage"


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
    requests: int | None = None
    usd: float | None = None
    batch_usd: float | None = None
    minutes: float | None = None
    disk_bytes: int | None = None
    memory_bytes: int | None = None
    quality: str = "nothing yet"
    known: KnownPoint | None = None
    downtime: str = "none"

    @property
    def quality_known(self) -> float:
        """The figure that is expected or was measured; 0 where nothing is known."""
        return 0.0 if self.known is None else self.known.estimate


@dataclass(frozen=True, slots=True)
class Planner:
    """The plans for a store, and all that their costs depend on beside what they embed.

    `quality` is what a fit says of its stitch, whose sample is paid for, and counts. Without a `dim` of the target,
    sizes are not known.
    """

    target: Profile
    count: TextCount
    size: StoreBytes | None
    source_dim: int
    rate: Rate | None
    texts_per_request: int | None
    quality: StitchQuality | None

    @property
    def tokens_per_document(self) -> float:
        """On average, of what is not in the cache."""
        return self.count.tokens_to_embed / max(self.count.to_embed, 1)

    def _plan(self, kind: str, name: str, documents: int, tokens: int) -> Plan:
        """Return a plan that embeds so much, without what belongs to its kind."""
        target, sent = self.target, documents
        if target.is_api:
            each = self.texts_per_request or fair_share(documents, 8, target.request_texts)  # as many fly at a time
            sent = ceil(max(documents / each, tokens / target.request_tokens))
        return Plan(
            kind,
            name,
            documents / max(self.count.to_embed, 1),
            documents,
            tokens,
            sent if target.is_api else None,
            usd_of(tokens, target.price_usd_per_mtok),
            usd_of(tokens, target.batch_price_usd_per_mtok),
            None if self.rate is None else self.rate.minutes(sent, tokens),
        )

    def full(self) -> Plan:
        """Embed everything that is not in the cache."""
        count, size, dim = self.count, self.size, self.target.dim
        plan = replace(self._plan(FULL, FULL, count.to_embed, count.tokens_to_embed), quality="the reference itself")
        if size is None or dim is None:
            return plan
        memory = embed_memory(size, count.documents, dim, is_local=self.target.is_local)
        return replace(plan, disk_bytes=size.total_after + cache_bytes(count.to_embed, dim), memory_bytes=memory)

    def stay(self, expected: KnownPoint | None) -> Plan:
        """Leave everything as it is: what a move has to beat."""
        # of the new model's nDCG@10, between two published models and both ways: `benchmarks/models.py` prints it
        quality = expected.sentence if expected else "elsewhere 88 to 113 %"
        return replace(self._plan(STAY, STAY, 0, 0), quality=quality, known=expected, disk_bytes=0, minutes=0.0)

    def migrate(
        self,
        documents: int,
        name: str,
        expected: KnownPoint | None = None,
        *,
        pairs: int | None = None,
    ) -> Plan:
        """Embed so many documents, learn from them, or from `pairs` with those paid for; translate the rest."""
        pairs = documents if pairs is None else pairs
        size, dim, tokens = self.size, self.target.dim, round(documents * self.tokens_per_document)
        plan = self._plan(MIGRATE, name, documents, tokens)
        plan = replace(plan, known=expected)
        if pairs < 40:  # a fit draws no learning curve
            plan = replace(plan, quality="too few to learn from")
        elif expected is not None:
            plan = replace(plan, quality=expected.sentence)
        if size is None or dim is None:
            return plan
        disk = size.total_after + cache_bytes(documents, dim) + stitch_bytes(pairs, self.source_dim, dim)
        memory = migrate_memory(size, pairs, self.source_dim, dim, is_local=self.target.is_local)
        return replace(plan, disk_bytes=disk, memory_bytes=memory)

    def by_share(self) -> Iterator[Plan]:
        """Yield a migration for each of some shares, and the stitch as it is.

        With a stitch, a share is of all documents that will have true vectors.
        """
        quality = self.quality
        total = self.count.to_embed if quality is None else self.count.distinct
        paid = 0 if quality is None else quality.pairs
        sizes = {max(round(share * total), 1) for share in (0.01, 0.05, 0.1, 0.2, 0.5) if share * total > 1.05 * paid}
        for n in sorted({*sizes, *([] if quality is None else [paid])}):
            name = f"migrate {n / max(total, 1):.0%}"
            if quality is not None and n == paid:
                name = f"the stitch as it is, {n / max(total, 1):.0%}"
            yield self.migrate(max(n - paid, 0), name, self._expected(n), pairs=n)

    def for_quality(self, quality_wanted: float) -> Iterator[Plan]:
        """Yield the plan of the fewest documents that may have `quality_wanted` overlap@10, if there is one."""
        quality = self.quality
        documents = None if quality is None else quality.fewest(quality_wanted, self.count.distinct)
        if quality is not None and documents is not None:
            expected = self._expected(documents)
            yield self.migrate(documents - quality.pairs, f"for {quality_wanted:g}", expected, pairs=documents)

    def within(self, tokens: float, name: str) -> Plan:
        """Return the plan that so many tokens, beside the sample of the stitch, buy."""
        each = self.tokens_per_document
        paid = 0 if self.quality is None else self.quality.pairs
        documents = min(max(int(tokens / each), 0), self.count.to_embed) if each else 0
        return self.migrate(documents, name, self._expected(paid + documents), pairs=paid + documents)

    def _expected(self, documents: int) -> KnownPoint | None:
        """Return what the fit says of so many true vectors."""
        return None if self.quality is None else self.quality.expected(documents, self.count.distinct)

    def two_stage(self, documents: int, query_tokens: int, *, is_bound: bool) -> Plan:
        """Embed what 1,000 queries need beside a translated store: `documents` for the first time, and themselves."""
        expected, dim = None if self.quality is None else self.quality.two_stage(), self.target.dim
        tokens = round(documents * self.tokens_per_document) + query_tokens
        at_most = ", at most" if is_bound else ""
        plan = self._plan(TWO_STAGE, f"two-stage {DEPTH}, {QUERIES:,} queries{at_most}", documents, tokens)
        if expected is not None:
            plan = replace(plan, quality=expected.sentence, known=expected)
        return plan if dim is None else replace(plan, disk_bytes=cache_bytes(documents, dim))


def _comparable(plans: Iterable[Plan]) -> list[Plan]:
    """Return the plans of which something is known by the fit."""
    return [plan for plan in plans if plan.known is not None and plan.kind != STAY]


def best_within(plans: Sequence[Plan], tokens: float) -> Plan | None:
    """Return the plan of so many tokens at most of which most is expected; None where of none anything is."""
    able = _comparable(plan for plan in plans if plan.tokens <= tokens)
    return max(able, key=lambda plan: plan.quality_known, default=None)


def cheapest_for(plans: Sequence[Plan], quality_wanted: float) -> Plan | None:
    """Return the plan of the fewest tokens that `quality_wanted` is expected of, or more."""
    able = [plan for plan in _comparable(plans) if plan.quality_known >= quality_wanted]
    return min(able, key=lambda plan: plan.tokens, default=None)
