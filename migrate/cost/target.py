"""What is known of a target model without loading it: dimension, prefix, limit, price, and who counts its tokens.

Nothing here asks a network or reads weights. A model of the hub is known by the hub's cache on this machine.

What texts are to one model, in tokens and dollars: a text is counted once, however often somebody asks about it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from migrate.cost.rates import Cost, usd_of
from migrate.cost.tokens import (
    BYTE_PAIRS,
    WORD_PIECES,
    Counts,
    EstimateCounter,
    TokenCounter,
    find_api_counter,
    make_counter,
    read_tokenizer,
    whole,
)
from migrate.embedders import PACKAGED_NAME, find_model, parse_spec
from migrate.embedders.base import Embedder
from migrate.embedders.openai import OpenAIEmbedder
from migrate.embedders.registry import ModelFacts
from migrate.embedders.sentence_transformers import SentenceTransformersEmbedder
from migrate.embedders.weights import local_folder
from migrate.errors import UsageError
from migrate.selection.sample import text_digest
from migrate.vectors import Text

_TOKENIZER = "tokenizer.json"
_BERT_SPECIAL = 2
"""[CLS] and [SEP]."""

_ENDLESS = 10**9
"""What transformers writes for no limit is larger."""

OPENAI, FREE = "openai", ("file", "tfidf")


@dataclass(frozen=True, slots=True)
class Target:
    """A model as it is before it is loaded. None stands for what is not known.

    `max_tokens` is how much of a text the model takes, the prefix and special tokens included.
    """

    spec: str
    provider: str
    dim: int | None
    prefix: str
    max_tokens: int | None
    price_usd_per_mtok: float | None
    batch_price_usd_per_mtok: float | None
    counter: TokenCounter

    @property
    def is_api(self) -> bool:
        """Whether texts are sent to a server, in requests."""
        return self.provider == OPENAI

    def count(self, texts: Sequence[Text]) -> Counts:
        """Tokens of each text, with prefix and special tokens, none of them cut off."""
        return self.counter.count([self.prefix + whole(text.text) for text in texts])

    def read(self, texts: Sequence[Text]) -> Counts:
        """As many of these as the model takes, which is what is paid for."""
        return self.cut(self.count(texts))

    def cut(self, counts: Counts) -> Counts:
        """Counts with what is beyond the model's limit left out."""
        return counts if self.max_tokens is None else counts.clip(max=self.max_tokens)


def find_target(
    spec: str, *, price_usd_per_mtok: float | None = None, prefix: str | None = None, dimensions: int | None = None
) -> Target:
    """The facts of the model of a spec; a price, a prefix or dimensions that are given go before what is known.

    Raises
    ------
    UsageError
        The spec cannot be read.
    InputError
        The model's tokenizer is there and cannot be read.
    """
    provider, name = parse_spec(spec)
    facts = None if provider in FREE else find_model(PACKAGED_NAME if provider == "packaged" else name)
    if facts is not None and provider == OPENAI and facts.provider != OPENAI:
        facts = None
    folder = None if provider in (OPENAI, *FREE) else local_folder(name, packaged=provider == "packaged")
    known = None if facts is None else facts.price_usd_per_mtok
    batch = None if facts is None or price_usd_per_mtok is not None else facts.batch_price_usd_per_mtok
    return Target(
        spec,
        provider,
        dimensions or _dim(provider, name, facts, folder),
        prefix if prefix is not None else _prefix(facts, folder),
        _max_tokens(facts, folder),
        known if price_usd_per_mtok is None else price_usd_per_mtok,
        batch,
        find_counter(provider, name, folder),
    )


