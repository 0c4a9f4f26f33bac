"""The choice of documents to re-embed, before anything but the queries of a log is embedded.

A budget says how many documents of a store may have true vectors, those that were paid for before among them; a survey
what is paid for, how sure the stitch is, and what a query log would find; a policy which documents go first:

query-log    the first hit of every query that was asked, then every second hit ...: what users will meet
confidence   the least sure translations first
random       each with equal chance: the next ones of the order that a random sample is drawn in
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf, isfinite
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from migrate.cost import Estimate, Tally, usd_of
from migrate.errors import StitchError, UsageError
from migrate.selection import Sample, random_order
from migrate.selection.query_log import NearestRows, rank_by_rank
from migrate.selection.sample import QUERY_LOG, RANDOM, DocumentRow, check_choice, distinct_texts
from migrate.stitch.fitted import FittedStitch
from migrate.stores.base import Store
from migrate.stores.confidence import unreliable
from migrate.translate import batch_rows, translated_batches
from migrate.vectors import Document, Progress, Vectors, no_progress


@dataclass(frozen=True, slots=True)
class Budget:
    """A share of the store (0-1), a number of documents, US dollars, or tokens of the target model.

    What was paid for before counts: 10 % are a tenth of the store with true vectors, the sample included.
    """

    amount: float
    unit: Literal["share", "documents", "usd", "tokens"]

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read `10%`, `5000`, `$20` or `300000tok`.

        >>> Budget.parse("10%")
        Budget(amount=0.1, unit='share')

        Raises UsageError: it is none of these, or nothing, or more than 100 %.
        """
        # People type 5,000 as it is printed
        parsed = re.fullmatch(r"(?P<usd>\$)?(?P<amount>\d+(\.\d+)?)(?P<unit>%|tok)?", text.strip().replace(",", ""))
        if parsed is None or (parsed["usd"] and parsed["unit"]):
            raise _not_a_budget(text)
        amount = float(parsed["amount"])
        # Enough digits are read as infinity
        if amount <= 0 or not isfinite(amount):
            raise _not_a_budget(text)
        if parsed["usd"]:
            return cls(amount, "usd")
        if parsed["unit"] == "%":
            if amount > 100:
                raise _not_a_budget(text)
            return cls(amount / 100, "share")
        if amount != int(amount):
            raise _not_a_budget(text)
        if parsed["unit"] == "tok":
            return cls(amount, "tokens")
        return cls(amount, "documents")

    def __str__(self) -> str:
        if self.unit == "share":
            return f"{100 * self.amount:g}%"
        if self.unit == "tokens":
            return f"{self.amount:.0f}tok"
        if self.unit == "usd":
            return f"${self.amount:g}"
        return f"{self.amount:.0f}"

    def choose(self, ranked: Iterable[DocumentRow], paid: Estimate, count: int, tally: Tally) -> Iterator[DocumentRow]:
        """Yield the first of `ranked` that there is room for, beside what was `paid` in a store of `count` documents.

        Dollars are what `tally` makes of the texts.

        Raises UsageError: it is in dollars, and there is no price; or what was paid has used it up.
        """
        if self.unit == "usd":
            return self._choose_by_price(ranked, paid, tally)
        if self.unit == "tokens":
            if paid.tokens >= self.amount:
                raise self._used_up(f"about {paid.tokens:,} tokens")
            return self._while_it_lasts(ranked, paid.tokens, self.amount, tally)
        limit = int(self.amount)
        if self.unit == "share":
            limit = round(self.amount * count)
        if limit <= paid.documents:
            raise self._used_up(f"{paid.documents:,} of {count:,} documents")
        return islice(ranked, limit - paid.documents)

    def _choose_by_price(self, ranked: Iterable[DocumentRow], paid: Estimate, tally: Tally) -> Iterator[DocumentRow]:
        spent = usd_of(paid.tokens, tally.price)
        if spent is None:
            raise UsageError(
                f"a budget of {self} needs a model with a known price; give --price, a share such as 10%, or a number "
                "of documents"
            )
        if spent >= self.amount:
            raise self._used_up(f"about ${spent:.4f}")
        most_tokens = inf
        # Of a free model any number of tokens
        if tally.price:
            # Prices are for a million tokens
            most_tokens = self.amount * 1e6 / tally.price
        return self._while_it_lasts(ranked, paid.tokens, most_tokens, tally)

    def _while_it_lasts(
        self, ranked: Iterable[DocumentRow], tokens: int, most: float, tally: Tally
    ) -> Iterator[DocumentRow]:
        stream = iter(ranked)
        # The ranking is lazy: texts are read no further than the budget goes.
        # 256 is arbitrary: up to so many texts are read beyond the budget, and so many are counted in one call
        while block := list(islice(stream, 256)):
            sums = tokens + np.cumsum(tally.tokens([candidate.document for candidate in block]))
            fits = int((sums <= most).sum())
            yield from block[:fits]
            if fits < len(block):
                return
            tokens = int(sums[-1])

    def _used_up(self, paid: str) -> UsageError:
        return UsageError(
            f"a budget of {self} is used up: {paid} are paid for already, with what the stitch was fitted on; give a "
            "larger budget, or leave it out"
        )


