"""Reranking for the two-stage arms: the translated store retrieves N documents, the target model reranks them.

`migrate.live` serves the same way, by the same `rerank`. What it embeds stays in the embedding cache, so that each
document is paid for once, and the store fills up with true vectors as queries come. The audit embeds nothing: the
reference has the true vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from migrate.cost import Tally, usd_of
from migrate.search.rerank import rerank
from migrate.search.runs import Run
from migrate.stores.base import Store
from migrate.vectors import Progress, Vectors, check_vectors, no_progress

DEPTHS = (20, 50, 200)
"""How many documents are embedded for a query by default."""

WITHOUT_TWO_STAGE = "needs a reference with texts and of the same ids as the translated store"

_BLOCK_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Reranking:
    """What a two-stage arm embeds, in tokens of the target model.

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


class Reranker:
    """Runs and costs of the two-stage arms, which share one search of the translated store.

    Parameters
    ----------
    translated, reference
        Where documents are retrieved, and where their true vectors are; of the same document ids.
    query_vectors
        A vector, (q, dim), by the target model for each of the query ids.
    candidates
        The first ids of `translated` for each query, best first, as many as the deepest arm reranks, or more.
    depths
        The arms' depths.
    keys
        The judged document of each id.
    kept
        How many documents a run keeps.
    tally
        Counts and prices what is embedded.
    """

    def __init__(
        self,
        translated: Store,
        reference: Store,
        query_ids: Sequence[str],
        query_vectors: Vectors,
        candidates: Sequence[Sequence[str]],
        *,
        depths: Sequence[int],
        keys: Mapping[str, str],
        kept: int,
        tally: Tally,
        progress: Progress = no_progress,
    ) -> None:
        self.translated = translated
        self.reference = reference
        self.query_ids = query_ids
        self.query_vectors = query_vectors
        self.candidates = candidates
        self.depths = depths
        self.keys = keys
        self.kept = kept
        self.tally = tally
        self.progress = progress

    def run(self, depth: int) -> Run:
        """The first `depth` documents of each query, ranked by their true vectors.

        Raises
        ------
        VectorError
            A vector of either store is zero or not finite.
        """
        rankings: dict[str, tuple[str, ...]] = {}
        step = max(_BLOCK_BYTES // (4 * self.reference.info.dim * depth), 1)
        for start in range(0, len(self.query_ids), step):
            self.progress(f"rank {depth} again", start, len(self.query_ids))
            rankings |= self._ranked(range(start, min(start + step, len(self.query_ids))), depth)
        return Run(rankings)

    def _ranked(self, numbers: range, depth: int) -> dict[str, tuple[str, ...]]:
        """The rankings of some queries; what several of them retrieve is read once."""
        wanted = [self._rows[number][:depth] for number in numbers]
        rows = np.unique(np.concatenate(wanted))
        batch = self.reference.get(rows)
        check_vectors(batch.ids, batch.vectors, source=self.reference.info.location)
        rankings: dict[str, tuple[str, ...]] = {}
        for number, own in zip(numbers, wanted, strict=True):
            places = np.searchsorted(rows, own)
            best = rerank(
                self.query_vectors[number],
                [self.keys[batch.ids[place]] for place in places],
                np.zeros(len(own)),
                np.arange(len(own)),
                batch.vectors[places],
                metric=self.reference.info.metric,
                kept=self.kept,
            )
            rankings[self.query_ids[number]] = tuple(key for key, _ in best)
        return rankings

    @cached_property
    def _rows(self) -> list[NDArray[np.int64]]:
        """The rows in the reference of what each query retrieves from the translated store, best first."""
        row_of = {doc_id: row for row, doc_id in enumerate(_ids(self.reference))}
        tops = (own[: max(self.depths)] for own in self.candidates)
        return [np.array([row_of[doc_id] for doc_id in top], dtype=np.int64) for top in tops]

    def cost(self, depth: int) -> Reranking:
        """What an arm embeds."""
        embedded, times = np.unique(np.concatenate([rows[:depth] for rows in self._rows]), return_counts=True)
        tokens = self.tally.cost(self.reference.documents(embedded)).tokens
        first, each = tokens / len(embedded) * depth, tokens / len(self.query_ids)
        further = each * float((times == 1).mean())
        return Reranking(
            depth,
            first,
            usd_of(first, self.tally.price),
            len(embedded) / len(self.query_ids),
            each,
            usd_of(each, self.tally.price),
            len(embedded) / self.translated.info.count,
            further,
            usd_of(further, self.tally.price),
        )


def can_rerank(translated: Store, reference: Store) -> bool:
    """Whether the two stores hold the same ids, not only chunks of the same documents, and the texts to embed."""
    return reference.info.has_texts and set(_ids(translated)) == set(_ids(reference))


def _ids(store: Store) -> Iterator[str]:
    return (doc_id for batch in store.scan() for doc_id in batch.ids)
