"""Counts the tokens of texts, exactly where a tokenizer is available, else by an estimate.

`ApiCounter` uses tiktoken where its encoding is on this machine, `TokenizerCounter` the tokenizer file of a local
model, whose weights stay on disk. `EstimateCounter` needs no tokenizer: it has a weight for each word, letter, digit
and mark.

These weights are a non-negative least-squares fit (Lawson & Hanson 1974) of relative errors to the counts of two
tokenizers, with equal weight for each kind of text: SciFact, NFCorpus, docstrings and sources of Python's library,
seven LangChain stores, package descriptions, JSON, and manual pages in Japanese, Chinese, Russian and eight languages
of Latin script. `benchmarks/cost.py` prints how far the estimate is off on texts of your own.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from migrate.display import percent
from migrate.errors import InputError
from migrate.files import read_file, sha256_file
from migrate.threads import available_cores

if TYPE_CHECKING:
    from tiktoken import Encoding
    from tokenizers import Tokenizer

Counts = NDArray[np.int64]
"""Tokens of each of n texts, (n,)."""


CL100K_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
"""Hash of the encoding of OpenAI's embedding models in tiktoken's cache."""

_LOWER, _UPPER, _DIGIT, _BLANK, _LINE, _MARK, _TWO, _THREE, _FURTHER = range(9)


_TEXTS_A_TURN = 32
"""Texts that a thread counts before it takes the next ones."""

_LONGEST = 100_000
"""Characters of a text that are counted."""

_MOST_WORDS = 2_000_000
"""Words that are remembered, some 300 MB."""


def whole(text: str) -> str:
    """The text without halves of surrogate pairs, which no tokenizer takes."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


class TokenCounter(ABC):
    """Counts the tokens of texts as the model that will embed them does, or as nearly as can be known here.

    `source` says in words what counts; `error` is how far a total may be off, as a share (0-1) of it, 0 for the model's
    own tokenizer. `special` is how many tokens of each text the model adds itself; they are in every count.
    """

    source: str
    error: float = 0.0
    special: int = 0

    @abstractmethod
    def count(self, texts: Sequence[str]) -> Counts:
        """Tokens of each text, none of them cut off."""

    @property
    def exact(self) -> bool:
        """True if the counts are the model's own."""
        return self.error == 0

    @property
    def sentence(self) -> str:
        """Source of the figures, and how far they may be off."""
        if self.exact:
            return self.source
        return f"{self.source}; a total may be {percent(self.error, 0)} off"


@cache
def find_api_counter(name: str) -> TokenCounter | None:
    """Return a counter that counts as OpenAI does, or None.

    tiktoken downloads an encoding that it does not have, or that is damaged, so it is used only where the whole file
    is in its cache.
    """
    url = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    path = Path(folder or Path(tempfile.gettempdir()) / "data-gym-cache") / hashlib.sha1(url.encode()).hexdigest()  # noqa: S324
    # An empty variable turns tiktoken's cache off
    if not name.startswith("text-embedding-") or folder == "":
        return None
    try:
        if sha256_file(path) != CL100K_SHA256:
            return None
        import tiktoken
    except (OSError, ImportError):
        return None
    return ApiCounter(tiktoken.get_encoding("cl100k_base"))


class ApiCounter(TokenCounter):
    """Counts with tiktoken, on all cores: it lets others work while it counts."""

    source = "exact, by tiktoken's encoding of OpenAI's models"

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding

    def count(self, texts: Sequence[str]) -> Counts:
        """Tokens of each text."""
        with ThreadPoolExecutor(available_cores()) as threads:
            starts = range(0, len(texts), _TEXTS_A_TURN)
            counts = threads.map(self._count, (texts[start : start + _TEXTS_A_TURN] for start in starts))
            return np.array([tokens for turn in counts for tokens in turn], dtype=np.int64)

    def _count(self, texts: Sequence[str]) -> list[int]:
        # What is longer than any model takes is not worth counting to its end, and takes tiktoken long
        return [len(self._encoding.encode_ordinary(text[:_LONGEST])) for text in texts]


