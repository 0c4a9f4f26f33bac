"""The budget of the worker over all its runs, and its pace, kept below the embedding cache.

Only what is not in the cache comes here, so that nothing is counted which costs nothing. The texts by which a model is
proved to be the one it was are sent, and so count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np

from migrate.cost import usd_of
from migrate.cost.count import Tally
from migrate.embedders.base import Embedder, Keep, Role, WrappedEmbedder, gather
from migrate.embedders.rates import parse_rate
from migrate.errors import SpendingError, UsageError
from migrate.live.state import LiveState
from migrate.steps.translate.choice import Budget
from migrate.vectors import Progress, Text, Vectors, no_progress

_SPENT: Final = "own spent by the worker"


@dataclass(frozen=True, slots=True)
class Pace:
    """A limit of documents, or tokens of the model, a second."""

    per_second: float
    unit: Literal["documents", "tokens"]

    @classmethod
    def parse(cls, text: str) -> Pace:
        """Read `20/s`, `600/min` or `90000tok/min`.

        >>> Pace.parse("600/min")
        Pace(per_second=10.0, unit='documents')
        """
        rate = parse_rate(text.replace(",", ""))
        if rate is None:
            raise UsageError(
                f"--pace {text}: this is not a pace; write documents or tokens such as 20/s or 90000tok/min"
            )
        amount, seconds, is_tokens = rate
        return cls(amount / seconds, "tokens" if is_tokens else "documents")


def refuse_unpriced(budget: Budget | None, price: float | None) -> None:
    """Make sure that a budget in dollars is one of a model with a price; raises UsageError."""
    if budget is not None and budget.unit == "usd" and price is None:
        raise UsageError(
            f"--budget {budget}: the model's price is not known; give --price, a share such as 10%, or a number of "
            "documents or tokens"
        )


@dataclass(frozen=True, slots=True)
class WorkerSpending:
    """The texts and tokens that the worker of a store has sent, in all its runs."""

    documents: int = 0
    tokens: int = 0

    @classmethod
    def kept_in(cls, state: LiveState) -> WorkerSpending:
        """Return the spending that a state has noted."""
        noted = state.value(_SPENT) or {}
        # A state of an earlier version has not noted the documents
        documents = noted["documents"] if "documents" in noted else state.counters()["embedded_by_worker"]
        return cls(int(documents), int(noted.get("tokens", 0)))


class Account:
    """The spending of the worker on a store, in all its runs; kept in the state before anything is sent.

    `room` says how many more texts may be sent, where the budget is one of documents or a share. `sleep` waits
    for some seconds; it returns False where that was broken off, as somebody asks for something else.
    """

    def __init__(
        self,
        state: LiveState,
        tally: Tally,
        budget: Budget | None,
        pace: Pace | None,
        *,
        room: Callable[[], int],
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        self.state, self.tally = state, tally
        self._room, self._sleep = room, sleep
        self.limit(budget, pace)

    def limit(self, budget: Budget | None, pace: Pace | None) -> None:
        """Go by this budget and pace from now on; what was spent stays spent."""
        refuse_unpriced(budget, self.tally.price)
        self.budget, self.pace = budget, pace
        self._free_at = 0.0

    @property
    def documents(self) -> int:
        """Texts that were sent."""
        return WorkerSpending.kept_in(self.state).documents

    @property
    def tokens(self) -> int:
        """Tokens that were sent, as they are counted."""
        return WorkerSpending.kept_in(self.state).tokens

    @property
    def usd(self) -> float:
        """Their price; 0 where none is known."""
        return usd_of(self.tokens, self.tally.price) or 0.0

    def fits(self, texts: Sequence[Text]) -> int:
        """Return how many of the texts, from the first, the budget still has room for."""
        if self.budget is None:
            return len(texts)
        if self.budget.unit in ("share", "documents"):
            return min(len(texts), self._room())
        tokens = self.tokens + np.cumsum(self.tally.tokens(texts))
        unit_price = (self.tally.price or 0.0) / 1e6 if self.budget.unit == "usd" else 1.0
        return int((tokens * unit_price <= self.budget.amount).sum())

    def require_room(self, texts: Sequence[Text]) -> None:
        """Make sure that the budget has room for all of them, as `fits` says; raises `SpendingError`."""
        if self.fits(texts) < len(texts):
            raise SpendingError(f"the budget of {self.budget} is used up; raise --budget to go on")

    def at_once(self, count: int) -> int:
        """Return how many of `count` texts the pace lets go within five seconds, one at least."""
        if self.pace is None:
            return max(count, 1)
        tokens_each = 1 if self.pace.unit == "documents" else 200  # about; each text is waited for by its own
        return max(min(int(5 * self.pace.per_second / tokens_each), count), 1)

    def pay(self, texts: Sequence[Text]) -> int:
        """Wait for the pace, note what the texts cost, and return their tokens."""
        self.require_room(texts)
        tokens = int(self.tally.tokens(texts).sum())
        if self.pace is not None:
            now = time.monotonic()
            if self._sleep(max(self._free_at - now, 0.0)) is False:
                raise SpendingError("asked to stop before the pace let the next texts go")
            amount = tokens if self.pace.unit == "tokens" else len(texts)
            self._free_at = max(self._free_at, now) + amount / self.pace.per_second
        self.note(len(texts), tokens)
        return tokens

    def note(self, documents: int, tokens: int) -> None:
        """Note texts that are sent, and their tokens; fewer than 0 are of texts that were not embedded."""
        spent = WorkerSpending.kept_in(self.state)
        spent = WorkerSpending(max(spent.documents + documents, 0), max(spent.tokens + tokens, 0))
        self.state.note(_SPENT, asdict(spent))


class PayingEmbedder(WrappedEmbedder):
    """An embedder whose texts are paid for from an account; to be put below the cache (`with_model`)."""

    def __init__(self, embedder: Embedder, account: Account) -> None:
        super().__init__(embedder)
        self.account = account

    def around(self, embedder: Embedder) -> PayingEmbedder:
        """Return another embedder, paid for from the same account."""
        return PayingEmbedder(embedder, self.account)

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed as the embedder inside; raises as `embed_each`."""
        return gather(self, texts, role, progress) if texts else self.embedder.embed(texts, role)

    def embed_each(self, texts: Sequence[Text], role: Role, keep: Keep, *, progress: Progress = no_progress) -> None:
        """Embed as the embedder inside; where the budget has no room for all, none is sent: SpendingError."""
        self.account.require_room(texts)
        size = self.account.at_once(len(texts))
        for first in range(0, len(texts), size):
            chunk, done = texts[first : first + size], 0
            tokens = self.account.pay(chunk)

            def keep_and_count(positions: Sequence[int], vectors: Vectors, first: int = first) -> None:
                nonlocal done
                keep([first + position for position in positions], vectors)
                done += len(positions)

            try:
                self.embedder.embed_each(chunk, role, keep_and_count, progress=progress)
            except Exception:
                if not done:  # of a part it is not known what it cost, nor of what a signal broke off
                    self.account.note(-len(chunk), -tokens)
                raise
            finally:
                if done:
                    self._count(done, tokens)

    def embed_again(self, texts: Sequence[Text], role: Role) -> Vectors:
        """Embed texts that were embedded before; raises as `embed`."""
        tokens = self.account.pay(texts)
        try:
            vectors = self.embedder.embed(texts, role)
        except Exception:
            self.account.note(-len(texts), -tokens)
            raise
        self._count(0, tokens)
        return vectors

    def _count(self, documents: int, tokens: int) -> None:
        usd = usd_of(tokens, self.account.tally.price) or 0.0
        self.account.state.count({"embedded_by_worker": documents, "tokens": tokens, "usd": usd})
