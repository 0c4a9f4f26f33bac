"""The part of texts that a model leaves unread where they are longer than it takes, which it does not say itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from migrate.cost.count import count_texts
from migrate.display import percent
from migrate.embedders.profile import Profile
from migrate.stores.base import Store
from migrate.vectors import Progress, Text, no_progress

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
        """Say it in words, where some text is over; `subject` are the texts."""
        if self.store is None:
            counted = f"{self.over:,} of {self.texts:,}"
        else:
            counted = f"{percent(self.over / self.texts)} of {self.store:,}"
        are = "are"
        if self.over == 1 and self.store is None:
            are = "is"
        about = "about "
        if self.is_exact and self.store is None:
            about = ""
        share = f"{about}{percent(self.share)} of all tokens"
        takes = "reads"
        fate = f"{share} are never read"
        if self.is_api:
            takes = "takes"
            fate = f"the API refuses such texts ({share} lie beyond)"
        longer = f"{about}{counted} {subject} {are} longer than the {self.limit:,} tokens that {self.model} {takes}"
        return f"{longer}: {fate}"


def count_unread(
    texts: Iterable[Text], target: Profile, *, store: int | None = None, progress: Progress = no_progress
) -> Unread | None:
    """Count what the model will leave unread of these texts; None where it has no limit, or none is known."""
    if target.max_tokens is None:
        return None
    count = count_texts(texts, target, once=False, progress=progress)
    share = 0.0
    if count.tokens:
        share = 1 - count.tokens_read / count.tokens
    exact = target.counter.exact
    return Unread(target.spec, target.max_tokens, count.distinct, count.over_limit, share, exact, target.is_api, store)


def count_unread_of_store(store: Store, target: Profile, *, seed: int = 0) -> Unread | None:
    """Count the same for a store's documents, or for `MOST_COUNTED` of them; None too where it has no texts."""
    if not store.info.has_texts or target.max_tokens is None:
        return None
    count = store.info.count
    if count <= MOST_COUNTED:
        return count_unread(store.documents(), target)
    # Ascending, as stores in files are read from front to back
    rows = np.sort(np.random.default_rng(seed).choice(count, size=MOST_COUNTED, replace=False))
    return count_unread(store.documents(rows), target, store=count)
