"""Models that run on this machine through sentence-transformers: from the hub, a folder, or a package.

Vectors are used as the model returns them, in float32; vectors of a model that does not normalise are not normalised
here. Loading prints nothing on the terminal. The variants of a loaded model pool otherwise, or cut texts elsewhere,
with the same weights, so that a check can find how a store was really built.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.abilities import LocalModel, PrefixedModel, TokenTable, Variant
from migrate.embedders.base import Embedder, Role, in_batches, require_texts
from migrate.embedders.kinds import POOLINGS, EmbedderKind, Layer, LoadOptions, layer_spec, shortened
from migrate.embedders.profile import Profile, estimate_word_pieces
from migrate.embedders.registry import LOCAL, ModelFacts, find_model
from migrate.embedders.tokens import read_tokenizer
from migrate.embedders.weights import (
    PACKAGED_MODEL,
    ModelSource,
    find_source,
    local_folder,
    packaged_model_path,
    packaged_source,
    weights_revision,
)
from migrate.errors import InputError, RemoteError, UsageError
from migrate.manifest import ModelIdentity
from migrate.progress import one_step
from migrate.reading import MalformedError, read_table
from migrate.vectors import Progress, Text, Vectors, as_vectors, check_vectors, first_dimensions, no_progress

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PACKAGED_NAME = "all-MiniLM-L6-v2"


def pick_device(device: str) -> str:
    """Resolve "auto": cuda, or else mps, or else cpu; any other name is kept, if torch knows it."""
    import torch

    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        if torch.backends.mps.is_available():
            return "mps"
        return "cpu"
    try:
        torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"{device!r} is not a device; name one such as auto, cpu, cuda, cuda:1 or mps") from error
    return device


_USUAL_LENGTHS = (128, 256, 384, 512)
"""Tokens at which well-known wrappers of models cut texts off."""

_SPECIAL_TOKENS = 2
"""Tokens that a model puts around a text."""

_TOKENS_AT_ONCE = 512
"""Single tokens that are embedded in one pass."""

_NO_LIMIT = 10**9
"""Tokens from which on a limit is none: transformers writes a number far beyond where a model has no limit."""


def load_model(source: ModelSource, device: str) -> SentenceTransformer:
    """Load a model in float32: some weights are stored in half precision, which few processors compute well in."""
    with quiet():
        from sentence_transformers import SentenceTransformer

        try:
            model = SentenceTransformer(
                str(source.folder or source.name),
                device="cpu",
                # Otherwise the hub is asked for news of a model that is on this machine: no good without a network
                local_files_only=source.offline,
            )
        except Exception as error:  # the three libraries below may raise anything
            reason = _first_line(error)
            if source.folder is not None or source.offline:
                location = source.folder or source.name
                raise InputError(f"{location}: cannot load a sentence-transformers model from it: {reason}") from error
            raise RemoteError(
                f"cannot load {source.name} from the hub: {reason}; try again, or give a folder"
            ) from error
        try:
            return model.float().to(device).eval()
        except (RuntimeError, AssertionError) as error:
            raise UsageError(
                f"device {device!r} is not usable here ({_first_line(error)}); try SPEC,device=cpu"
            ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def _counting_passes(
    model: SentenceTransformer, size: int, count: int, report: Callable[[int], None]
) -> Iterator[None]:
    """Report after each forward pass but the last how many texts are done: `encode` takes minutes on a slow machine."""
    done = 0

    def passed(*_: Any) -> None:
        nonlocal done
        done += size
        if done < count:
            report(done)

    hook = model[0].register_forward_hook(passed)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the warnings, log lines and progress bars of the libraries below off the user's terminal."""
    from transformers.utils import logging as transformers_logging

    noisy = ("transformers", "sentence_transformers", "huggingface_hub", "torch", "httpx", "httpx2")
    levels = {name: logging.getLogger(name).level for name in noisy}
    bars = transformers_logging.is_progress_bar_enabled()
    for name in noisy:
        logging.getLogger(name).setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        if bars:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def at_layer(model: SentenceTransformer, layer: Layer, *, spec: str) -> SentenceTransformer:
    """A model with the same weights whose vectors are of a layer; what comes after pooling is left out, but the norm.

    Hidden states are counted as transformers does: 0 are the input embeddings, the last is the network's output.

    Raises UsageError: the network has no such layer, or none at all.
    """
    from sentence_transformers import SentenceTransformer
    from torch import nn

    parts = list(model)
    pooling = _pooling(model)
    config = _config(model)
    last = getattr(config, "num_hidden_layers", None)
    if pooling is None or config is None or last is None:
        raise UsageError(f"{spec}: the model has no layers that are pooled; leave the layer out")
    if layer.number > last:
        raise UsageError(f"{spec}: there is no layer {layer.number}; name one from 0 to {last}")
    is_last = layer.number == last
    # Kept where another copy of the model, which shares the configuration, needs them
    config.output_hidden_states = config.output_hidden_states or not is_last

    class Hidden(nn.Module):  # type: ignore[misc, unused-ignore]
        def forward(self, features: dict[str, Any]) -> dict[str, Any]:
            return {**features, "token_embeddings": features.pop("all_layer_embeddings")[layer.number]}

    pooling_config = pooling.get_config_dict()
    prompts = {name: prompt for name, prompt in model.prompts.items() if prompt is not None}
    with quiet():
        mode = layer.pooling or pooling_config.get("pooling_mode") or pooling.get_pooling_mode_str()
        pooled = type(pooling)(config.hidden_size, pooling_mode=mode, include_prompt=pooling.include_prompt)
        norm = [module for module in parts[-1:] if type(module).__name__ == "Normalize"]
        modules = [parts[0], *([] if is_last else [Hidden()]), pooled, *norm]
        layered = SentenceTransformer(modules=modules, device=str(model.device), prompts=prompts)
    return layered.eval()


