"""Models that run on this machine through sentence-transformers: from the hub, a folder, or a package.

The vectors are what the model gives, in float32; a model that does not normalise is not normalised here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from migrate.documents import Text
from migrate.embedders.base import Embedder, Role, TokenTable, Variant, require_texts
from migrate.embedders.loading import dimension_of, encoding_error, is_normalizing, load_model, pick_device, quiet
from migrate.embedders.registry import ModelFacts, find_model
from migrate.embedders.variants import other_lengths, other_poolings
from migrate.embedders.weights import (
    PACKAGED_MODEL,
    ModelSource,
    find_source,
    packaged_model_path,
    packaged_source,
    weights_revision,
)
from migrate.manifest import ModelIdentity
from migrate.vectors import Progress, Vectors, as_vectors, check_vectors, no_progress

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

__all__ = ["SentenceTransformersEmbedder", "packaged_model_path", "pick_device"]


class SentenceTransformersEmbedder(Embedder):
    """A sentence-transformers model, loaded when it is first needed.

    Parameters
    ----------
    name
        A name of the hub, with or without the organisation for models of the registry, or the path of a folder.
    device
        "auto" takes cuda before mps before cpu.
    document_prefix, query_prefix
        None takes the registry's; for a model that is not in it, the prompts of the model's own configuration.
    batch_size
        Texts in one forward pass.
    packaged
        Take all-MiniLM-L6-v2 out of the package that carries it, and remember it under its name on the hub.
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
    ) -> None:
        self.name = PACKAGED_MODEL if packaged else name
        self.packaged = packaged
        self.device = device
        self.document_prefix = document_prefix
        self.query_prefix = query_prefix
        self.pass_size = batch_size
        self.batch_size = max(batch_size, Embedder.batch_size)

    @cached_property
    def source(self) -> ModelSource:
        """Where the model is loaded from."""
        if self.packaged:
            return ModelSource(PACKAGED_MODEL, folder=packaged_model_path())
        return find_source(self.name)

    @cached_property
    def model(self) -> SentenceTransformer:
        """The loaded model.

        Raises
        ------
        InputError
            No such model, or its files cannot be read.
        RemoteError
            The hub cannot be reached, or broke off.
        UsageError
            The device is not there.
        """
        return load_model(self.source, pick_device(self.device))

    @cached_property
    def identity(self) -> ModelIdentity:
        """The model as artefacts remember it; of a folder only its base name."""
        facts = find_model(self.source.name)
        return ModelIdentity(
            spec=f"sentence-transformers:{self.source.name}",
            dim=dimension_of(self.model),
            normalized=is_normalizing(self.model),
            document_prefix=self._prefix(self.document_prefix, facts, ("document", "passage")),
            query_prefix=self._prefix(self.query_prefix, facts, ("query",)),
            revision=weights_revision(self.source),
        )

    def _prefix(self, given: str | None, facts: ModelFacts | None, prompt_names: tuple[str, ...]) -> str:
        if given is not None:
            return given
        if facts is not None:
            return facts.query_prefix if "query" in prompt_names else facts.document_prefix
        prompts = self.model.prompts
        return next((prompt for name in prompt_names if (prompt := prompts.get(name))), "")

    def quick_identity(self) -> ModelIdentity:
        """Out of the registry and the hash of the weights on this machine: neither torch nor a network is needed."""
        facts = find_model(self.name)
        if facts is None or (Path(self.name).expanduser().exists() and not self.packaged):
            return self.identity
        source = self.source if self.packaged else packaged_source(facts.name) or ModelSource(facts.name)
        return ModelIdentity(
            spec=f"sentence-transformers:{facts.name}",
            dim=facts.dim,
            normalized=facts.normalized,
            document_prefix=self._prefix(self.document_prefix, facts, ("document", "passage")),
            query_prefix=self._prefix(self.query_prefix, facts, ("query",)),
            revision=weights_revision(source),
        )

    def with_prefixes(self, document_prefix: str, query_prefix: str) -> SentenceTransformersEmbedder:
        """The same model, loaded once for both, with other prefixes."""
        identity = replace(self.identity, document_prefix=document_prefix, query_prefix=query_prefix)
        other = copy(self)
        other.document_prefix, other.query_prefix, other.identity = document_prefix, query_prefix, identity
        return other

    def variants(self) -> Iterator[Variant]:
        """Documents embedded with another pooling of the same tokens, or cut off at another length."""
        for mode, model in other_poolings(self.model):
            other = copy(self)
            other.model = model
            yield Variant("pooling", f"with {mode} pooling", other.embed_documents)
        yield from other_lengths(self.model, self.embed_documents)

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed texts, `batch_size` at a time; a text beyond the model's token limit is cut off by the model."""
        identity = self.identity
        require_texts(texts, model=identity.spec)
        vectors = np.empty((len(texts), identity.dim), dtype=np.float32)
        for start in range(0, len(texts), self.batch_size):
            batch = texts[start : start + self.batch_size]
            rows = as_vectors(self._encode(batch, role), dim=identity.dim, source=identity.spec)
            check_vectors([text.id for text in batch], rows, source=identity.spec)
            vectors[start : start + len(batch)] = rows
            progress("embed", start + len(batch), len(texts))
        return vectors

    def _encode(self, texts: Sequence[Text], role: Role) -> Vectors:
        """The prefix goes in as the model's prompt: some models leave the prompt's tokens out of the mean."""
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        prefix = self.identity.query_prefix if role == "query" else self.identity.document_prefix
        with quiet():
            try:
                rows: Vectors = encode(
                    [text.text for text in texts], prompt=prefix, batch_size=self.pass_size, show_progress_bar=False
                )
            except (RuntimeError, MemoryError) as error:
                raise encoding_error(error, self.pass_size) from error
        return rows

    def token_table(self) -> TokenTable | None:
        """Tokenizer and input vectors; None where the tokenizer is not one of the tokenizers library."""
        from tokenizers import Tokenizer

        tokenizer = self.model.tokenizer
        if not getattr(tokenizer, "is_fast", False):
            return None
        table = self.model[0].auto_model.get_input_embeddings().weight  # type: ignore[union-attr, operator]
        vectors = np.array(table.detach().cpu().numpy(), dtype=np.float32)
        longest, special = self.model.max_seq_length, tokenizer.num_special_tokens_to_add()
        limit = longest - special if longest is not None else None
        # The tokenizer remembers how it cut and padded the last texts; what is kept does neither.
        plain = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        plain.no_truncation()
        plain.no_padding()
        return TokenTable(plain.to_str(), vectors, limit)