def _not_a_budget(text: str) -> UsageError:
    return UsageError(
        f"{text!r} is not a budget; give one such as 10% of the documents, 5000 documents, $20 or 300000tok (tokens)"
    )


@dataclass(frozen=True, eq=False)
class Survey:
    """The n documents of a store as a stitch and a query log see them, by row.

    Attributes
    ----------
    paid : (n,) bool, whether the stitch has the true vector, of the document or of another with the same text
    confidence : (n,) float32, the cosine to expect, NaN where the stitch knows none or nobody looked
    hits : for each query of the log the rows nearest to it in the translated store, best first
    """

    paid: NDArray[np.bool_]
    confidence: Vectors
    hits: Sequence[Sequence[int]] = ()


def paid_rows(store: Store, fitted: FittedStitch) -> NDArray[np.bool_]:
    """Return whether the stitch has the true vector of each document of a store, (n,)."""
    paid = np.zeros(store.info.count, dtype=bool)
    done = 0
    for batch in store.scan():
        paid[done + fitted.sample.positions(batch.ids)[0]] = True
        done += len(batch)
    return paid


def survey_store(
    store: Store, fitted: FittedStitch, queries: Vectors | None = None, *, progress: Progress = no_progress
) -> Survey:
    """Translate the store, keeping no vectors, and search it for the queries of a log, (m, q), by the target model.

    Queries and documents meet in the target's space, where they will meet later: the old vectors and the words find
    other documents than the new model is going to.

    Raises VectorError: a vector is zero or not finite.
    """
    if queries is None:
        queries = np.empty((0, fitted.dim), dtype=np.float32)
    nearest = NearestRows(queries, store.info.metric)
    count = store.info.count
    paid = np.zeros(count, dtype=bool)
    confidence = np.empty(count, dtype=np.float32)
    for batch in translated_batches(store, fitted, batch_rows(max(store.info.dim, fitted.dim))):
        first = nearest.count
        progress("look over the store", first, count)
        in_batch, _ = fitted.sample.positions(batch.ids)
        paid[first + in_batch] = True
        confidence[first : first + len(batch)] = batch.confidence
        nearest.add(batch.vectors)
    return Survey(paid, confidence, nearest.rankings())


CONFIDENCE = "confidence"
POLICIES = (QUERY_LOG, CONFIDENCE, RANDOM)


def why_unsure(fitted: FittedStitch) -> str | None:
    """Return why the policy `confidence` is not to be used with a stitch; None where it is."""
    confidence = fitted.selection.confidence
    if confidence is None:
        return "the stitch does not say how sure it is"
    if confidence.is_usable:
        return None
    return unreliable(confidence.spearman)


