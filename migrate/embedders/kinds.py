"""Kinds of embedders by name, and the one place that reads a model spec.

The kinds of this package are in `BUILT_IN`. Other packages add theirs by an entry point of the group
`lead_migrate.embedders`, whose name is the kind and whose object is an `EmbedderKind`:

    [project.entry-points."lead_migrate.embedders"]
    mykind = "my_package.my_module:KIND"

A built-in kind cannot be replaced. `migrate.testing.embedders.EmbedderTests` holds a new kind to the contract.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from migrate.embedders.base import Embedder
from migrate.embedders.registry import find_model, suggest_models
from migrate.errors import UsageError
from migrate.manifest import ModelIdentity
from migrate.plugins import installed, load_plugin
from migrate.removed import removal

ENTRY_POINTS = "lead_migrate.embedders"

POOLINGS = ("mean", "cls", "max", "lasttoken", "weightedmean")
"""How the vectors of tokens become one."""

BUILT_IN = {
    "sentence-transformers": "migrate.embedders.sentence_transformers:KIND",
    "packaged": "migrate.embedders.sentence_transformers:PACKAGED",
    "openai": "migrate.embedders.openai:KIND",
    "file": "migrate.embedders.file:KIND",
    "tfidf": "migrate.embedders.tfidf:KIND",
    "langchain": "migrate.embedders.langchain:KIND",
    "voyage": "migrate.embedders.openai:VOYAGE_KIND",
    "cohere": "migrate.embedders.openai:COHERE_KIND",
    "gemini": "migrate.embedders.openai:GEMINI_KIND",
}


APIS = ("openai", "voyage", "cohere", "gemini")
"""Kinds whose models are asked over a network, with a key."""


def _count(text: str) -> int:
    # Alone, `isdigit` is true of `²` too, which `int` refuses in its own words.
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ValueError("is not a whole number above 0")
    return int(text)


def _name(text: str) -> str:
    if not text:
        raise ValueError("is empty")
    return text


_SETTINGS: dict[str, Callable[[str], Any]] = {
    "device": _name,
    "batch-size": _count,
    "concurrency": _count,
    "rate": _name,
    "dimensions": _count,
    "document-prefix": str,
    "query-prefix": str,
}
"""How the settings of a model are read, by their names in a spec; `load_embedder` says what they mean."""


def split_settings(spec: str) -> tuple[str, dict[str, Any]]:
    """Return a spec without its settings, and these by the names that `load_embedder` has for them.

    A comma without a setting after it belongs to the name.

    >>> split_settings("openai:text-embedding-3-small,dimensions=256,rate=50/s")
    ('openai:text-embedding-3-small', {'dimensions': 256, 'rate': '50/s'})
    >>> split_settings("file:a,b.npz")
    ('file:a,b.npz', {})

    Raises
    ------
    UsageError
        There is no such setting, one is there twice, or its value cannot be read.
    """
    bare, *parts = re.split(",([a-z]+(?:[-_][a-z]+)*)=", spec)
    settings: dict[str, Any] = {}
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        name = key.replace("-", "_")
        fault = ""
        if key not in _SETTINGS:
            fault = "is unknown"
        elif name in settings:
            fault = "is there twice"
        else:
            try:
                settings[name] = _SETTINGS[key](value)
            except ValueError as error:
                fault = f"{value!r} {error}"
        if fault:
            raise UsageError(f"{spec}: the setting {key} {fault}; a model has {', '.join(_SETTINGS)}")
    return bare, settings


def with_settings(spec: str, settings: Mapping[str, Any]) -> str:
    """Return a spec with settings beside its own, or in their place; None is for none.

    >>> with_settings("openai:text-embedding-3-small,rate=50/s", {"dimensions": 256, "rate": None})
    'openai:text-embedding-3-small,dimensions=256'
    """
    bare, own_settings = split_settings(spec)
    merged = {name: value for name, value in {**own_settings, **settings}.items() if value is not None}
    return bare + "".join(f",{name.replace('_', '-')}={value}" for name, value in merged.items())


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of a network, from 0, the input embeddings, and how its tokens are pooled; None for the model's way."""

    number: int
    pooling: str | None = None


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The options of `load_embedder` besides the spec; a kind takes those that apply to it."""

    base_url: str | None = None
    device: str = "auto"
    batch_size: int | None = None
    concurrency: int | None = None
    rate: str | None = None
    dimensions: int | None = None
    document_prefix: str | None = None
    query_prefix: str | None = None
    layer: Layer | None = None
    length: int | None = None
    state: Path | None = None
    seed: int = 0

    def chosen(self, *names: str) -> dict[str, Any]:
        """Return some options by their names, without those that are None: a kind's own defaults hold for these."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class EmbedderKind:
    """A kind of embedder.

    Attributes
    ----------
    load
        Makes the embedder of a name, which is what follows the kind in a spec. Raises UsageError for a wrong name.
    example
        A name to show in messages.
    takes_prefixes, takes_dimensions, takes_device
        Whether it takes these settings; they are refused for other kinds.
    has_layers
        Whether specs may name a layer of it, and the length at which it cuts texts.
    runs_code
        Whether the name says which code to run. Such a spec is accepted from the user, never from a file.
    """

    load: Callable[[str, LoadOptions], Embedder]
    example: str
    takes_prefixes: bool = False
    takes_dimensions: bool = False
    takes_device: bool = False
    has_layers: bool = False
    runs_code: bool = False


