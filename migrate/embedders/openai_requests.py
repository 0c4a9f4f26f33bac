"""Cutting texts into requests that stay within the limits of OpenAI's embeddings API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

MAX_REQUEST_TEXTS = 2048
MAX_REQUEST_TOKENS = 300_000

FEW_TEXTS = 16
"""A request of fewer texts takes hardly less time than one of so many."""

MANY_TEXTS = 256
"""Texts in a request that are worth its round trip, and that a server on a modest machine answers in time."""


def fair_share(count: int, concurrency: int, most: int) -> int:
    """Texts in a request where `count` are to be sent, `concurrency` requests at a time, of at most `most` texts.

    Few texts are dealt out to all; of many, requests grow up to the limit only where each place has four of them to
    send, so that none waits long for the last one. A place that is the only one takes as many as it may.

    >>> [fair_share(count, 8, 2048) for count in (10, 1_000, 8_192, 1_000_000)]
    [16, 125, 256, 2048]
    """
    if concurrency == 1:
        return most
    once, four_times = -(-count // concurrency), -(-count // (4 * concurrency))
    return min(most, max(FEW_TEXTS, min(once, MANY_TEXTS // 2), four_times))


def split_requests(
    tokens: Sequence[int], *, max_texts: int = MAX_REQUEST_TEXTS, max_tokens: int = MAX_REQUEST_TOKENS
) -> Iterator[range]:
    """Cut texts, given by their tokens, into runs of at most `max_texts` and `max_tokens`; a longer text goes alone.

    >>> list(split_requests([5, 5, 5, 9], max_tokens=10))
    [range(0, 2), range(2, 3), range(3, 4)]
    """
    start, total = 0, 0
    for position, more in enumerate(tokens):
        if position > start and (position - start == max_texts or total + more > max_tokens):
            yield range(start, position)
            start, total = position, 0
        total += more
    if start < len(tokens):
        yield range(start, len(tokens))
