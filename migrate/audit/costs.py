"""Costs of arms: the documents that the target model embeds for each, in tokens and in money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from migrate.audit.keys import Rows
from migrate.audit.results import ArmCost, Reranking
from migrate.check.comparison import spread
from migrate.cost import Tally, usd_of
from migrate.stores.base import Store

_READ = 2_000
"""Texts to count the tokens of, for a free model."""


@dataclass(frozen=True, eq=False)
class Costs:
    """Counts what the target model reads; `tokens` are those of all texts, None where there are no texts to count."""

    tally: Tally
    tokens: float | None

    def of_share(self, share: float) -> ArmCost:
        """Return the cost to embed a share, 0-1, of all documents."""
        if self.tokens is None:
            return ArmCost()
        return ArmCost(share * self.tokens, usd_of(share * self.tokens, self.tally.price))


def costs_of(tally: Tally, translated: Store, *, ranks_words: bool) -> Costs:
    """Count the tokens of all texts, each once; for a free model of some, evenly spread, where no words are ranked."""
    if not translated.info.has_texts:
        return Costs(tally, None)
    if ranks_words or tally.target.is_api:
        return Costs(tally, float(tally.cost(translated.documents()).tokens))
    # Nobody pays for a free model's tokens, and to read and count all texts takes long
    rows = spread(translated.info.count, _READ)
    mean = np.mean(tally.tokens(list(translated.documents(rows))))
    return Costs(tally, float(mean) * translated.info.count)


def reranking_of(costs: Costs, reference: Store, rows_of: Sequence[Rows], depth: int, count: int) -> Reranking:
    """Return what an arm embeds that ranks some rows of the reference again for each query, `depth` of them.

    `count` is the number of rows of the translated store.
    """
    price = costs.tally.price
    n_queries = len(rows_of)
    embedded, times = np.unique(np.concatenate(rows_of), return_counts=True)
    tokens = costs.tally.cost(reference.documents(embedded)).tokens
    first = tokens / len(embedded) * depth
    each = tokens / n_queries
    # A next query is expected to embed what each had that no other one had (Good 1953)
    further = each * float((times == 1).mean())
    return Reranking(
        depth=depth,
        tokens_first=first,
        usd_first=usd_of(first, price),
        documents_per_query=len(embedded) / n_queries,
        tokens_per_query=each,
        usd_per_query=usd_of(each, price),
        cached_share=len(embedded) / count,
        tokens_further=further,
        usd_further=usd_of(further, price),
    )
