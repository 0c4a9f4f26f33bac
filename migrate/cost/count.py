"""Counting the tokens of many texts: streaming, each text once, with 12 bytes in memory for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from migrate.cost.estimate import Estimate
from migrate.cost.rates import usd_of
from migrate.embedders.base import Embedder
from migrate.embedders.profile import Profile
from migrate.embedders.tokens import Counts
from migrate.hashes import Hashes, HashIndex, grown
from migrate.selection.sample import text_digest
from migrate.vectors import Progress, Text, no_progress

CacheLookup = Callable[[Sequence[Text]], list[bool]]
"""Tells of each text if it is in the embedding cache, so that it costs nothing."""


@dataclass
class TextCount:
    """The counts of some texts, as a model takes them.

    Attributes
    ----------
    documents, blank, duplicates : texts in all, those of nothing but white space, those that came before
    tokens, tokens_read : of the other texts, with prefix and special tokens: all, and as much as the model takes
    over_limit, longest : texts beyond the model's limit, and the tokens of the longest
    cached, cached_tokens : of them those that are in the embedding cache, and their tokens
    """

    documents: int = 0
    blank: int = 0
    duplicates: int = 0
    tokens: int = 0
    tokens_read: int = 0
    over_limit: int = 0
    longest: int = 0
    cached: int = 0
    cached_tokens: int = 0

    @property
    def distinct(self) -> int:
        """Texts that are embedded once each."""
        return self.documents - self.blank - self.duplicates

    @property
    def to_embed(self) -> int:
        """Texts that must be embedded, as the cache has the others."""
        return self.distinct - self.cached

    @property
    def tokens_to_embed(self) -> int:
        """Tokens of these."""
        return self.tokens_read - self.cached_tokens


def count_texts(
    texts: Iterable[Text],
    target: Profile,
    *,
    lookup: CacheLookup | None = None,
    once: bool = True,
    total: int | None = None,
    progress: Progress = no_progress,
) -> TextCount:
    """Count texts as the target model will take them. `lookup` says which of them are paid for already.

    With `once`, as where a cache keeps what comes, a text that came before costs nothing again.
    """
    count = TextCount()
    index = HashIndex()
    for block in _blocks(texts):
        progress("count tokens", count.documents, total)
        _add_block(count, _not_counted(block, index, count, once=once), target, lookup)
    progress("count tokens", count.documents, count.documents)
    return count


def _blocks(texts: Iterable[Text]) -> Iterator[list[Text]]:
    stream = iter(texts)
    while block := list(islice(stream, 1_024)):
        yield block


def _not_counted(block: Sequence[Text], index: HashIndex, count: TextCount, *, once: bool) -> list[Text]:
    """Return the texts of a block that are not blank and did not come before; the others are counted."""
    count.documents += len(block)
    worded = [text for text in block if text.text.strip()]
    count.blank += len(block) - len(worded)
    # Without a cache a text that comes again is sent, and paid for, again
    if not once:
        return worded
    hashes = _hashes(worded)
    new = [worded[position] for position in _first_of_new(hashes, index).tolist()]
    index.number(hashes)
    count.duplicates += len(worded) - len(new)
    return new


def _hashes(texts: Sequence[Text]) -> Hashes:
    # 8 bytes: among ten million texts two have one hash with a chance of 3 in a million, and would be counted once
    return np.frombuffer(b"".join(text_digest(text.text)[:8] for text in texts), np.int64)


def _first_of_new(hashes: Hashes, index: HashIndex) -> NDArray[np.int64]:
    """Return the positions of hashes that an index does not have, each hash once, ascending."""
    first = np.sort(np.unique(hashes, return_index=True)[1])
    return first[index.find(hashes[first]) < 0]


def _add_block(count: TextCount, texts: Sequence[Text], target: Profile, lookup: CacheLookup | None) -> None:
    counts = target.count(texts)
    read = target.cut(counts)
    count.tokens += int(counts.sum())
    count.tokens_read += int(read.sum())
    count.longest = max(count.longest, int(counts.max(initial=0)))
    count.over_limit += int(np.count_nonzero(counts > read))
    if lookup is not None and texts:
        paid = lookup(texts)
        count.cached += sum(paid)
        count.cached_tokens += int(read[paid].sum())


class Tally:
    """Counts texts as a target model takes them, by the counter that `assess` and the spending commands use.

    Remembers a hash and a number for each text that was counted, of 16 bytes.
    """

    def __init__(self, target: Profile) -> None:
        self.target = target
        self._index = HashIndex()
        self._tokens = np.zeros(0, np.uint32)

    @property
    def price(self) -> float | None:
        """US dollars per million tokens; None where no price is known."""
        return self.target.price_usd_per_mtok

    def tokens(self, texts: Sequence[Text]) -> Counts:
        """Count the tokens that the model reads of each text, with prefix and special ones; of a blank text none."""
        numbers = self._look_up(texts)
        return self._tokens[numbers].astype(np.int64)

    def cost(self, texts: Iterable[Text]) -> Estimate:
        """Return the cost of these texts; one that comes twice is paid for once."""
        count = 0
        is_among = np.zeros(0, bool)
        for block in _blocks(texts):
            numbers = self._look_up(block)
            is_among = grown(is_among, len(self._index))
            is_among[numbers] = True
            count += len(block)
        tokens = int(self._tokens[np.flatnonzero(is_among)].sum(dtype=np.int64))
        usd = usd_of(tokens, self.price)
        return Estimate(count, tokens=tokens, usd=usd, is_exact=self.target.counter.exact)

    def _look_up(self, texts: Sequence[Text]) -> NDArray[np.int64]:
        """Return the number under which each text is remembered, (n,)."""
        hashes = _hashes(texts)
        new = _first_of_new(hashes, self._index)
        is_worded = np.array([bool(texts[position].text.strip()) for position in new.tolist()], bool)
        tokens = np.zeros(len(new), np.uint32)
        tokens[is_worded] = self.target.read([texts[position] for position in new[is_worded].tolist()])
        n_before = len(self._index)
        numbers = self._index.number(hashes)
        self._tokens = grown(self._tokens, len(self._index))
        self._tokens[n_before : len(self._index)] = tokens
        return numbers


def tally_of(embedder: Embedder, price_usd_per_mtok: float | None = None) -> Tally:
    """Return the tally of a model that is at hand; its price is by default that of the registry."""
    return Tally(embedder.profile.at_price(price_usd_per_mtok))