def require_confidence(fitted: FittedStitch) -> None:
    """Make sure that the policy `confidence` is to be used with a stitch; raises a UsageError."""
    why = why_unsure(fitted)
    if why is not None:
        raise UsageError(
            f"--policy {CONFIDENCE}: {why}; take --policy {QUERY_LOG} with a --query-log, or --policy {RANDOM}"
        )


def choose_policy(policy: str | None, fitted: FittedStitch, *, has_log: bool) -> str:
    """Return the named policy; by default `query-log` where there is a log, else `confidence`.

    Where the confidence of `fitted` is not to be used, the default is `random`, and `confidence` a UsageError.
    """
    if policy is None:
        policy = _default_policy(fitted, has_log=has_log)
    check_choice("policy", policy, POLICIES, has_log=has_log)
    if policy == CONFIDENCE:
        require_confidence(fitted)
    return policy


def _default_policy(fitted: FittedStitch, *, has_log: bool) -> str:
    if has_log:
        return QUERY_LOG
    if why_unsure(fitted) is None:
        return CONFIDENCE
    return RANDOM


def look_over(
    policy: str, store: Store, fitted: FittedStitch, queries: Vectors | None, *, progress: Progress = no_progress
) -> Survey:
    """Return as much of a survey as the policy needs; chance needs no look at the vectors."""
    # Nobody asks for the vectors then, and to translate a store only to rank it takes as long as the translation
    if policy == RANDOM:
        return Survey(paid_rows(store, fitted), np.full(store.info.count, np.nan, dtype=np.float32))
    if policy != QUERY_LOG:
        queries = None
    return survey_store(store, fitted, queries, progress=progress)


def rank_rows(policy: str, survey: Survey, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows that are not paid for, those worth most first, shape (m,).

    `order` has all rows at random, as a sample is drawn. A log touches some documents only; after them the others
    follow in that order.

    Raises StitchError: the policy is `confidence`, and the stitch knows none.
    """
    if policy == CONFIDENCE:
        if np.isnan(survey.confidence).any():
            raise StitchError("the stitch does not say how sure it is; fit it again, or choose another policy")
        order = np.argsort(survey.confidence, kind="stable")
    elif policy == QUERY_LOG:
        first = np.fromiter(rank_by_rank(survey.hits), dtype=np.int64)
        order = np.concatenate([first, order[~np.isin(order, first)]])
    return order[~survey.paid[order]]


@dataclass(frozen=True, eq=False)
class Choice:
    """The documents to embed, in `sample`, with their `cost`; those of `survey.paid` are embedded already.

    `from_log` of them are hits of the query log. `counted_by` says in a sentence who counted the tokens.
    """

    budget: Budget
    policy: str
    sample: Sample
    survey: Survey
    cost: Estimate
    from_log: int
    counted_by: str


def choose_within(store: Store, survey: Survey, budget: Budget, policy: str, *, tally: Tally, seed: int = 0) -> Choice:
    """Choose documents by `policy` within `budget`, by what a survey found; `tally` counts and prices them.

    Raises UsageError: the budget is used up already, or is in dollars and the model has no price.
    """
    paid = tally.cost(store.documents(np.flatnonzero(survey.paid)))
    order = rank_rows(policy, survey, random_order(store, seed))
    ranked = distinct_texts(store, order, len(order))

    # A sample has its rows in ascending order, whatever order they were chosen in
    chosen = sorted(budget.choose(ranked, paid, store.info.count, tally), key=lambda candidate: candidate.row)
    rows = np.array([candidate.row for candidate in chosen], dtype=np.int64)
    documents: tuple[Document, ...] = tuple(candidate.document for candidate in chosen)
    from_log = 0
    if policy == QUERY_LOG:
        hits = np.unique(np.fromiter((row for hits in survey.hits for row in hits), dtype=np.int64))
        from_log = int(np.isin(rows, hits).sum())
    return Choice(
        budget=budget,
        policy=policy,
        sample=Sample(rows, documents),
        survey=survey,
        cost=tally.cost(documents),
        from_log=from_log,
        counted_by=tally.target.counter.sentence,
    )
