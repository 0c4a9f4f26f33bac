"""Chunks that a model reads to their end: their size, and the cutting.

What a model leaves unread of texts that are longer than it takes, which it does not say itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from migrate.cost.count import count_texts
from migrate.datasets.chunking import chunk_documents
from migrate.display import percent
from migrate.embedders.profile import Profile
from migrate.embedders.tokens import Counts, whole
from migrate.errors import UsageError
from migrate.stores.base import Store
from migrate.vectors import Document, Progress, Text, no_progress

MOST_COUNTED = 5_000
"""Texts of a store that are counted: half a second; of a larger store so many are drawn."""


@dataclass(frozen=True, slots=True)
class Unread:
    """The part of some texts that a model leaves unread: `over` of `texts` are longer than its `limit` of tokens.

    Prefix and special tokens count. `share` (0-1) of all tokens is beyond it. A `store` of more texts is judged by
    these, drawn; `is_exact` says whether the model's own tokenizer counted.
    """

    model: str
    limit: int
    texts: int
    over: int
    share: float
    is_exact: bool
    is_api: bool = False
    store: int | None = None

    @property
    def figures(self) -> dict[str, Any]:
        """The figures, for a JSON document."""
        return {
            "model": self.model,
            "limit": self.limit,
            "texts": self.texts,
            "over": self.over,
            "unread_share": self.share,
            "exact": self.is_exact,
            "drawn_from": self.store,
        }

    def sentence(self, subject: str) -> str:
        """Say it in words, where some text is over; `what` are the texts."""
        about = "" if self.is_exact and self.store is None else "about "
        many = f"{self.over:,} of {self.texts:,}"
        if self.store is not None:
            many = f"{percent(self.over / self.texts)} of {self.store:,}"
        are = "is" if self.over == 1 and self.store is None else "are"
        takes, fate = ("takes", "the API refuses") if self.is_api else ("reads", "are never read")
        share = f"{about}{percent(self.share)} of all tokens"
        fate = f"{fate} such texts ({share} lie beyond)" if self.is_api else f"{share} {fate}"
        return f"{about}{many} {subject} {are} longer than the {self.limit:,} tokens that {self.model} {takes}: {fate}"


def count_unread(
    texts: Iterable[Text], target: Profile, *, store: int | None = None, progress: Progress = no_progress
) -> Unread | None:
    """Count what the model will leave unread of these texts; None where it has no limit, or none is known."""
    if target.max_tokens is None:
        return None
    count = count_texts(texts, target, once=False, progress=progress)
    share = 1 - count.tokens_read / count.tokens if count.tokens else 0.0
    exact = target.counter.exact
    return Unread(target.spec, target.max_tokens, count.distinct, count.over_limit, share, exact, target.is_api, store)


def count_unread_of_store(store: Store, target: Profile, *, seed: int = 0) -> Unread | None:
    """Count the same for a store's documents, or for `MOST_COUNTED` of them; None too where it has no texts."""
    if not store.info.has_texts or target.max_tokens is None:
        return None
    count = store.info.count
    if count <= MOST_COUNTED:
        return count_unread(store.documents(), target)
    rows = np.sort(np.random.default_rng(seed).choice(count, size=MOST_COUNTED, replace=False))
    return count_unread(store.documents(rows), target, store=count)


CHUNK_TOKENS = 256
"""The longest chunk unless told otherwise, as LEAD's: models that read more say less of each thing they read."""


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """The longest chunk and the most that neighbours share, in tokens of a text without prefix and special tokens."""

    tokens: int
    overlap: int

    def fits(self, target: Profile) -> bool:
        """Return whether the model reads such chunks to their end."""
        tokens_left = room(target)
        return tokens_left is None or self.tokens <= tokens_left


def room(target: Profile) -> int | None:
    """Return the tokens that a model reads beside its prefix and special tokens; None where no limit is known.

    Raises UsageError: the prefix leaves none.
    """
    if target.max_tokens is None:
        return None
    tokens_left = target.max_tokens - _spare(target)
    if tokens_left < 1:
        raise UsageError(
            f"{target.spec}: the document prefix of {_spare(target):,} tokens leaves no room among the "
            f"{target.max_tokens:,} that the model reads; shorten it"
        )
    return tokens_left


def chunk_size(target: Profile, tokens: int | None = None, overlap: int | None = None) -> ChunkSize:
    """Return the size that was asked for, else what the model reads, up to `CHUNK_TOKENS`, and a tenth of it.

    Raises UsageError: as `room`.
    """
    if tokens is None:
        tokens = min(CHUNK_TOKENS, room(target) or CHUNK_TOKENS)
    return ChunkSize(tokens, tokens // 10 if overlap is None else overlap)


def cut_documents(documents: Iterable[Document], target: Profile, size: ChunkSize) -> Iterator[Document]:
    """Yield the chunks of documents, as `chunk_documents` makes and names them, counted as the target model counts.

    Raises UsageError, DatasetError: as `chunk_documents`.
    """
    spare = _spare(target)

    def count(texts: Sequence[str]) -> Counts:
        return target.counter.count([target.prefix + whole(text) for text in texts]) - spare

    return chunk_documents(documents, chunk_tokens=size.tokens, chunk_overlap=size.overlap, count_tokens=count)


def _spare(target: Profile) -> int:
    """Return the tokens of a text that has none of its own."""
    return int(target.counter.count([target.prefix])[0]) if target.prefix else target.counter.special
