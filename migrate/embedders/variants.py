"""A loaded model used in other ways than it says of itself: other pooling, other length. Its weights are shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from migrate.documents import Text
from migrate.embedders.base import Variant
from migrate.embedders.loading import quiet
from migrate.vectors import Vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

POOLINGS: Final = ("mean", "cls", "max", "lasttoken", "weightedmean")
LENGTHS: Final = (128, 256, 384, 512)
"""Tokens at which well-known wrappers of models cut texts off."""


def other_poolings(model: SentenceTransformer) -> Iterator[tuple[str, SentenceTransformer]]:
    """Each pooling that the model does not use, by name, with a model that does; none for a model without pooling."""
    from sentence_transformers import SentenceTransformer

    parts = list(model)
    pooling: Any = next((part for part in parts if type(part).__name__ == "Pooling"), None)
    if pooling is None:
        return
    facts = pooling.get_config_dict()
    # sentence-transformers 6 names both otherwise than 5
    dim = facts.get("embedding_dimension") or facts.get("word_embedding_dimension")
    used = facts.get("pooling_mode") or pooling.get_pooling_mode_str()
    for mode in POOLINGS:
        if mode != used:
            with quiet():
                other = type(pooling)(dim, pooling_mode=mode)
                modules = [other if part is pooling else part for part in parts]
                yield mode, SentenceTransformer(modules=modules, device=str(model.device)).eval()


def other_lengths(model: SentenceTransformer, embed: Callable[[Sequence[Text]], Vectors]) -> Iterator[Variant]:
    """Each usual length that the model can read and does not cut at, with `embed` doing so."""
    longest, used = _positions(model), model.max_seq_length
    for tokens in LENGTHS:
        if used is not None and tokens != used and tokens <= longest:
            meaning = f"with texts cut at {tokens} tokens instead of {used}"
            # No token is shorter than a character; two are special ones
            yield Variant("length", meaning, _cut(model, tokens, embed), min(tokens, used) - 2)


def _positions(model: SentenceTransformer) -> int:
    """How many tokens the network can read; what it reads now where it does not say."""
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    return int(getattr(config, "max_position_embeddings", None) or model.max_seq_length or 0)


def _cut(
    model: SentenceTransformer, tokens: int, embed: Callable[[Sequence[Text]], Vectors]
) -> Callable[[Sequence[Text]], Vectors]:
    def embed_cut(texts: Sequence[Text]) -> Vectors:
        with _length(model, tokens):
            return embed(texts)

    return embed_cut


@contextmanager
def _length(model: SentenceTransformer, tokens: int) -> Iterator[None]:
    before = model.max_seq_length
    model.max_seq_length = tokens
    try:
        yield
    finally:
        model.max_seq_length = before
