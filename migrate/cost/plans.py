"""The ways to move a store, side by side: what each embeds, costs, takes and needs, and what is known of quality.

Bytes on disk and in memory, before there are any: simple sums, held against real runs by `benchmarks/cost.py`.

A flat index is told to the byte. What a coded index becomes in another dimension is for the writer to find; here its
size goes with the dimension, and the figure is marked as about.

What is known of quality: nothing before a fit, the fit's own interval after it, a frontier after an audit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from migrate.cost.count import TextCount
from migrate.cost.rates import Rate, usd_of
from migrate.cost.target import Target
from migrate.embedders.kinds import split_spec
from migrate.embedders.openai import MAX_REQUEST_TEXTS, MAX_REQUEST_TOKENS, fair_share
from migrate.errors import InputError, OutputError, StitchError
from migrate.files import describe_os_error, is_endless
from migrate.selection.sample import MOST_PAIRS
from migrate.stitch.persistence import load_stitch
from migrate.stitch.select import Selection
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


NOTHING = "nothing yet"
REFERENCE = "the reference itself"
SAFE = "SAFE"
_Z = 1.96


@dataclass(frozen=True, slots=True)
class KnownPoint:
    """What was measured with so many `documents` re-embedded.

    `policy` is that of a frontier, None for the held-out figures of a fit. `estimate`, `lower` and `upper` (95 %) are
    of `measure`, shares (0-1), a bound None where there is none; `outcome` is the audit's.
    """

    documents: int
    measure: str
    estimate: float
    lower: float | None
    upper: float | None
    policy: str | None = None
    outcome: str | None = None
    is_cheapest_safe: bool = False

    @property
    def sentence(self) -> str:
        """The figure in a few words."""
        low, high = ("?" if bound is None else f"{bound:.3f}" for bound in (self.lower, self.upper))
        by = "" if self.policy is None else f", {self.outcome} by {self.policy}"
        return f"{self.measure} {self.estimate:.3f} ({low}..{high}){by}"


@dataclass(frozen=True, slots=True)
class StitchQuality:
    """What a fit knows of the stitch that it made of some `pairs`: held-out overlap@10, with 95 % bounds."""

    pairs: int
    selection: Selection

    @property
    def measured(self) -> KnownPoint:
        """What it found itself."""
        scores = self.selection.best.scores
        span, estimate = _Z * scores.overlap_error, scores.overlap_at_10
        return KnownPoint(self.pairs, "held-out overlap@10", estimate, max(estimate - span, 0), min(estimate + span, 1))

    def expected(self, documents: int) -> KnownPoint | None:
        """What its learning curve says of more pairs; None where there is none, or where these are not more."""
        curve, now = self.selection.curve, self.measured
        if curve is None or self.leans or documents <= self.pairs:
            return None
        gain, low, high = curve.gain_of(self.pairs, documents - self.pairs)
        lower, upper = (now.lower or 0) + min(low, gain), (now.upper or 1) + max(high, gain)
        name = "expected overlap@10"
        return KnownPoint(documents, name, min(now.estimate + gain, 1), max(lower, 0), min(upper, 1))

    @property
    def leans(self) -> bool:
        """Whether the stitch leans on first tokens, which its figures are with."""
        return self.selection.prefix is not None and self.selection.prefix.is_used

    def with_first_tokens(self, tokens: int) -> KnownPoint | None:
        """What it found with so many first tokens of each document; None where it did not try."""
        worth = self.selection.prefix
        if worth is None or worth.tokens != tokens:
            return None
        if self.leans:
            return self.measured
        return KnownPoint(self.pairs, "held-out overlap@10", worth.with_prefix, None, None)


def read_stitch_quality(folder: Path, store: Store, spec: str) -> StitchQuality:
    """What the fit of a stitch knows of it.

    Raises
    ------
    StitchError
        It was fitted on another store, or leads to another model.
    """
    fitted = load_stitch(folder)
    difference = store.snapshot().difference(fitted.manifest.stitch.fitted_on)
    if difference is not None:
        raise StitchError(
            f"{folder}: expected a stitch fitted on {store.info.location}, found one of another store ({difference}); "
            "leave it out"
        )
    model = fitted.manifest.model
    if model is not None and split_spec(spec)[0] == "openai" and model.spec != spec:
        raise StitchError(f"{folder}: expected a stitch to {spec}, found one to {model.spec}; name that with --target")
    return StitchQuality(int(fitted.manifest.counts["pairs"]), fitted.selection)


def read_frontier(path: Path, count: int) -> tuple[KnownPoint, ...]:
    """The points of an audit's frontier, over a store of `count` documents.

    Raises
    ------
    InputError
        The file is no report of an audit with a frontier, or of another store.
    OutputError
        It cannot be read.
    """
    frontier = _read_report(path).get("frontier")
    if not isinstance(frontier, dict):
        raise InputError(f"{path}: expected the report of an audit with --frontier, found none; run audit with it")
    if frontier.get("documents") != count:
        described = f"one of {frontier['documents']}" if "documents" in frontier else "one that does not say"
        raise InputError(
            f"{path}: expected the frontier of a store of {count:,} documents, found {described}; give the report of "
            "this store"
        )
    try:
        best, measured = frontier["cheapest_safe"], frontier.get("measured", "retention")
        return tuple(_point(facts, best, measured) for facts in frontier["points"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: expected the points of a frontier, found others ({error}); audit again") from error


def _read_report(path: Path) -> dict[str, Any]:
    if is_endless(path):
        raise InputError(f"{path}: expected the JSON report of an audit, found a pipe or a device; write it to a file")
    try:
        report = json.loads(path.read_bytes())
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: expected the JSON report of an audit, found something else; check the path"
        ) from error
    return report if isinstance(report, dict) else {}


def _point(facts: dict[str, Any], best: dict[str, Any] | None, measured: str) -> KnownPoint:
    bounds = facts[measured]
    same = best is not None and (best["policy"], best["documents"]) == (facts["policy"], facts["documents"])
    return KnownPoint(
        int(facts["documents"]),
        measured,
        float(bounds["estimate"]),
        bounds["lower"],
        bounds["upper"],
        str(facts["policy"]),
        str(facts["outcome"]),
        same,
    )


SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of the store that a migration may re-embed, each a plan."""

