"""Documents by their beginning: a model that is given the first tokens of each, and queries whole.

It is what a translated store has to beat: most of what an abstract is about stands in its first lines, and embedding
those costs a tenth. Texts without such a head lose half of what they are worth.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice

from migrate.embedders.base import Embedder, Keep, Role, Variant, WrappedEmbedder, require_texts
from migrate.embedders.kinds import prefix_spec, split_prefix
from migrate.embedders.profile import Profile
from migrate.embedders.tokens import TokenCounter, TokenizerCounter, whole
from migrate.errors import UsageError
from migrate.manifest import ModelIdentity
from migrate.vectors import Document, Progress, Text, Vectors, no_progress

_BLOCK = 1_024
"""Texts that are cut at a time."""


def first_tokens(counter: TokenCounter, texts: Sequence[str], tokens: int) -> list[str]:
    """The first tokens of each text, or its first words where the counter has no tokenizer of the model's own.

    That of an API counts as none, as it may be missing on another machine. A text that has no more is left as it is,
    and no text becomes blank.
    """
    if not isinstance(counter, TokenizerCounter):
        return [_first_words(text, tokens) for text in texts]
    cut = []
    for start in range(0, len(texts), _BLOCK):
        block = texts[start : start + _BLOCK]
        ends = counter.ends(list(map(whole, block)), tokens)
        cut += [
            text[:end] if text[:end].strip() else _first_words(text, 1) for text, end in zip(block, ends, strict=True)
        ]
    return cut


def _first_words(text: str, words: int) -> str:
    alone = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # kana and Chinese, which no blanks part into words
    ends = [word.end() for word in islice(re.finditer(f"[{alone}]|[^\\s{alone}]+", text), words + 1)]
    return text if len(ends) <= words else text[: ends[words - 1]]


def unit_of(counter: TokenCounter) -> str:
    """Return the unit that `first_tokens` counts."""
    return "tokens" if isinstance(counter, TokenizerCounter) else "words"


def first_of(documents: Iterable[Document], counter: TokenCounter, tokens: int) -> Iterator[Document]:
    """The documents with what `first_tokens` leaves of their texts, streaming."""
    stream = iter(documents)
    while block := list(islice(stream, _BLOCK)):
        texts = first_tokens(counter, [document.text for document in block], tokens)
        yield from (replace(document, text=text) for document, text in zip(block, texts, strict=True))


class PrefixEmbedder(WrappedEmbedder):
    """Embeds the first `tokens` tokens of each document, and queries as they are.

    Tokens are counted by the model's own tokenizer, without the prefix and the special ones; a model that has none, or
    that an API hides, gets as many words. A cache belongs inside: what it keeps is then the vector of the text that is
    left, and a document that is no longer costs nothing again.

    Raises UsageError: there is no such number of tokens, or the embedder gives vectors of whole documents only.
    """

    def __init__(self, embedder: Embedder, tokens: int) -> None:
        if tokens < 1:
            raise UsageError(f"{tokens} tokens of each document are too few to embed; give at least 1")
        if isinstance(embedder, PrefixEmbedder):
            raise UsageError(f"{embedder.profile.spec} reads first tokens already; name a model of whole documents")
        if embedder.profile.kind == "file":
            raise UsageError(
                f"{embedder.profile.spec} has vectors of whole documents, none of their first {tokens} tokens; name "
                "the model itself"
            )
        super().__init__(embedder)
        self.tokens = tokens

    def around(self, embedder: Embedder) -> PrefixEmbedder:
        """Cut the texts of another embedder in the same way."""
        return PrefixEmbedder(embedder, self.tokens)

    @property
    def identity(self) -> ModelIdentity:
        """The model's, with the number of tokens in its spec."""
        return self._named(self.embedder.identity)

    def quick_identity(self) -> ModelIdentity:
        """Return the identity, as far as it is known without loading the model."""
        return self._named(self.embedder.quick_identity())

    def _named(self, model: ModelIdentity) -> ModelIdentity:
        return replace(model, spec=prefix_spec(self.tokens, model.spec))

    @property
    def profile(self) -> Profile:
        """The model's, whose counts are of what is left of documents."""
        return self._cutting(self.embedder.profile)

    def loaded_profile(self) -> Profile:
        """Return the profile of the model, loaded if need be."""
        return self._cutting(self.embedder.loaded_profile())

    def _cutting(self, profile: Profile) -> Profile:
        counter, tokens = profile.counter, self.tokens
        spec = prefix_spec(tokens, profile.spec)
        return replace(profile, spec=spec, cut_text=lambda texts: first_tokens(counter, texts, tokens))

    @cached_property
    def _counter(self) -> TokenCounter:
        return self.embedder.loaded_profile().counter

    @cached_property
    def _spec(self) -> str:
        return self.profile.spec

    def _cut(self, texts: Sequence[Text], role: Role) -> Sequence[Text]:
        if role == "query":
            return texts
        cut = first_tokens(self._counter, [text.text for text in texts], self.tokens)
        return [
            Document(text.id, beginning) if beginning != text.text else text
            for text, beginning in zip(texts, cut, strict=True)
        ]

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed queries, or the first tokens of documents."""
        require_texts(texts, model=self._spec)
        return self.embedder.embed(self._cut(texts, role), role, progress=progress)

    def embed_each(self, texts: Sequence[Text], role: Role, keep: Keep, *, progress: Progress = no_progress) -> None:
        """Embed queries, or the first tokens of documents, in parts."""
        require_texts(texts, model=self._spec)
        self.embedder.embed_each(self._cut(texts, role), role, keep, progress=progress)

    def embed_again(self, texts: Sequence[Text], role: Role) -> Vectors:
        """Embed past any cache inside."""
        return self.embedder.embed_again(self._cut(texts, role), role)

    def find(self, texts: Sequence[Text], role: Role) -> dict[int, Vectors]:
        """Find vectors of the first tokens in the cache."""
        return self.embedder.find(self._cut(texts, role), role)

    def variants(self) -> Iterator[Variant]:
        """Yield variants of the model, given the first tokens of documents."""
        for variant in self.embedder.variants():
            yield replace(variant, embedder=self.around(variant.embedder))

    def cache_scope(self, role: Role) -> str:
        """The model's, and for documents how much of them it is given."""
        scope = self.embedder.cache_scope(role)
        return scope if role == "query" else prefix_spec(self.tokens, scope)


def whole_model(model: ModelIdentity) -> ModelIdentity:
    """The model whose space vectors are in: of one that is given first tokens, the one that is given them."""
    return replace(model, spec=split_prefix(model.spec)[1])


def whole_embedder(embedder: Embedder) -> Embedder:
    """The same model, given whole documents: without a `PrefixEmbedder` in it."""
    if isinstance(embedder, PrefixEmbedder):
        return embedder.embedder
    if not isinstance(embedder, WrappedEmbedder):
        return embedder
    inner = whole_embedder(embedder.embedder)
    return embedder if inner is embedder.embedder else embedder.around(inner)
