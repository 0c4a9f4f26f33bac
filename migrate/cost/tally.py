"""What texts are to one model, in tokens and dollars: a text is counted once, however often somebody asks about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from migrate.cost.price import Cost, usd_of
from migrate.cost.target import Target, target_of
from migrate.cost.tokens import Counts
from migrate.documents import Text
from migrate.embedders.base import Embedder
from migrate.sample.distinct import text_digest

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
        count, seen, stream = 0, set[bytes](), iter(texts)
        while block := list(islice(stream, _BLOCK)):
            digests = [text_digest(text.text) for text in block]
            self._look_up(digests, block)
            seen.update(digests)
            count += len(block)
        tokens = sum(self._tokens[digest] for digest in seen)
        return Cost(count, tokens, usd_of(tokens, self.price), self.target.counter.exact)

    def _look_up(self, digests: Sequence[bytes], texts: Sequence[Text]) -> Counts:
        new = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in self._tokens}
        worded = {digest: text for digest, text in new.items() if text.text.strip()}
        self._tokens |= dict.fromkeys(new.keys() - worded.keys(), 0)
        self._tokens |= zip(worded, self.target.read(list(worded.values())).tolist(), strict=True)
        return np.array([self._tokens[digest] for digest in digests], dtype=np.int64)


def tally_of(embedder: Embedder, price_usd_per_mtok: float | None = None) -> Tally:
    """The tally of a model that is at hand; its price is by default that of the registry."""
    return Tally(target_of(embedder, price_usd_per_mtok=price_usd_per_mtok))
