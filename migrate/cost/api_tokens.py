"""Exact counts for OpenAI's models, where tiktoken is installed and its encoding is on this machine already."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from migrate.cost.tokens import Counts, TokenCounter
from migrate.embedders.openai_tokens import estimate_tokens, token_counter

_TEXTS_PER_TURN = 32


def find_api_counter(name: str) -> TokenCounter | None:
    """What counts as the API does; None where only an estimate can be had."""
    count = token_counter(name)
    return None if count is estimate_tokens else ApiCounter(count)


class ApiCounter(TokenCounter):
    """Counts with tiktoken, on all cores: it lets others work while it counts."""

    source = "exact, by tiktoken's encoding of OpenAI's models"

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count

    def count(self, texts: Sequence[str]) -> Counts:
        """Tokens of each text."""
        turns = [texts[start : start + _TEXTS_PER_TURN] for start in range(0, len(texts), _TEXTS_PER_TURN)]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            found = threads.map(lambda turn: [self._count(text) for text in turn], turns)
            return np.array([tokens for turn in found for tokens in turn], dtype=np.int64)
