"""Cuts documents into chunks, as LEAD cuts its corpora. The caller says how tokens are counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from migrate.errors import DatasetError, UsageError
from migrate.vectors import Document

_SEPARATORS = " \n"
"""The letters of langchain's default separators: two line ends, one line end, a space."""
_FIRST_MARK = 0x10000
_N_MARKS = 0x100000
"""Unicode's supplementary planes: over a million letters, none of them a separator."""

# Tokens of some models span words, so that words weigh more where they are cut apart
_STRETCHES = (1.0, 1.03, 1.1)
"""Factors that the tokens of words are taken for, until the chunks that are cut by them fit."""

Counter = Callable[[Sequence[str]], NDArray[np.int64]]
"""Tokens of each of n texts, (n,)."""


class _Span(NamedTuple):
    start: int
    text: str

    @property
    def stop(self) -> int:
        return self.start + len(self.text)


def chunk_documents(
    documents: Iterable[Document], *, chunk_tokens: int, chunk_overlap: int, count_tokens: Counter
) -> Iterator[Document]:
    """Cut documents into overlapping chunks, streaming, with langchain's RecursiveCharacterTextSplitter.

    A cut is made between paragraphs, else lines, else words; inside a word only where it alone is longer than a chunk.
    No chunk has more than `chunk_tokens`, as the embedding model's `count_tokens` counts them, except for a single
    character that has more by itself, and each repeats up to `chunk_overlap` of the one before. LEAD's are 256 and 25.

    Chunk `n` (from 0) of a document is called `{id}#{n}`; a document that fits into one chunk keeps its id. The
    metadata of every chunk is that of its document and three more, which replace any of the same name: `parent_id` (the
    document's id), `chunk` (n) and `start`, so that the chunk's text is `document.text[start : start +
    len(chunk.text)]`. White space around chunks is left out. A document without text stays one empty chunk. Texts
    beyond 1,048,576 characters are cut there first, without overlap.

    Raises UsageError at once: sizes that cannot be. DatasetError on iteration: two chunks or documents of one id.
    """
    if chunk_tokens < 1:
        raise UsageError(f"chunk_tokens: {chunk_tokens} is too few; give at least 1")
    if not 0 <= chunk_overlap < chunk_tokens:
        raise UsageError(f"chunk_overlap: {chunk_overlap} is not from 0 to {chunk_tokens - 1}; correct it")
    return _chunks(documents, _Cutter(chunk_tokens, chunk_overlap, count_tokens))


def _chunks(documents: Iterable[Document], cutter: _Cutter) -> Iterator[Document]:
    ids: set[str] = set()
    stream = iter(documents)
    # A counter takes many texts at once; 256 is arbitrary, and bounds what is in memory
    while block := list(islice(stream, 256)):
        for document, tokens in zip(block, cutter.count([document.text for document in block]).tolist(), strict=True):
            _add_id(document.id, ids)
            spans = cutter.cut(document.text, tokens) or [_Span(0, "")]
            for number, (start, text) in enumerate(spans):
                chunk_id = document.id
                if len(spans) > 1:
                    chunk_id = f"{document.id}#{number}"
                    _add_id(chunk_id, ids)
                metadata = {**document.metadata, "parent_id": document.id, "chunk": number, "start": start}
                yield Document(chunk_id, text, metadata)


def _add_id(name: str, ids: set[str]) -> None:
    if name in ids:
        raise DatasetError(f"the id {name!r} appears twice among documents and chunks; rename one")
    ids.add(name)