def split_length(spec: str) -> tuple[int | None, str]:
    """Return at how many tokens a model cuts all texts, None for its own limit, and the spec without that.

    >>> split_length("length:512:e5-base-v2"), split_length("tfidf:64")
    ((512, 'e5-base-v2'), (None, 'tfidf:64'))
    """
    match = re.fullmatch("length:([1-9][0-9]{0,8}):(.+)", spec, re.DOTALL)
    if match is None:
        return None, spec
    return int(match[1]), match[2]


def layer_spec(layer: Layer, spec: str) -> str:
    """Return the spec of a layer of a model.

    >>> layer_spec(Layer(4, "cls"), "packaged:all-MiniLM-L6-v2")
    'layer:4:cls:packaged:all-MiniLM-L6-v2'
    """
    return ":".join(["layer", str(layer.number), *([layer.pooling] if layer.pooling else []), spec])


def split_layer(spec: str) -> tuple[Layer | None, str]:
    """Return the layer of a model that vectors are of, None for the model's own vectors, and the spec without that.

    >>> split_layer("layer:4:tfidf:64"), split_layer("tfidf:64")
    ((Layer(number=4, pooling=None), 'tfidf:64'), (None, 'tfidf:64'))
    """
    match = re.fullmatch(f"layer:(0|[1-9][0-9]{{0,3}}):(?:({'|'.join(POOLINGS)}):)?(.+)", spec, re.DOTALL)
    if match is None:
        return None, spec
    return Layer(int(match[1]), match[2]), match[3]


def split_spec(spec: str) -> tuple[str, str]:
    """Return kind and name of a recorded spec, those of the model inside `layer:` and `length:`.

    The kind is empty where the spec has none, as that of a caller's own embedder.

    >>> split_spec("file:vectors.npz"), split_spec("my own"), split_spec("length:24:tfidf:64")
    (('file', 'vectors.npz'), ('', 'my own'), ('tfidf', '64'))
    """
    bare = split_length(split_layer(spec)[1])[1]
    if bare != spec:
        return split_spec(bare)
    kind, colon, name = spec.partition(":")
    if colon:
        return kind, name
    return "", spec


def parse_spec(spec: str) -> tuple[str, str]:
    """Return kind and name of a model spec, the name as the registry spells it, if it is listed.

    >>> parse_spec("e5-base-v2")
    ('sentence-transformers', 'intfloat/e5-base-v2')
    """
    kind, name = split_spec(spec)
    if spec.startswith("prefix:"):
        raise UsageError(f"{removal(f'the model {spec!r}')}; name the model without its first tokens")
    for form in (
        "layer:N:MODEL or layer:N:POOLING:MODEL, such as layer:4:cls:all-MiniLM-L6-v2",
        "length:TOKENS:MODEL, such as length:512:all-MiniLM-L6-v2",
    ):
        if spec.startswith(form.partition(":")[0] + ":"):
            raise UsageError(f"{spec!r} is not of the form {form}")
    if kind in BUILT_IN or kind in installed(ENTRY_POINTS):
        if not name:
            raise UsageError(f"{spec!r} lacks the name of a model, for example {kind}:{find_kind(kind).example}")
        return kind, name
    entry = find_model(spec)
    if entry is not None and entry.provider in kind_names():
        return entry.provider, entry.name
    if entry is not None:
        raise UsageError(
            f"{entry.name} is a model of {entry.provider}, which there is no kind for; name its LangChain class, as "
            "langchain:MODULE:NAME, or openai:NAME with --base-url where its server speaks that protocol"
        )
    close = suggest_models(spec)
    hint = "for example openai:text-embedding-3-small"
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    raise UsageError(f"unknown model {spec!r}; the kinds are {', '.join(f'{k}:' for k in kind_names())} - {hint}")


def kind_names() -> list[str]:
    """Return every kind that is installed, those of this package first."""
    return list(dict.fromkeys([*BUILT_IN, *installed(ENTRY_POINTS)]))


def find_kind(name: str) -> EmbedderKind:
    """Return the kind of a name; this imports its module, and nothing heavy for a kind of this package."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        kind: EmbedderKind = getattr(import_module(module), attribute)
        return kind
    point = installed(ENTRY_POINTS).get(name)
    if point is None:
        raise UsageError(f"unknown kind of model {name!r}; the kinds are {', '.join(kind_names())}")
    plugin: EmbedderKind = load_plugin(point, EmbedderKind)
    return plugin


def kind_of(spec: str) -> EmbedderKind | None:
    """Return the kind of a recorded spec, or None where it is not installed or has none."""
    kind, _ = split_spec(spec)
    if kind in BUILT_IN or kind in installed(ENTRY_POINTS):
        return find_kind(kind)
    return None


def takes_dimensions(spec: str) -> bool:
    """Return whether the model of a spec can be asked for shorter vectors."""
    kind = kind_of(spec)
    return kind is not None and kind.takes_dimensions


def shortened(model: ModelIdentity, dimensions: int) -> ModelIdentity:
    """Return a model as artefacts remember it where it is asked for vectors of `dimensions`.

    >>> shortened(ModelIdentity("openai:text-embedding-3-large", 3072, True), 256).dim
    256
    """
    # What a model of the registry was asked for shows in its dimension
    requested = None if find_model(split_spec(model.spec)[1]) else dimensions
    return replace(model, dim=dimensions, dimensions=requested)


def may_cost_money(spec: str) -> bool:
    """Return True if embedding by the model of a spec may cost money: it is an API, or unknown code."""
    return split_spec(spec)[0] in APIS or runs_code(spec)


def runs_code(spec: str) -> bool:
    """Return True if the name in a spec says which code to run, so that no file may choose it."""
    kind = kind_of(spec)
    return kind is not None and kind.runs_code