def read_tokenizer(path: Path) -> TokenizerCounter:
    """The counter of a `tokenizer.json`; one that takes words one by one where the tokenizer does.

    A file that stays the same is read once in a process.
    """
    try:
        status = path.stat()
        return _counter_of(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{path}: this is not a tokenizer of the tokenizers library; copy the model again") from error


# As many as models that a command moves between: each counter remembers words
@lru_cache(maxsize=2)
def _counter_of(path: Path, _identity: tuple[int, ...]) -> TokenizerCounter:
    return make_counter(read_file(path).decode())


def make_counter(text: str) -> TokenizerCounter:
    """Make a counter from the content of a `tokenizer.json`; the library may raise anything on other content."""
    from tokenizers import Tokenizer

    tokenizer = json.loads(text)
    model = Tokenizer.from_str(text)
    # What the file remembers of cutting and padding is for embedding, not for counting.
    model.no_truncation()
    model.no_padding()
    if is_wordwise(tokenizer):
        return WordCounter(model)
    return TokenizerCounter(model)


def is_wordwise(tokenizer: Any) -> bool:
    """Return True if a text has as many tokens as its words have one by one.

    BERT's normalizer and pre-tokenizer see nothing beyond a blank: white space always ends a word.
    An added token with a blank inside would be the exception.
    """
    if not isinstance(tokenizer, dict):
        return False
    kinds = {(tokenizer.get(component) or {}).get("type") for component in ("normalizer", "pre_tokenizer")}
    # A token without content counts as one with a blank: what is not understood is counted the slow way
    added = [token.get("content", " ") for token in tokenizer.get("added_tokens", [])]
    return kinds == {"BertNormalizer", "BertPreTokenizer"} and not any(set(" \n") & set(text) for text in added)


class TokenizerCounter(TokenCounter):
    """Counts with a tokenizer, many texts at a time, so that the library uses all cores."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.special = int(tokenizer.num_special_tokens_to_add(is_pair=False))
        self.source = "exact, by the model's own tokenizer"

    def count(self, texts: Sequence[str]) -> Counts:
        """Tokens of each text, the special ones among them."""
        return np.array(self._lengths(texts, add_special_tokens=True), dtype=np.int64)

    def ends(self, texts: Sequence[str], tokens: int) -> list[int]:
        """Return where the first `tokens` tokens of each text end, without special ones; a shorter text ends there."""
        encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [
            len(text) if len(encoding) <= tokens else encoding.offsets[tokens - 1][1]
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def _lengths(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[int]:
        # Offsets are not needed here and take a third of the time.
        encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        return [len(encoding) for encoding in encodings]


class WordCounter(TokenizerCounter):
    """Counts with a tokenizer that takes words one by one: each distinct word is cut once and remembered."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self._known: dict[str, int] = {"": 0}

    def count(self, texts: Sequence[str]) -> Counts:
        """Tokens of each text, the special ones among them."""
        # Another thread may begin to remember anew meanwhile
        known = self._known
        split = [text.replace("\n", " ").split(" ") for text in texts]
        new_words = [word for word in set().union(*split) if word not in known]
        known.update(zip(new_words, self._lengths(new_words, add_special_tokens=False), strict=True))
        tokens_of = known.__getitem__
        counts = [sum(map(tokens_of, words)) for words in split]
        if len(known) > _MOST_WORDS:
            self._known = {"": 0}
        return np.array(counts, dtype=np.int64) + self.special


@cache
def _byte_classes() -> NDArray[np.uint8]:
    """The class of each of the 256 bytes of UTF-8; a character beyond ASCII counts by its first byte."""
    classes = np.full(256, _MARK, dtype=np.uint8)
    classes[:33] = _BLANK
    classes[ord("\n")] = _LINE
    classes[ord("a") : ord("z") + 1] = _LOWER
    classes[ord("A") : ord("Z") + 1] = _UPPER
    classes[ord("0") : ord("9") + 1] = _DIGIT
    classes[0x80:0xC0] = _FURTHER
    classes[0xC0:0xE0] = _TWO
    classes[0xE0:] = _THREE
    return classes


@dataclass(frozen=True, slots=True)
class Weights:
    """Tokens for each feature of `features`, in its order, and what they were learned from.

    `error` is the largest error of a total on a kind of English text or code, `foreign_error` on one in Japanese,
    Chinese or an accented Latin script, each time by weights that were fitted without that kind.
    """

    tokenizer: str
    values: tuple[float, ...]
    error: float
    foreign_error: float


WORD_PIECES = Weights("BERT's word pieces", (0.739, 0.091, 0, 0.538, 1.029, 0, 0.44, 0.974, 0.954), 0.05, 0.18)
"""Learned from the tokenizer of all-MiniLM-L6-v2."""

BYTE_PAIRS = Weights("cl100k_base", (0.892, 0.051, 0.094, 0.809, 0.524, 0.78, 0.82, 0.451, 1.066), 0.11, 0.16)
"""Learned from tiktoken's encoding of OpenAI's embedding models."""


def features(texts: Sequence[str]) -> NDArray[np.float64]:
    """Count what the weights are of, (n, 9), in n texts.

    Runs of ASCII letters, ASCII letters, capitals, digits, other ASCII marks, runs of blanks inside a line, line ends,
    characters of two bytes in UTF-8, characters of three or four.
    """
    encoded = [text.encode(errors="surrogatepass") for text in texts]
    classes = _byte_classes()[np.frombuffer(b"\n".join([*encoded, b""]), dtype=np.uint8)]
    # A text begins a line
    previous_classes = np.concatenate([[_LINE], classes[:-1]])
    before_that = np.concatenate([[_LINE, _LINE], classes[:-2]])[: len(classes)]
    letter = classes <= _UPPER
    inner = (classes == _BLANK) & (previous_classes == _BLANK) & (before_that != _BLANK) & (before_that != _LINE)
    marked = [letter & (previous_classes > _UPPER), letter, inner]
    marked += [classes == kind for kind in (_UPPER, _DIGIT, _MARK, _LINE, _TWO, _THREE)]
    starts = np.cumsum([0, *(len(part) + 1 for part in encoded)])[:-1]
    words, letters, runs, upper, digits, marks, lines, two, three = (_sums(kind, starts) for kind in marked)
    return np.column_stack([words, letters, upper, digits, marks, runs, lines - 1, two, three])  # each got a line end


def _sums(marked: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Count the marked bytes of each text."""
    if len(starts):
        return np.add.reduceat(marked, starts, dtype=np.float64)
    return np.empty(0)


class EstimateCounter(TokenCounter):
    """Estimates tokens from letters, digits and marks. What it says of its error depends on the texts it has seen."""

    def __init__(self, weights: Weights, *, special: int = 0) -> None:
        self.weights = weights
        self.special = special
        self.source = f"estimated by letters, digits and marks, as {weights.tokenizer} would count"
        self._seen = np.zeros(len(weights.values))

    def count(self, texts: Sequence[str]) -> Counts:
        """Tokens of each text, rounded up, at least one."""
        rows = features(texts)
        self._seen += rows.sum(axis=0)
        # The sum of weights may be above a whole number by rounding alone
        tokens: Counts = np.ceil(rows @ np.array(self.weights.values) - 1e-9).astype(np.int64)
        return tokens.clip(min=1) + self.special

    @property
    def error(self) -> float:  # type: ignore[override]
        """The measured error for texts of this kind."""
        _, letters, _, digits, marks, _, _, two, three = self._seen
        # From a tenth of the characters outside ASCII on, a text passes for one in another language than English
        foreign = two + three > 0.1 * max(letters + digits + marks + two + three, 1)
        if foreign:
            return self.weights.foreign_error
        return self.weights.error
