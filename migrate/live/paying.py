"""The budget of the worker over all its runs, kept below the embedding cache.

Only what is not in the cache comes here, so that nothing is counted which costs nothing. The texts by which a model is
proved to be the one it was are sent, and so count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Final

import numpy as np

from migrate.cost import usd_of
from migrate.cost.count import Tally
from migrate.embedders.base import Embedder, Keep, Role, WrappedEmbedder, gather
from migrate.errors import SpendingError, UsageError
from migrate.live.state import LiveState
from migrate.steps.translate.choice import Budget
from migrate.vectors import Progress, Text, Vectors, no_progress

_SPENT: Final = "own spent by the worker"


@dataclass(frozen=True, slots=True)
class WorkerSpending:
    """Texts and tokens: what the worker of a store has sent in all its runs, or the most that it may."""

    documents: float = 0
    tokens: float = 0

    @classmethod
    def kept_in(cls, state: LiveState) -> WorkerSpending:
        """Return the spending that a state has noted."""
        return cls(**(state.value(_SPENT) or {}))

    @classmethod
    def most(cls, budget: Budget | None, count: int, price: float | None) -> WorkerSpending:
        """Return the most that a budget allows, in a store of `count` documents, by a price of a million tokens.

        Raises UsageError: the budget is in dollars, and the price is not known.
        """
        if budget is None:
            return cls(inf, inf)
        match budget.unit:
            case "share":
                return cls(round(budget.amount * count), inf)
            case "documents":
                return cls(budget.amount, inf)
            case "tokens":
                return cls(inf, budget.amount)
        if price is None:
            raise UsageError(
                f"--budget {budget}: the model's price is not known; give --price, a share such as 10%, or a number "
                "of documents or tokens"
            )
        return cls(inf, budget.amount / price * 1e6 if price else inf)


class Account:
    """The spending of the worker on a store, in all its runs; kept in the state before anything is sent."""

    def __init__(self, state: LiveState, tally: Tally, budget: Budget | None, count: int) -> None:
        self.state = state
        self.tally = tally
        self.budget = budget
        self.limit_to(count)

    def limit_to(self, count: int) -> None:
        """Keep to the budget in a store of so many documents."""
        self._most = WorkerSpending.most(self.budget, count, self.tally.price)

    @property
    def spent(self) -> WorkerSpending:
        """Texts and tokens that were sent."""
        return WorkerSpending.kept_in(self.state)

    @property
    def room(self) -> float:
        """Texts that a budget of texts still has room for; infinity for any other budget."""
        return max(self._most.documents - self.spent.documents, 0)

    def fits(self, texts: Sequence[Text]) -> int:
        """Return how many of the texts, from the first, the budget still has room for."""
        by_number = min(len(texts), self.room)
        if self._most.tokens == inf:
            return int(by_number)
        tokens = self.spent.tokens + np.cumsum(self.tally.tokens(texts))
        return int(min(by_number, (tokens <= self._most.tokens).sum()))

    def require_room(self, texts: Sequence[Text]) -> None:
        """Make sure that the budget has room for all of them, as `fits` says; raises `SpendingError`."""
        if self.fits(texts) < len(texts):
            raise SpendingError(f"the budget of {self.budget} is used up; raise --budget to go on")

    def pay(self, texts: Sequence[Text]) -> int:
        """Note what the texts cost, and return their tokens; raises as `require_room`."""
        self.require_room(texts)
        tokens = int(self.tally.tokens(texts).sum())
        self.note(len(texts), tokens)
        return tokens

    def note(self, documents: int, tokens: int) -> None:
        """Note texts that are sent, and their tokens; fewer than 0 are of texts that were not embedded."""
        spent = self.spent
        # Before anything is sent: a process that is killed has spent it, and must not spend it again
        spent = WorkerSpending(max(spent.documents + documents, 0), max(spent.tokens + tokens, 0))
        self.state.note(_SPENT, asdict(spent))

    def count(self, documents: int, tokens: int) -> None:
        """Count texts that were embedded."""
        usd = usd_of(tokens, self.tally.price) or 0.0
        self.state.count({"embedded_by_worker": documents, "tokens": tokens, "usd": usd})


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
        if texts:
            return gather(self, texts, role, progress)
        return self.embedder.embed(texts, role)

    def embed_each(self, texts: Sequence[Text], role: Role, keep: Keep, *, progress: Progress = no_progress) -> None:
        """Embed as the embedder inside; where the budget has no room for all, none is sent: SpendingError."""
        done = 0

        def keep_and_count(positions: Sequence[int], vectors: Vectors) -> None:
            nonlocal done
            keep(positions, vectors)
            done += len(positions)

        tokens = self.account.pay(texts)
        try:
            self.embedder.embed_each(texts, role, keep_and_count, progress=progress)
        except Exception:
            if not done:  # of a part it is not known what it cost, nor of what a signal broke off
                self.account.note(-len(texts), -tokens)
            raise
        finally:
            if done:
                self.account.count(done, tokens)

    def embed_again(self, texts: Sequence[Text], role: Role) -> Vectors:
        """Embed texts that were embedded before; raises as `embed`."""
        tokens = self.account.pay(texts)
        try:
            vectors = self.embedder.embed(texts, role)
        except Exception:
            self.account.note(-len(texts), -tokens)
            raise
        self.account.count(0, tokens)
        return vectors