def other_poolings(model: SentenceTransformer) -> Iterator[tuple[str, SentenceTransformer]]:
    """Each pooling that the model does not use, by name, with a model that does; none for a model without pooling."""
    from sentence_transformers import SentenceTransformer

    pooling = _pooling(model)
    if pooling is None:
        return
    pooling_config = pooling.get_config_dict()
    # sentence-transformers 6 names both otherwise than 5
    dim = pooling_config.get("embedding_dimension") or pooling_config.get("word_embedding_dimension")
    used = pooling_config.get("pooling_mode") or pooling.get_pooling_mode_str()
    for mode in POOLINGS:
        if mode != used:
            with quiet():
                replacement = type(pooling)(dim, pooling_mode=mode)
                modules = [replacement if module is pooling else module for module in model]
                yield mode, SentenceTransformer(modules=modules, device=str(model.device)).eval()


def _pooling(model: SentenceTransformer) -> Any:
    """The module that pools, or None."""
    return next((module for module in model if type(module).__name__ == "Pooling"), None)


def _config(model: SentenceTransformer) -> Any:
    """The configuration of the network, or None."""
    return getattr(getattr(model[0], "auto_model", None), "config", None)


def _positions(model: SentenceTransformer) -> int:
    """Return how many tokens the network can read, or reads now."""
    return int(getattr(_config(model), "max_position_embeddings", None) or model.max_seq_length or 0)


@contextmanager
def _cutting(model: SentenceTransformer, tokens: int | None) -> Iterator[None]:
    """Let a model cut texts at so many tokens; None leaves it as it is. Others may share its weights."""
    if tokens is None:
        yield
        return
    max_seq_length = model.max_seq_length
    model.max_seq_length = tokens
    try:
        yield
    finally:
        model.max_seq_length = max_seq_length


def _max_tokens(entry: ModelFacts | None, folder: Path | None) -> int | None:
    """The model's own limit comes before the registry's; without one, that of tokenizer and network applies."""
    limit = _read(folder, "sentence_bert_config.json").get("max_seq_length")
    if isinstance(limit, int):
        return limit
    lengths = (
        _read(folder, "tokenizer_config.json").get("model_max_length"),
        _read(folder, "config.json").get("max_position_embeddings"),
    )
    limits = [length for length in lengths if isinstance(length, int) and 0 < length < _NO_LIMIT]
    return min(limits, default=None if entry is None else entry.max_tokens)


def _read(folder: Path | None, name: str) -> dict[str, Any]:
    """A model's JSON file; empty where it is not there or not an object."""
    try:
        if folder is None:
            return {}
        return read_table(folder / name)
    except (OSError, MalformedError):
        return {}


