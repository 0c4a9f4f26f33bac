"""Two stages: the translated store retrieves N documents, the target model reranks them; and what that embeds.

`migrate.live` serves the same way. What it embeds stays in the embedding cache, so that each document is paid for once,
and the store fills up with true vectors as queries come. The audit embeds nothing: the reference has the true vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

from migrate.stores.base import Store

DEPTHS = (20, 50, 200)
"""How many documents are embedded for a query by default."""

WITHOUT_TWO_STAGE = "needs a reference with texts and of the same ids as the translated store"


@dataclass(frozen=True, slots=True)
class Reranking:
    """The documents that a two-stage arm embeds, in tokens of the target model.

    `depth` documents for a first query, then `documents_per_query` on average over the queries of the audit, as the
    cache has the others; it ends with `cached_share` of the store. A further query embeds `tokens_further`: what each
    had that no other one had (Good 1953). Money is None where no price is known.
    """

    depth: int
    tokens_first: float
    usd_first: float | None
    documents_per_query: float
    tokens_per_query: float
    usd_per_query: float | None
    cached_share: float
    tokens_further: float
    usd_further: float | None

    @property
    def sentence(self) -> str:
        """The cost in words."""
        return (
            f"two-stage {self.depth} embeds {self.depth} documents for a first query ({self._price(self.usd_first)}"
            f"about {self.tokens_first:,.0f} tokens) and, with a cache, {self.documents_per_query:.1f} per query over "
            f"the queries of this audit ({self._price(self.usd_per_query)}about {self.tokens_per_query:,.0f} tokens); "
            f"the cache then has true vectors of {self.cached_share:.1%} of the store, and `backfill --from-cache` "
            "puts them in"
        )

    @staticmethod
    def _price(usd: float | None) -> str:
        return "" if usd is None else f"${usd:.2g}, "


def can_rerank(translated: Store, reference: Store) -> bool:
    """Return whether the stores hold the same ids, not only chunks of the same documents, and the texts to embed."""
    if not reference.info.has_texts:
        return False
    ids, others = ({doc_id for batch in store.scan() for doc_id in batch.ids} for store in (translated, reference))
    return ids == others