class _Cutter:
    """Cuts texts into spans of at most `tokens`, as `count` counts them."""

    def __init__(self, tokens: int, overlap: int, count: Counter) -> None:
        self.tokens = tokens
        self.overlap = overlap
        self.count = count
        self._weights: dict[str, int] = {}

    def cut(self, text: str, tokens: int) -> list[_Span]:
        """Return the spans of a text of up to so many tokens; none is blank or inside another."""
        if tokens <= self.tokens:
            return _stripped(0, text)
        spans: list[_Span] = []
        for base in range(0, len(text), _N_MARKS):
            for span in _stripped(base, text[base : base + _N_MARKS]):
                size = tokens
                if len(text) > _N_MARKS:
                    size = int(self.count([span.text])[0])
                spans += self._cut_span(span, size)
        return _outermost(spans)

    def _cut_span(self, span: _Span, tokens: int) -> list[_Span]:
        """Cut a span; where words weigh otherwise together than alone, the parts that are still over are cut again."""
        words = _Words(span, tokens, self._weigh, self.tokens)
        for stretch in _STRETCHES:
            windows = self._windows(words, stretch)
            sizes = self.count([window.text for window in windows])
            if (sizes <= self.tokens).all():
                return windows
        fitting: list[_Span] = []
        for window, size in zip(windows, sizes.tolist(), strict=True):
            # What the splitter left as it was it would leave again, for ever
            is_uncut = len(window.text) in (1, len(span.text))
            if size <= self.tokens or is_uncut:
                fitting.append(window)
            else:
                fitting += self._cut_span(window, size)
        return fitting

    def _windows(self, words: _Words, stretch: float) -> list[_Span]:
        """Return the splitter's windows of a span.

        The splitter does not say where its chunks come from (its `add_start_index` takes the overlap for characters,
        and misses when it counts tokens), and searching for them goes wrong where a text repeats itself. So it is
        given a text in which one letter stands for each word: from it follow the word's place and its size.
        """
        from langchain_text_splitters import RecursiveCharacterTextSplitter

        # Of each mark, and of the end
        tokens_before: list[int] = np.rint(words.before * stretch).astype(np.int64).tolist()

        def measure(marked: str) -> int:
            marks = marked.strip(_SEPARATORS)
            if not marks:
                return 0
            first = ord(marks[0]) - _FIRST_MARK
            last = ord(marks[-1]) - _FIRST_MARK
            return tokens_before[last + 1] - tokens_before[first]

        splitter = RecursiveCharacterTextSplitter(
            chunk_size=self.tokens, chunk_overlap=self.overlap, length_function=measure, strip_whitespace=False
        )
        windows = (window.strip(_SEPARATORS) for window in splitter.split_text(words.marked))
        return [words.span(ord(window[0]) - _FIRST_MARK, ord(window[-1]) - _FIRST_MARK) for window in windows if window]

    def _weigh(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Return the tokens of each word, after a blank, as most words occur in texts."""
        if len(self._weights) > 1_000_000:  # some 150 MB
            self._weights.clear()
        unweighed = [word for word in set(words) if word not in self._weights]
        self._weights.update(zip(unweighed, self.count([f" {word}" for word in unweighed]).tolist(), strict=True))
        return np.array([self._weights[word] for word in words], dtype=np.int64)


class _Words:
    """The words of a span that has so many tokens: `marked` is its text with a letter of its own for each of them.

    A word that weighs as much as a chunk (`most`) is taken for as many words as it has letters.
    """

    def __init__(
        self, span: _Span, tokens: int, weigh: Callable[[Sequence[str]], NDArray[np.int64]], most: int
    ) -> None:
        self._span = span
        split_text = re.split(r"(\s+)", span.text)
        offsets = np.cumsum([0, *map(len, split_text)])
        alone = weigh(split_text[::2])
        # Alone they may have more tokens than in their text, or fewer.
        weights = alone * (tokens / max(int(alone.sum()), 1))
        starts = offsets[:-1:2]
        stops = offsets[1::2]
        # By the widest stretch; a word that no chunk can hold is a mark for each of its letters
        is_long = weights * _STRETCHES[-1] >= most
        pieces = np.where(is_long, stops - starts, 1)
        first = np.cumsum(pieces) - pieces
        self._starts = np.repeat(starts - first, pieces) + np.arange(pieces.sum())
        self._stops = np.where(np.repeat(is_long, pieces), self._starts + 1, np.repeat(stops, pieces))
        self.before = np.concatenate([[0.0], np.cumsum(np.repeat(weights / pieces, pieces))])
        marks = "".join(map(chr, range(_FIRST_MARK, _FIRST_MARK + len(self._starts))))
        split_text[::2] = [
            marks[start : start + count] for start, count in zip(first.tolist(), pieces.tolist(), strict=True)
        ]
        # White space counts as the end of a paragraph or of a line, or as a space
        split_text[1::2] = ["\n" * min(blanks.count("\n"), 2) or " " for blanks in split_text[1::2]]
        self.marked = "".join(split_text)

    def span(self, first: int, last: int) -> _Span:
        """Return the text from one word to another."""
        start = int(self._starts[first])
        stop = int(self._stops[last])
        return _Span(self._span.start + start, self._span.text[start:stop])


def _stripped(start: int, text: str) -> list[_Span]:
    """Return the span without white space at its ends, or none if there is nothing else."""
    stripped = text.strip()
    if not stripped:
        return []
    leading_blanks = len(text) - len(text.lstrip())
    return [_Span(start + leading_blanks, stripped)]


def _outermost(spans: list[_Span]) -> list[_Span]:
    """Return the spans by their starts, without those inside another."""
    outermost: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.stop)):
        if not outermost or span.stop > outermost[-1].stop:
            outermost.append(span)
    return outermost
