"""The two-stage arms: the translated store finds N documents, the target model embeds these and ranks them anew.

What is embedded stays in the embedding cache, so that a document is paid for once, and the store becomes whole with
the queries that are asked of it (`migrate.backfill`). The audit embeds nothing: the reference has the true vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from migrate.cost import Tally, usd_of
from migrate.search.runs import Run, TopK, search
from migrate.stores.base import Store
from migrate.vectors import Batch, Progress, Vectors, check_vectors, no_progress

DEPTHS = (50, 200)
"""How many documents are embedded for a query, unless told otherwise."""

WITHOUT_TWO_STAGE = "needs a reference with texts and of the same ids as the translated store"

_PREFIX = "two-stage"
_BLOCK_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Reranking:
    """What a two-stage arm embeds, in tokens of the target model.

    `depth` documents for a first query, then `documents_per_query` on average over the queries that were asked, as the
    cache knows the others; it ends with `cached_share` of the store. Money is None where no price is known.
    """

    depth: int
    tokens_first: float
    usd_first: float | None
    documents_per_query: float
    tokens_per_query: float
    usd_per_query: float | None
    cached_share: float

    @property
    def sentence(self) -> str:
        """The cost in words."""
        return (
            f"{arm_name(self.depth)} embeds {self.depth} documents for a first query ({self._price(self.usd_first)}"
            f"about {self.tokens_first:,.0f} tokens) and, with a cache, {self.documents_per_query:.1f} a query over "
            f"those asked here ({self._price(self.usd_per_query)}about {self.tokens_per_query:,.0f} tokens); the cache "
            f"then has true vectors of {self.cached_share:.1%} of the store, and `backfill --from-cache` puts them in"
        )

    @staticmethod
    def _price(usd: float | None) -> str:
        return "" if usd is None else f"${usd:.2g}, "


def arm_name(depth: int) -> str:
    """The arm's name in the report."""
    return f"{_PREFIX} {depth}"


def arm_meaning(depth: int) -> str:
    """What the arm is."""
    return f"the translated store's first {depth} for each query, embedded by the target model and ranked anew"


class TwoStage:
    """Answers of the two-stage arms.

    Parameters
    ----------
    translated, reference
        Where documents are found, and where their true vectors are; of the same document ids.
    asked
        A vector, (q, dim), by the target model for each of the query ids.
    depths
        The arms' depths; those that would embed the whole store are left out.
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
        asked: Vectors,
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
        self.asked = asked
        self.depths = [depth for depth in sorted(set(depths)) if depth < translated.info.count]
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
        """The rankings of some queries; what several of them find is read once."""
        wanted = [self._rows[number][:depth] for number in numbers]
        rows = np.unique(np.concatenate(wanted))
        batch = self.reference.get(rows)
        check_vectors(batch.ids, batch.vectors, source=str(self.reference.info.location))
        rankings: dict[str, tuple[str, ...]] = {}
        for number, own in zip(numbers, wanted, strict=True):
            places = np.searchsorted(rows, own)
            query_id, asked = self.query_ids[number], self.asked[number : number + 1]
            top = TopK([query_id], asked, metric=self.reference.info.metric, depth=self.kept)
            top.add([self.keys[batch.ids[place]] for place in places], batch.vectors[places])
            rankings |= top.run().rankings
        return rankings

    @cached_property
    def _rows(self) -> list[NDArray[np.int64]]:
        """The rows in the reference of what each query finds in the translated store, best first."""
        found = search(
            self._checked(),
            self.query_ids,
            self.asked,
            metric=self.translated.info.metric,
            depth=max(self.depths),
        )
        row_of = {doc_id: row for row, doc_id in enumerate(_ids(self.reference))}
        tops = (found.top(query_id, max(self.depths)) for query_id in self.query_ids)
        return [np.array([row_of[doc_id] for doc_id in top], dtype=np.int64) for top in tops]

    def _checked(self) -> Iterator[Batch]:
        for batch in self.translated.scan():
            check_vectors(batch.ids, batch.vectors, source=str(self.translated.info.location))
            yield batch

    def cost(self, depth: int) -> Reranking:
        """What an arm embeds."""
        embedded = np.unique(np.concatenate([rows[:depth] for rows in self._rows]))
        tokens = self.tally.cost(self.reference.documents(embedded)).tokens
        first, each = tokens / len(embedded) * depth, tokens / len(self.query_ids)
        return Reranking(
            depth,
            first,
            usd_of(first, self.tally.price),
            len(embedded) / len(self.query_ids),
            each,
            usd_of(each, self.tally.price),
            len(embedded) / self.translated.info.count,
        )


def can_rerank(translated: Store, reference: Store) -> bool:
    """Whether the two stores hold the same ids, not only chunks of the same documents, and the texts to embed."""
    return reference.info.has_texts and set(_ids(translated)) == set(_ids(reference))


def _ids(store: Store) -> Iterator[str]:
    return (doc_id for batch in store.scan() for doc_id in batch.ids)
