"""Cutting documents into chunks, as LEAD cuts its corpora. Which tokens a model counts is the caller's to say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from migrate.documents import Document
from migrate.errors import DatasetError, UsageError

_PIECE = re.compile(r"\w+|[^\w\s]")
_SEPARATORS = " \n"
"""The letters of langchain's default separators: two line ends, one line end, a space."""
_FIRST_MARK = 0x10000
_N_MARKS = 0x100000
"""Unicode's supplementary planes: over a million letters, none of them a separator."""

Counter = Callable[[str], int]
Splitter = Callable[[str, Counter], list[str]]
"""Cuts a text into windows, measuring with a counter."""


def estimate_tokens(text: str) -> int:
    """How many words and punctuation marks a text has: an offline estimate of its tokens, usually too low.

    Word-piece vocabularies cut rare words further, so expect a model to count 1.1 to 1.5 times as many in
    English, and far more in languages without spaces.

    Examples
    --------
    >>> estimate_tokens("Don't panic!")
    5
    """
    return len(_PIECE.findall(text))


def chunk_documents(
    documents: Iterable[Document],
    *,
    chunk_tokens: int = 256,
    chunk_overlap: int = 25,
    count_tokens: Counter | None = None,
) -> Iterator[Document]:
    """Cut documents into overlapping chunks, streaming, with langchain's RecursiveCharacterTextSplitter.

    Chunk `n` (from 0) of a document is called `{id}#{n}`; a document that fits into one chunk keeps its id. The
    metadata of every chunk is that of its document and three more, which replace any of the same name:
    `parent_id` (the document's id), `chunk` (n) and `start`, so that the chunk's text is
    `document.text[start : start + len(chunk.text)]`. White space around chunks is left out. A document without
    text stays one empty chunk. Texts beyond 1,048,576 characters are cut there first, without overlap.

    Parameters
    ----------
    chunk_tokens, chunk_overlap
        Greatest size of a chunk, and of what it repeats of the chunk before, in tokens. LEAD's are 256 and 25.
    count_tokens
        The token counter of the model that will embed the chunks; by default `estimate_tokens`.

    Raises
    ------
    UsageError
        `chunk_tokens` is below 1, or `chunk_overlap` is negative or not below `chunk_tokens`. Raised at once.
    DatasetError
        Two chunks or documents would have the same id. Raised on iteration.
    """
    if chunk_tokens < 1:
        raise UsageError(f"chunk_tokens: expected at least 1, found {chunk_tokens}; raise it")
    if not 0 <= chunk_overlap < chunk_tokens:
        raise UsageError(f"chunk_overlap: expected 0 to {chunk_tokens - 1}, found {chunk_overlap}; lower it")
    return _chunks(documents, _make_splitter(chunk_tokens, chunk_overlap), count_tokens or estimate_tokens)


def _make_splitter(chunk_tokens: int, chunk_overlap: int) -> Splitter:
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    def split(text: str, count: Counter) -> list[str]:
        splitter = RecursiveCharacterTextSplitter(
            chunk_size=chunk_tokens, chunk_overlap=chunk_overlap, length_function=count, strip_whitespace=False
        )
        return list(splitter.split_text(text))

    return split


def _chunks(documents: Iterable[Document], split: Splitter, count: Counter) -> Iterator[Document]:
    seen: set[str] = set()
    for document in documents:
        _claim(document.id, seen)
        spans = list(_spans(document.text, split, count)) or [(0, "")]
        for number, (start, text) in enumerate(spans):
            chunk_id = document.id
            if len(spans) > 1:
                chunk_id = f"{document.id}#{number}"
                _claim(chunk_id, seen)
            metadata = {**document.metadata, "parent_id": document.id, "chunk": number, "start": start}
            yield Document(chunk_id, text, metadata)


def _claim(name: str, seen: set[str]) -> None:
    if name in seen:
        raise DatasetError(f"expected documents and chunks with ids of their own, found {name!r} twice; rename one")
    seen.add(name)


def _spans(text: str, split: Splitter, count: Counter) -> Iterator[tuple[int, str]]:
    """Start and text of each chunk of a document, blank ones left out.

    The splitter does not say where its chunks come from (its `add_start_index` takes the overlap for characters,
    and misses when it counts tokens), and searching for them goes wrong where a text repeats itself. So it is
    given a text in which every letter has been replaced by one that stands for its place.
    """
    for base in range(0, len(text), _N_MARKS):
        block = text[base : base + _N_MARKS]
        for window in split(_mark(block), _count_unmarked(block, count)):
            chunk = _unmark(window, block)
            if chunk.strip():
                yield base + _place(window) + len(chunk) - len(chunk.lstrip()), chunk.strip()


def _count_unmarked(block: str, count: Counter) -> Counter:
    return lambda marked: count(_unmark(marked, block))


def _mark(block: str) -> str:
    return "".join(letter if letter in _SEPARATORS else chr(_FIRST_MARK + place) for place, letter in enumerate(block))


def _unmark(marked: str, block: str) -> str:
    """The part of a block that a window of its marked copy stands for."""
    place = _place(marked)
    return marked if place < 0 else block[place : place + len(marked)]


def _place(marked: str) -> int:
    """Where in its block a window begins; -1 where it has no marks, but separators only."""
    separators = len(marked) - len(marked.lstrip(_SEPARATORS))
    return -1 if separators == len(marked) else ord(marked[separators]) - _FIRST_MARK - separators
