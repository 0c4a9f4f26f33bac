"""Chunks that a model reads to their end: their size, the cutting, and what long documents would become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from migrate.cost.count import TextCount
from migrate.cost.target import Target
from migrate.cost.tokens import Counts, whole
from migrate.datasets.chunking import chunk_documents
from migrate.documents import Document
from migrate.errors import UsageError

CHUNK_TOKENS = 256
"""The longest chunk unless told otherwise, as LEAD's: models that read more say less of each thing they read."""

_SHARED = 10
"""A tenth of a chunk stands in the one before, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """The longest chunk and the most that neighbours share, in tokens of a text without prefix and special tokens."""

    tokens: int
    overlap: int

    def fits(self, target: Target) -> bool:
        """Whether the model reads such chunks to their end."""
        left = room(target)
        return left is None or self.tokens <= left


def room(target: Target) -> int | None:
    """Tokens that the model reads of a text beside its prefix and its special tokens; None where no limit is known.

    Raises
    ------
    UsageError
        The prefix leaves none.
    """
    if target.max_tokens is None:
        return None
    left = target.max_tokens - _spare(target)
    if left < 1:
        raise UsageError(
            f"{target.spec}: expected a document prefix that leaves room among the {target.max_tokens:,} tokens the "
            f"model reads, found one of {_spare(target):,}; shorten it"
        )
    return left


def chunk_size(target: Target, tokens: int | None = None, overlap: int | None = None) -> ChunkSize:
    """The size that was asked for; otherwise what the model reads, up to `CHUNK_TOKENS`, and a tenth of it.

    Raises
    ------
    UsageError
        As `room`.
    """
    if tokens is None:
        tokens = min(CHUNK_TOKENS, room(target) or CHUNK_TOKENS)
    return ChunkSize(tokens, tokens // _SHARED if overlap is None else overlap)


def cut_documents(documents: Iterable[Document], target: Target, size: ChunkSize) -> Iterator[Document]:
    """The chunks of documents, as `chunk_documents` makes and names them, counted as the target model counts.

    Raises
    ------
    UsageError, DatasetError
        As `chunk_documents`.
    """
    spare = _spare(target)

    def count(texts: Sequence[str]) -> Counts:
        return target.counter.count([target.prefix + whole(text) for text in texts]) - spare

    return chunk_documents(documents, chunk_tokens=size.tokens, chunk_overlap=size.overlap, count_tokens=count)


def _spare(target: Target) -> int:
    """Tokens of a text that has none of its own."""
    return int(target.counter.count([target.prefix])[0]) if target.prefix else target.counter.special


@dataclass(frozen=True, slots=True)
class Chunking:
    """What the documents beyond a model's limit would become if they were cut into chunks, the others left as they are.

    Of `documents` of them `chunks` chunks of at most `chunk_tokens` tokens come, with `tokens` in all. Where there are
    more than 100 such documents it is what the first 100 become, raised in proportion: `is_sampled`.
    """

    documents: int
    chunks: int
    tokens: int
    chunk_tokens: int
    is_sampled: bool


def chunk_long(count: TextCount, target: Target) -> Chunking | None:
    """Cut the documents beyond the limit as `embed` would; None without any."""
    if not count.long_documents or target.max_tokens is None:
        return None
    size = chunk_size(target)
    long = (Document(str(number), document.text) for number, document in enumerate(count.long_documents))
    made = list(cut_documents(long, target, size))
    tokens = int(target.count(made).sum())
    scale = count.over_limit / len(count.long_documents)
    return Chunking(count.over_limit, round(len(made) * scale), round(tokens * scale), size.tokens, scale > 1)
