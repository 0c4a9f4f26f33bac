"""Cutting texts into requests that stay within the limits of OpenAI's embeddings API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from migrate.documents import Text

MAX_REQUEST_TEXTS = 2048
MAX_REQUEST_TOKENS = 300_000


def estimate_tokens(text: str) -> int:
    """Tokens of a text, estimated high: a third of its UTF-8 bytes, rounded up.

    English has about 4.5 bytes a token, code and Chinese about 3. Where it is still too low, the server says so
    and the request is cut in half.

    >>> estimate_tokens("a stitch in time")
    6
    """
    return -(-len(text.encode()) // 3)


def split_requests(
    texts: Sequence[Text],
    prefix_bytes: int = 0,
    *,
    max_texts: int = MAX_REQUEST_TEXTS,
    max_tokens: int = MAX_REQUEST_TOKENS,
    count: Callable[[str], int] = estimate_tokens,
) -> Iterator[Sequence[Text]]:
    """Cut texts into runs of at most `max_texts` and, unless one text alone is longer, `max_tokens`."""
    start, tokens = 0, 0
    for position, text in enumerate(texts):
        more = count(text.text) + -(-prefix_bytes // 3)
        if position > start and (position - start == max_texts or tokens + more > max_tokens):
            yield texts[start:position]
            start, tokens = position, 0
        tokens += more
    if start < len(texts):
        yield texts[start:]
