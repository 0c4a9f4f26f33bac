"""The model that a command embeds with, by its profile, and what texts are to it in tokens and dollars.

Nothing here asks a network or reads weights. A text is counted once, however often somebody asks about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from migrate.cost.rates import Cost, usd_of
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.embedders.profile import Profile
from migrate.embedders.tokens import Counts
from migrate.selection.sample import text_digest
from migrate.vectors import Text

Target = Profile
"""What texts are counted and priced for."""


def find_target(
    spec: str, *, price_usd_per_mtok: float | None = None, prefix: str | None = None, dimensions: int | None = None
) -> Target:
    """The profile of the model of a spec; a price, a prefix or dimensions that are given go before its own.

    Raises
    ------
    UsageError
        The spec cannot be read.
    InputError
        The model's tokenizer is there and cannot be read.
    """
    profile = load_embedder(spec).profile.at_price(price_usd_per_mtok)
    document_prefix = profile.document_prefix if prefix is None else prefix
    return replace(profile, spec=spec, dim=dimensions or profile.dim, document_prefix=document_prefix)


_BLOCK = 1_024


class Tally:
    """Counts texts as a target model takes them, by the counter that `assess` and the spending commands use.

    Remembers a hash and a number for each text that was counted.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._tokens: dict[bytes, int] = {}

    @property
    def price(self) -> float | None:
        """US dollars per million tokens; None where no price is known."""
        return self.target.price_usd_per_mtok

    def tokens(self, texts: Sequence[Text]) -> Counts:
        """Tokens that the model reads of each text, prefix and special tokens included; of a blank one none."""
        return self._look_up([text_digest(text.text) for text in texts], texts)

    def cost(self, texts: Iterable[Text]) -> Cost:
        """What these texts cost; one that comes twice is paid for once."""
        count, unique, stream = 0, set[bytes](), iter(texts)
        while block := list(islice(stream, _BLOCK)):
            digests = [text_digest(text.text) for text in block]
            self._look_up(digests, block)
            unique.update(digests)
            count += len(block)
        tokens = sum(self._tokens[digest] for digest in unique)
        return Cost(count, tokens, usd_of(tokens, self.price), self.target.counter.exact)

    def _look_up(self, digests: Sequence[bytes], texts: Sequence[Text]) -> Counts:
        new = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in self._tokens}
        worded = {digest: text for digest, text in new.items() if text.text.strip()}
        self._tokens |= dict.fromkeys(new.keys() - worded.keys(), 0)
        self._tokens |= zip(worded, self.target.read(list(worded.values())).tolist(), strict=True)
        return np.array([self._tokens[digest] for digest in digests], dtype=np.int64)


def tally_of(embedder: Embedder, price_usd_per_mtok: float | None = None) -> Tally:
    """The tally of a model that is at hand; its price is by default that of the registry."""
    return Tally(embedder.profile.at_price(price_usd_per_mtok))
