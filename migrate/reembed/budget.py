"""A budget: how many documents of a store may have true vectors, those that were paid for before among them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import Literal

import numpy as np

from migrate.cost import Cost, Tally, usd_of
from migrate.errors import UsageError
from migrate.sample.distinct import Candidate

_SPELLING = re.compile(r"(?P<usd>\$)?(?P<amount>\d+(\.\d+)?)(?P<percent>%)?")

_BLOCK = 256
"""Documents that are counted at once."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A share of the store (0-1), a number of documents, or US dollars.

    What was paid for before counts: 10 % are a tenth of the store with true vectors, the sample included.
    """

    amount: float
    unit: Literal["share", "documents", "usd"]

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read `10%`, `5000` or `$20`.

        >>> Budget.parse("10%")
        Budget(amount=0.1, unit='share')

        Raises
        ------
        UsageError
            It is none of these, or nothing, or more than 100 %.
        """
        found = _SPELLING.fullmatch(text.strip().replace(",", ""))
        if found is None or (found["usd"] and found["percent"]):
            raise _not_a_budget(text)
        amount = float(found["amount"])
        if found["percent"]:
            amount /= 100
        whole = bool(found["usd"] or found["percent"]) or amount == int(amount)
        if not amount > 0 or not isfinite(amount) or not whole or (found["percent"] and amount > 1):
            raise _not_a_budget(text)
        return cls(amount, "usd" if found["usd"] else "share" if found["percent"] else "documents")

    def __str__(self) -> str:
        if self.unit == "share":
            return f"{100 * self.amount:g}%"
        return f"${self.amount:g}" if self.unit == "usd" else f"{self.amount:.0f}"

    def choose(self, ranked: Iterable[Candidate], paid: Cost, count: int, tally: Tally) -> Iterator[Candidate]:
        """The first of `ranked` that the budget has room for, beside what was `paid` in a store of `count` documents.

        Dollars are what `tally` makes of the texts.

        Raises
        ------
        UsageError
            It is in dollars, and there is no price; or what was paid has used it up.
        """
        if self.unit == "usd":
            return self._choose_by_price(ranked, paid, tally)
        limit = round(self.amount * count) if self.unit == "share" else int(self.amount)
        if limit <= paid.documents:
            raise self._used_up(f"{paid.documents:,} of {count:,} documents")
        return (one for one, _ in zip(ranked, range(limit - paid.documents), strict=False))

    def _choose_by_price(self, ranked: Iterable[Candidate], paid: Cost, tally: Tally) -> Iterator[Candidate]:
        spent = usd_of(paid.tokens, tally.price)
        if spent is None or not tally.price:
            raise UsageError(
                f"--reembed {self}: expected a model with a price, found one without; give a share such as 10%, a "
                "number of documents, or --price"
            )
        if spent >= self.amount:
            raise self._used_up(f"about ${spent:.4f}")
        return self._while_it_lasts(ranked, paid.tokens, tally.price, tally)

    def _while_it_lasts(
        self, ranked: Iterable[Candidate], tokens: int, price: float, tally: Tally
    ) -> Iterator[Candidate]:
        stream = iter(ranked)
        while block := list(islice(stream, _BLOCK)):
            sums = tokens + np.cumsum(tally.tokens([one.document for one in block]))
            fits = int((sums * price / 1e6 <= self.amount).sum())
            yield from block[:fits]
            if fits < len(block):
                return
            tokens = int(sums[-1])

    def _used_up(self, paid: str) -> UsageError:
        return UsageError(
            f"--reembed {self}: expected a budget beyond what the stitch was fitted on, found {paid} paid for already "
            "(they count); give a larger budget, or leave it out"
        )


def _not_a_budget(text: str) -> UsageError:
    return UsageError(
        f"expected a budget such as 10% of the documents, 5000 documents or $20, found {text!r}; give one of these"
    )
