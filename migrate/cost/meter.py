"""An embedder that knows what it costs, and refuses the batch that would go beyond a cap before it is sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from migrate.cost.rates import usd_of
from migrate.display import dollars
from migrate.embedders.abilities import usage_tokens
from migrate.embedders.base import Embedder, Keep, Role, WrappedEmbedder, with_model
from migrate.embedders.cache import is_kept
from migrate.embedders.tokens import Counts, TokenCounter, whole
from migrate.errors import SpendingError
from migrate.vectors import Progress, Text, Vectors, no_progress


@dataclass
class SpendingCap:
    """The limit of several models together: `cap_usd` dollars, None for no cap; may be changed while they run."""

    cap_usd: float | None = None
    meters: list[MeteredEmbedder] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _metered: dict[int, tuple[Embedder, Embedder, MeteredEmbedder | None]] = field(default_factory=dict, repr=False)

    @property
    def spent_usd(self) -> float:
        """The dollars that were spent; tokens without a price count nothing."""
        return sum(meter.usd or 0 for meter in self.meters)

    def allows(self, usd: float | None) -> bool:
        """Return whether so much more stays within the cap, with what others were allowed and have not spent yet."""
        allowed = sum(usd_of(meter.allowed, meter.price) or 0 for meter in self.meters)
        return usd is None or self.cap_usd is None or self.spent_usd + allowed + usd <= self.cap_usd

    def meter(self, embedder: Embedder, price_usd_per_mtok: float | None = None) -> Embedder:
        """Return the embedder that spends under this cap, one for each; a free one is returned as it is."""
        return self._put(embedder, price_usd_per_mtok)[1]

    def meter_of(self, embedder: Embedder) -> MeteredEmbedder | None:
        """Return the meter of an embedder, one with a meter or without; None where it costs no money."""
        return self._put(embedder, None)[2]

    def _put(self, embedder: Embedder, price: float | None) -> tuple[Embedder, Embedder, MeteredEmbedder | None]:
        if id(embedder) not in self._metered:
            profile = embedder.profile.at_price(price)
            metered = embedder
            meter = None
            # None is of a model of which nobody knows whether it costs money, so its tokens are counted
            if profile.is_paid is not False:
                metered, meter = put_meter(embedder, profile.counter, profile.price_usd_per_mtok, self)
            # Both are kept alive, so that no other object gets their ids
            self._metered[id(embedder)] = self._metered[id(metered)] = (embedder, metered, meter)
        return self._metered[id(embedder)]


class MeteredEmbedder(WrappedEmbedder):
    """Counts what another embedder is asked for, and stops before it costs more than its cap allows.

    It stands below the embedding cache, which keeps each batch before it asks for the next: what was paid for when the
    cap is reached is on disk, and what is on disk is not counted. What the server says it charged goes before what was
    counted here.

    Attributes
    ----------
    cap : what may be spent, shared with the other models of a plan
    kept : whether what is paid for is in a cache, for the message
    allowed : tokens that calls of other threads are about to pay for, a little more than were counted
    """

    def __init__(
        self,
        embedder: Embedder,
        counter: TokenCounter,
        price_usd_per_mtok: float | None,
        *,
        cap: SpendingCap | None = None,
        keeps_answers: bool = True,
    ) -> None:
        super().__init__(embedder)
        self.counter = counter
        self.price = price_usd_per_mtok
        if cap is None:
            cap = SpendingCap()
        self.cap = cap
        self.cap.meters.append(self)
        self.keeps_answers = keeps_answers
        self.allowed = 0.0
        self._counted = 0
        self._charged_before = usage_tokens(embedder)

    def around(self, embedder: Embedder) -> MeteredEmbedder:
        """Return another embedder, metered at the same price under the same cap."""
        return MeteredEmbedder(embedder, self.counter, self.price, cap=self.cap, keeps_answers=self.keeps_answers)

    @property
    def tokens(self) -> int:
        """Tokens that were paid for since the meter began: the server's figure, or that of the counter."""
        # What the server says it charged goes before what was counted here
        return usage_tokens(self.embedder) - self._charged_before or self._counted

    @property
    def usd(self) -> float | None:
        """The dollars that these cost; None where no price is known."""
        return usd_of(self.tokens, self.price)

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed by the embedder below.

        Raises SpendingError: the texts would cost more than what is left of the cap; none of them was sent.
        """
        # All or nothing: a caller of `embed` has no use for a part
        tokens = int(self._count(texts, role).sum())
        with self._allow(np.array([tokens])):
            vectors = self.embedder.embed(texts, role, progress=progress)
            self._counted += tokens
        return vectors

    def embed_each(self, texts: Sequence[Text], role: Role, keep: Keep, *, progress: Progress = no_progress) -> None:
        """Embed by the embedder below, up to the last text that the cap has room for.

        Raises SpendingError: there are more texts than that; what was embedded of them has been handed over.
        """
        counts = self._count(texts, role)
        done = 0

        def keep_and_count(positions: Sequence[int], vectors: Vectors) -> None:
            rows = [done + position for position in positions]
            self._counted += int(counts[rows].sum())
            keep(rows, vectors)

        def report(stage: str, count: int, _total: int | None) -> None:
            progress(stage, done + count, len(texts))

        while done < len(texts):
            # Again and again: what was charged may leave more room than what was counted
            with self._allow(counts[done:]) as fits:
                self.embedder.embed_each(texts[done : done + fits], role, keep_and_count, progress=report)
            done += fits

    @contextmanager
    def _allow(self, counts: Counts) -> Iterator[int]:
        """Reserve room under the cap for as many of the texts with these tokens as it has; yield how many these are.

        Raises SpendingError: it has no room for the first.
        """
        with self.cap.lock:
            totals = np.cumsum(counts).tolist()
            # Totals only rise, so those within the cap are the first ones
            fits = sum(map(self._is_within, totals))
            if not fits:
                raise self._beyond_cap(int(counts[0]))
            # Reserved until the call is back: other threads may not spend it meanwhile
            room = totals[fits - 1] * (1 + self.counter.error)
            self.allowed += room
        try:
            yield fits
        finally:
            with self.cap.lock:
                self.allowed -= room

    def _count(self, texts: Sequence[Text], role: Role) -> Counts:
        if not texts:
            return np.zeros(0, dtype=np.int64)
        profile = self.embedder.profile
        prefix = profile.document_prefix
        if role == "query":
            prefix = profile.query_prefix
        return self.counter.count([prefix + whole(text.text) for text in texts])

    def _is_within(self, tokens: int) -> bool:
        """Return whether so many tokens more, and as many more as the counter may be off, stay within the cap."""
        return self.cap.allows(usd_of(tokens * (1 + self.counter.error), self.price))

    def _beyond_cap(self, tokens: int) -> SpendingError:
        spent = self.cap.spent_usd
        total = dollars(spent + (usd_of(tokens * (1 + self.counter.error), self.price) or 0))
        consequence = "without a cache only finished parts are kept"
        if self.keeps_answers:
            consequence = "everything paid for is in the cache"
        return SpendingError(
            f"{dollars(spent)} are spent, and what comes next would make it {total}, beyond the limit of "
            f"{dollars(self.cap.cap_usd or 0)}; {consequence}, raise --max-cost (max_cost in Python) to go on"
        )


def put_meter(
    embedder: Embedder, counter: TokenCounter, price_usd_per_mtok: float | None, cap: SpendingCap | None = None
) -> tuple[Embedder, MeteredEmbedder]:
    """Return an embedder with a meter in it, below the cache where there is one, else around it; and the meter."""
    meters: list[MeteredEmbedder] = []

    def meter(model: Embedder) -> Embedder:
        # Below the cache, which keeps each batch before it asks for the next: what was paid for is on disk when the cap
        # is reached
        meters.append(MeteredEmbedder(model, counter, price_usd_per_mtok, cap=cap, keeps_answers=is_kept(embedder)))
        return meters[-1]

    metered = with_model(embedder, meter)
    return metered, meters[0]