DEPTH = 50
_IN_FLIGHT = 8
QUERIES = 1_000
FEWEST_PAIRS = 40
"""Below these a fit draws no learning curve: too few to learn a map from."""

FULL, MIGRATE, FIRST_TOKENS, TWO_STAGE = "full re-embed", "migrate", "first tokens", "two-stage"
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
    memory = embed_memory(size, count.documents, dim, is_local=pricing.target.is_local)
    return replace(
        plan, quality=REFERENCE, disk_bytes=size.after + cache_bytes(count.to_embed, dim), memory_bytes=memory
    )


def migrate_plan(pricing: Pricing, documents: int, name: str | None = None, measured: KnownPoint | None = None) -> Plan:
    """Embed so many documents, learn from them, and translate the others."""
    count, size, dim = pricing.count, pricing.size, pricing.target.dim
    share = documents / max(count.to_embed, 1)
    tokens = round(documents * pricing.tokens_per_document)
    plan = pricing.cost(MIGRATE, name or f"migrate {share:.0%}", documents, tokens)
    quality = measured.sentence if measured is not None else NOTHING
    if documents < FEWEST_PAIRS:
        quality = "too few to learn from"
    plan = replace(plan, quality=quality, known=measured)
    if size is None or dim is None:
        return plan
    disk = size.after + cache_bytes(documents, dim) + stitch_bytes(documents, pricing.source_dim, dim)
    memory = migrate_memory(size, documents, pricing.source_dim, dim, is_local=pricing.target.is_local)
    return replace(plan, disk_bytes=disk, memory_bytes=memory)


def make_plans(
    pricing: Pricing,
    measured: Sequence[KnownPoint],
    shares: Iterable[float] = SHARES,
    quality: StitchQuality | None = None,
) -> list[Plan]:
    """The full re-embed, a migration for each share, and one for each point of which something is known.

    Of the others `quality` says what to expect.
    """
    total = pricing.count.to_embed
    at = {max(round(share * total), 1): f"migrate {share:.0%}" for share in shares if total}
    points = best_points(measured)
    for documents in points:
        near = [number for number in at if abs(number - documents) <= 0.005 * total]
        for number in near:
            del at[number]
        at[documents] = f"migrate {documents / max(total, 1):.0%}"
    known = {n: points.get(n) or (None if quality is None else quality.expected(n)) for n in at}
    return [full_plan(pricing), *(migrate_plan(pricing, n, at[n], known[n]) for n in sorted(at))]


def first_tokens_plan(pricing: Pricing, tokens: int, cut: TextCount, pairs: int, known: KnownPoint | None) -> Plan:
    """Embed the first tokens of all documents, counted by `cut`, beside a migration that leans on them."""
    plan = migrate_plan(pricing, pairs, f"{pairs:,} and first {tokens} tokens of all", known)
    cost = pricing.cost(FIRST_TOKENS, plan.name, plan.documents, plan.tokens + cut.tokens_to_embed)
    return replace(plan, kind=FIRST_TOKENS, tokens=cost.tokens, usd=cost.usd, batch_usd=cost.batch_usd, minutes=None)


def best_within(plans: Sequence[Plan], tokens: float) -> Plan | None:
    """The plan of so many tokens at most of which most is expected; None where of none anything is.

    Plans are compared by one measure: retention where an audit has measured it, else overlap@10.
    """
    able = [plan for plan in plans if plan.known is not None and plan.tokens <= tokens]
    audited = [plan for plan in able if plan.known is not None and plan.known.outcome is not None]
    return max(audited or able, key=lambda plan: plan.known.estimate if plan.known else 0.0, default=None)


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


def two_stage_plan(pricing: Pricing, documents: int, query_tokens: int, *, is_bound: bool) -> Plan:
    """What 1,000 queries embed beside a translated store: `documents` for the first time, and themselves."""
    tokens = round(documents * pricing.tokens_per_document) + query_tokens
    at_most = ", at most" if is_bound else ""
    plan = pricing.cost(TWO_STAGE, f"two-stage {DEPTH}, {QUERIES:,} queries{at_most}", documents, tokens)
    dim = pricing.target.dim
    return plan if dim is None else replace(plan, disk_bytes=cache_bytes(documents, dim))
