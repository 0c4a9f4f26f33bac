"""The size of chunks that a model reads to their end, and the documents cut into them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from migrate.embedders.profile import Profile
from migrate.embedders.tokens import Counts, whole
from migrate.errors import UsageError
from migrate.lab.embed.chunking import chunk_documents
from migrate.vectors import Document

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
    if overlap is None:
        # LEAD's share: 25 of 256
        overlap = tokens // 10
    return ChunkSize(tokens, overlap)


def cut_documents(documents: Iterable[Document], target: Profile, size: ChunkSize) -> Iterator[Document]:
    """Yield the chunks of documents, as `chunk_documents` makes and names them, counted as the target model counts.

    Raises UsageError, DatasetError: as `chunk_documents`.
    """
    spare = _spare(target)

    def count(texts: Sequence[str]) -> Counts:
        return target.counter.count([target.document_prefix + whole(text) for text in texts]) - spare

    return chunk_documents(documents, chunk_tokens=size.tokens, chunk_overlap=size.overlap, count_tokens=count)


def _spare(target: Profile) -> int:
    """Return the tokens of a text that has none of its own."""
    if not target.document_prefix:
        return target.counter.special
    return int(target.counter.count([target.document_prefix])[0])
