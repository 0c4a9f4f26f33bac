"""Exact counts for local models: their own tokenizer, read from its file; the weights of the model stay on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from migrate.cost.tokens import Counts, TokenCounter
from migrate.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MOST_WORDS = 2_000_000
"""Words that are remembered: some 300 MB at most."""


def read_tokenizer(path: Path) -> TokenizerCounter:
    """The counter of a `tokenizer.json`; one that takes words one by one where the tokenizer does.

    Raises
    ------
    InputError
        The file cannot be read, or is no tokenizer.
    """
    try:
        return make_counter(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{path}: expected a tokenizer of the tokenizers library, found something else") from error


def make_counter(text: str) -> TokenizerCounter:
    """As `read_tokenizer`, of what stands in such a file; of anything else, whatever the library raises."""
    from tokenizers import Tokenizer

    facts = json.loads(text)
    model = Tokenizer.from_str(text)
    # What the file remembers of cutting and padding is for embedding, not for counting.
    model.no_truncation()
    model.no_padding()
    return WordCounter(model) if is_wordwise(facts) else TokenizerCounter(model)


def is_wordwise(facts: Any) -> bool:
    """Whether a text has as many tokens as its words have one by one.

    BERT's normalizer and pre-tokenizer see nothing beyond a blank: white space ends a word whatever stands around.
    An added token with a blank inside would be the exception.
    """
    if not isinstance(facts, dict):
        return False
    kinds = {(facts.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer")}
    added = [token.get("content", " ") for token in facts.get("added_tokens", [])]
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

    def _lengths(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[int]:
        # Offsets, which nobody needs here, take a third of the time.
        found = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        return [len(encoding) for encoding in found]


class WordCounter(TokenizerCounter):
    """Counts with a tokenizer that takes words one by one: each distinct word is cut once and remembered."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self._known: dict[str, int] = {"": 0}

    def count(self, texts: Sequence[str]) -> Counts:
        """Tokens of each text, the special ones among them."""
        split = [text.replace("\n", " ").split(" ") for text in texts]
        fresh = [word for word in set().union(*split) if word not in self._known]
        self._known.update(zip(fresh, self._lengths(fresh, add_special_tokens=False), strict=True))
        tokens_of = self._known.__getitem__
        counts = [sum(map(tokens_of, words)) for words in split]
        if len(self._known) > _MOST_WORDS:
            self._known = {"": 0}
        return np.array(counts, dtype=np.int64) + self.special