def target_of(embedder: Embedder, *, price_usd_per_mtok: float | None = None) -> Target:
    """The facts of a model that is at hand, found without asking its server or reading its weights.

    Below a cache and a meter it is the model itself that counts. One that no spec names is estimated.
    """
    inner = innermost(embedder)
    if isinstance(inner, OpenAIEmbedder):
        spec, dim = f"{OPENAI}:{inner.name}", inner.dimensions
        prefix: str | None = inner.prefixes["document"]
    elif isinstance(inner, SentenceTransformersEmbedder):
        spec = f"packaged:{PACKAGED_NAME}" if inner.packaged else f"sentence-transformers:{inner.name}"
        prefix, dim = inner.document_prefix, None
    else:
        model = inner.quick_identity()
        spec, prefix, dim = model.spec, model.document_prefix, model.dim
    try:
        return find_target(spec, price_usd_per_mtok=price_usd_per_mtok, prefix=prefix, dimensions=dim)
    except UsageError:  # a model of a caller's own
        return Target(spec, "", dim, prefix or "", None, price_usd_per_mtok, None, find_counter("", ""))


def loaded_target(embedder: Embedder) -> Target:
    """As `target_of`; a local model whose tokenizer is not at hand as a file is loaded, which may download it."""
    target, inner = target_of(embedder), innermost(embedder)
    if target.counter.exact or not isinstance(inner, SentenceTransformersEmbedder):
        return target
    table = inner.token_table()
    if table is None:
        return target
    counter = make_counter(table.tokenizer)
    limit = None if table.limit is None else table.limit + counter.special
    return replace(target, prefix=inner.identity.document_prefix, max_tokens=limit, counter=counter)


def as_query(target: Target, embedder: Embedder) -> Target:
    """What the model is to queries, which have a prefix of their own."""
    inner = innermost(embedder)
    if isinstance(inner, OpenAIEmbedder):
        return replace(target, prefix=inner.prefixes["query"])
    return replace(target, prefix=inner.quick_identity().query_prefix)


def innermost(embedder: Embedder) -> Embedder:
    """The model itself, below cache and meter."""
    below = getattr(embedder, "embedder", None)
    return innermost(below) if isinstance(below, Embedder) else embedder


def find_counter(provider: str, name: str, folder: Path | None = None) -> TokenCounter:
    """The best counter there is on this machine: the model's own tokenizer, or else an estimate."""
    if provider == OPENAI:
        return find_api_counter(name) or EstimateCounter(BYTE_PAIRS)
    if folder is not None and (folder / _TOKENIZER).is_file():
        return read_tokenizer(folder / _TOKENIZER)
    return EstimateCounter(WORD_PIECES, special=_BERT_SPECIAL)


def _dim(provider: str, name: str, facts: ModelFacts | None, folder: Path | None) -> int | None:
    if provider == "tfidf":
        return int(name) if name.isascii() and name.isdigit() else None
    if facts is not None:
        return facts.dim
    if folder is None:
        return None
    dense = [_read(path).get("out_features") for path in sorted(folder.glob("*_Dense/config.json"))]
    known = [_read(folder / "config.json").get("hidden_size"), *dense]
    return next((dim for dim in reversed(known) if isinstance(dim, int)), None)


def _prefix(facts: ModelFacts | None, folder: Path | None) -> str:
    if facts is not None or folder is None:
        return "" if facts is None else facts.document_prefix
    prompts = _read(folder / "config_sentence_transformers.json").get("prompts") or {}
    return next((prompts[name] for name in ("document", "passage") if prompts.get(name)), "")


def _max_tokens(facts: ModelFacts | None, folder: Path | None) -> int | None:
    """The model's own word goes before the registry's; where it has none, it reads what tokenizer and network do."""
    if folder is None:
        return None if facts is None else facts.max_tokens
    own = _read(folder / "sentence_bert_config.json").get("max_seq_length")
    if isinstance(own, int):
        return own
    lengths = (
        _read(folder / "tokenizer_config.json").get("model_max_length"),
        _read(folder / "config.json").get("max_position_embeddings"),
    )
    known = [length for length in lengths if isinstance(length, int) and 0 < length < _ENDLESS]
    return min(known, default=None if facts is None else facts.max_tokens)


def _read(path: Path) -> dict[str, Any]:
    """A model's JSON file; nothing where it is not there or not an object."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


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