def _packaged_model() -> ModelSource:
    """Return the source of the packaged model; raises UsageError where it is not installed."""
    return ModelSource(PACKAGED_MODEL, folder=packaged_model_path())


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A model, and where it was found."""

    source: ModelSource
    model: SentenceTransformer


class SentenceTransformersEmbedder(LocalModel, PrefixedModel):
    """A sentence-transformers model, loaded when it is first needed; options as of `load_embedder`.

    `name` is one of the hub, without the organisation for models of the registry, or a folder; `packaged` takes all-
    MiniLM-L6-v2 out of the package that carries it. Prefixes that are None are the registry's, or else the prompts of
    the model's own configuration. `layer` None gives the model's vectors; `length` None cuts texts where the model
    does. `dimensions` takes the first ones of each vector, at unit length where the model's own are; None takes all.
    """

    def __init__(
        self,
        name: str = PACKAGED_MODEL,
        *,
        device: str = "auto",
        document_prefix: str | None = None,
        query_prefix: str | None = None,
        batch_size: int = 32,
        packaged: bool = False,
        layer: Layer | None = None,
        length: int | None = None,
        dimensions: int | None = None,
    ) -> None:
        self.name = PACKAGED_MODEL if packaged else name
        self.packaged = packaged
        self.layer = layer
        self.length = length
        self.dimensions = dimensions
        self.device = device
        self.document_prefix = document_prefix
        self.query_prefix = query_prefix
        self.pass_size = batch_size
        self.batch_size = max(batch_size, Embedder.batch_size)

    # The hub is asked once, and the weights are read once, when they are needed: a plan needs neither
    @cached_property
    def _loaded(self) -> _Loaded:
        """Find the model and load it.

        Raises InputError: no such model, or its files cannot be read. RemoteError: the hub cannot be reached, or broke
        off. UsageError: the device is not there, or the layer, or the network reads fewer tokens than the length.
        """
        source = _packaged_model() if self.packaged else find_source(self.name)
        with one_step(f"load {source.name}"):
            model = load_model(source, pick_device(self.device))
        if self.length is not None and self.length > (longest := _positions(model)):
            raise UsageError(
                f"{source.name} reads {longest} tokens at most, not {self.length}; give a length up to that"
            )
        if self.layer is not None:
            model = at_layer(model, self.layer, spec=source.name)
        return _Loaded(source, model)

    @property
    def model(self) -> SentenceTransformer:
        """The loaded model; raises as the first use of it does."""
        return self._loaded.model

    @property
    def identity(self) -> ModelIdentity:
        """The model as artefacts remember it; of a folder only its base name."""
        model = self.model
        # `get_embedding_dimension` came with sentence-transformers 6, which deprecates the older name
        dim = (getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension)()
        if dim is None:
            raise InputError("the model does not say its dimension; it is probably not an embedding model")
        # The model's own word, which outranks any table
        normalized = [type(module).__name__ for module in model][-1:] == ["Normalize"]
        return self._identity(self._loaded.source, int(dim), normalized, lambda: model.prompts)

    def _identity(
        self, source: ModelSource, dim: int, normalized: bool, prompts: Callable[[], Mapping[str, str | None]]
    ) -> ModelIdentity:
        document_prefix, query_prefix = self._prefixes(find_model(source.name, LOCAL), prompts)
        identity = ModelIdentity(
            spec=self._spec_of(source.name),
            dim=dim,
            normalized=normalized,
            revision=weights_revision(source),
            document_prefix=document_prefix,
            query_prefix=query_prefix,
        )
        if self.dimensions is None:
            return identity
        if self.dimensions > dim:
            raise UsageError(f"{source.name} gives {dim} dimensions, not {self.dimensions}; give dimensions up to that")
        return shortened(identity, self.dimensions)

    def _spec_of(self, name: str, kind: str = "sentence-transformers") -> str:
        spec = f"{kind}:{name}"
        if self.length is not None:
            spec = f"length:{self.length}:{spec}"
        if self.layer is None:
            return spec
        return layer_spec(self.layer, spec)

    def _prefixes(self, entry: ModelFacts | None, prompts: Callable[[], Mapping[str, str | None]]) -> tuple[str, str]:
        """The explicit prefixes, or else those of the registry, or else the model's own prompts."""
        document = self.document_prefix
        query = self.query_prefix
        if document is not None and query is not None:
            return document, query
        if entry is not None and entry.document.prefix is not None and entry.query.prefix is not None:
            own_document = entry.document.prefix
            own_query = entry.query.prefix
        else:
            model_prompts = prompts()
            own_document = model_prompts.get("document") or model_prompts.get("passage") or ""
            own_query = model_prompts.get("query") or ""
        if document is None:
            document = own_document
        if query is None:
            query = own_query
        return document, query

    def quick_identity(self) -> ModelIdentity:
        """Out of the registry and the hash of the weights on this machine: neither torch nor a network is needed.

        Of a layer the registry knows nothing, and of some models not all.
        """
        entry = find_model(self.name, LOCAL)
        # A folder may hold anything under the name of a known model
        if self.layer is not None or (Path(self.name).expanduser().exists() and not self.packaged):
            return self.identity
        if entry is None or entry.normalized is None or not entry.is_complete:
            return self.identity
        source = packaged_source(entry.name) or ModelSource(entry.name)
        if self.packaged:
            source = _packaged_model()
        return self._identity(source, entry.dim, entry.normalized, dict)

    @property
    def profile(self) -> Profile:
        """Free; as far as the registry and the model's files on this machine tell, without reading weights."""
        entry = find_model(self.name, LOCAL)
        folder = local_folder(self.name, packaged=self.packaged)
        kind = "sentence-transformers"
        name = self.name
        if self.packaged:
            kind = "packaged"
            name = PACKAGED_NAME
        tokenizer = None
        if folder is not None:
            tokenizer = folder / "tokenizer.json"
        document_prefix, query_prefix = self._prefixes(
            entry, lambda: _read(folder, "config_sentence_transformers.json").get("prompts") or {}
        )
        # A dense layer behind the network, the last one, decides the dimension
        sizes = [_read(folder, "config.json").get("hidden_size")]
        if self.layer is None and folder is not None:
            sizes += [
                _read(path.parent, path.name).get("out_features") for path in sorted(folder.glob("*_Dense/config.json"))
            ]
        dim = None
        if entry is not None and self.layer is None:
            dim = entry.dim
        return Profile(
            self._spec_of(name, kind),
            kind=kind,
            dim=self.dimensions or dim or next((size for size in reversed(sizes) if isinstance(size, int)), None),
            document_prefix=document_prefix,
            query_prefix=query_prefix,
            max_tokens=self.length or _max_tokens(entry, folder),
            is_paid=False,
            is_local=True,
            counter=read_tokenizer(tokenizer) if tokenizer and tokenizer.is_file() else estimate_word_pieces(),
        )

    def with_prefixes(self, document_prefix: str, query_prefix: str) -> SentenceTransformersEmbedder:
        """The same model, loaded once for both, with other prefixes."""
        return self._changed(document_prefix=document_prefix, query_prefix=query_prefix)

    def _changed(self, **settings: Any) -> SentenceTransformersEmbedder:
        """The same model, loaded once for both, with other prefixes, another layer or length."""
        identity = self.identity
        changed = copy(self)
        # Another pooling of the weights has no prompts of its own
        prefixes = {"document_prefix": identity.document_prefix, "query_prefix": identity.query_prefix}
        for name, value in {**prefixes, **settings}.items():
            setattr(changed, name, value)
        return changed

    def variants(self) -> Iterator[Variant]:
        """Documents embedded with another pooling of the same tokens, or cut off at another length."""
        number = None
        if self.layer is not None:
            number = self.layer.number
        if number is None and all(type(module).__name__ in ("Pooling", "Normalize") for module in list(self.model)[1:]):
            # Its vectors are those of the last layer, which a spec can name
            number = getattr(_config(self.model), "num_hidden_layers", None)
        for mode, model in other_poolings(self.model):
            layer = None
            if number is not None:
                layer = Layer(number, mode)
            variant = self._changed(_loaded=replace(self._loaded, model=model), layer=layer or self.layer)
            yield Variant("pooling", f"with {mode} pooling", variant, has_spec=layer is not None)
        used = self.length or self.model.max_seq_length
        longest = _positions(self.model)
        for tokens in _USUAL_LENGTHS:
            if used is not None and tokens != used and tokens <= longest:
                meaning = f"with texts cut at {tokens} tokens instead of {used}"
                # No token is shorter than a character; two are special ones
                fewest = min(tokens, used) - _SPECIAL_TOKENS
                yield Variant("length", meaning, self._changed(length=tokens), fewest_characters=fewest)

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed texts, `batch_size` at a time; a text beyond the model's token limit is cut off by the model."""
        require_texts(texts, model=self.identity.spec)

        def encode(batch: Sequence[Text], report: Callable[[int], None]) -> Vectors:
            return self._encode(batch, role, report)

        return in_batches(texts, self.batch_size, self.identity.dim, encode, progress)

    def _encode(self, texts: Sequence[Text], role: Role, report: Callable[[int], None]) -> Vectors:
        """The prefix goes in as the model's prompt: some models leave the prompt's tokens out of the mean."""
        identity = self.identity
        size = self.pass_size
        encode = self.model.encode_document
        prefix = identity.document_prefix
        if role == "query":
            encode = self.model.encode_query
            prefix = identity.query_prefix
        with quiet(), _cutting(self.model, self.length), _counting_passes(self.model, size, len(texts), report):
            try:
                rows = encode([text.text for text in texts], prompt=prefix, batch_size=size, show_progress_bar=False)
            except (RuntimeError, MemoryError) as error:
                if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
                    fault = f"out of memory with {size} texts at a time; choose a smaller batch-size"
                    raise UsageError(fault) from error
                raise InputError(f"the model failed on these texts: {_first_line(error)}") from error
        vectors = as_vectors(rows, source=identity.spec)
        if self.dimensions is not None:
            vectors = first_dimensions(vectors, self.dimensions, is_unit=identity.normalized)
        vectors = as_vectors(vectors, dim=identity.dim, source=identity.spec)
        check_vectors([text.id for text in texts], vectors, source=identity.spec)
        return vectors

    def token_table(self) -> TokenTable | None:
        """Tokenizer and vectors; None where the tokenizer is not one of the tokenizers library."""
        from tokenizers import Tokenizer

        tokenizer = self.model.tokenizer
        if not getattr(tokenizer, "is_fast", False):
            return None
        table = self.model[0].auto_model.get_input_embeddings().weight  # type: ignore[union-attr, operator]
        # A copy: the weights stay those of the model, and may lie on another device
        vectors = np.array(table.detach().cpu().numpy(), dtype=np.float32)
        longest = self.length or self.model.max_seq_length
        special = tokenizer.num_special_tokens_to_add()
        limit = None
        if longest is not None:
            limit = longest - special
        # The tokenizer remembers how it cut and padded the last texts; what is kept does neither.
        plain = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        plain.no_truncation()
        plain.no_padding()
        return TokenTable(plain.to_str(), vectors, limit, self._embed_tokens)

    def _embed_tokens(self, ids: NDArray[np.int32], progress: Progress) -> Vectors:
        """The vectors of single tokens, (t, dim), each between the special tokens that the model puts around a text."""
        import torch

        model = self.model
        around = model.tokenizer("a", return_special_tokens_mask=True)
        is_special = np.array(around["special_tokens_mask"], dtype=bool)
        texts = np.repeat(np.array(around["input_ids"])[None], len(ids), axis=0)
        # The letter may be several tokens, as where a space before it is one of its own
        first = int(np.flatnonzero(~is_special)[0])
        kept = is_special.copy()
        kept[first] = True
        texts[:, first] = ids
        texts = texts[:, kept]
        vectors = np.empty((len(ids), self.identity.dim), dtype=np.float32)
        with quiet(), torch.inference_mode():
            for start in range(0, len(ids), _TOKENS_AT_ONCE):
                rows = torch.from_numpy(texts[start : start + _TOKENS_AT_ONCE]).to(model.device)
                features = {"input_ids": rows, "attention_mask": torch.ones_like(rows)}
                vectors[start : start + len(rows)] = model(features)["sentence_embedding"].cpu().numpy()
                progress("embed word pieces", start + len(rows), len(ids))
        return vectors


def _load(name: str, options: LoadOptions, *, packaged: bool = False) -> SentenceTransformersEmbedder:
    names = ("device", "document_prefix", "query_prefix", "batch_size", "layer", "length", "dimensions")
    return SentenceTransformersEmbedder(name, packaged=packaged, **options.chosen(*names))


def _load_packaged(name: str, options: LoadOptions) -> SentenceTransformersEmbedder:
    if find_model(name) != find_model(PACKAGED_NAME):
        raise UsageError(f"packaged:{name} does not exist; the only packaged model is packaged:{PACKAGED_NAME}")
    return _load(name, options, packaged=True)


_SETTINGS: Mapping[str, bool] = {
    "takes_prefixes": True,
    "takes_dimensions": True,
    "takes_device": True,
    "has_layers": True,
}
KIND = EmbedderKind(_load, "intfloat/e5-base-v2", **_SETTINGS)
PACKAGED = EmbedderKind(_load_packaged, PACKAGED_NAME, **_SETTINGS)
