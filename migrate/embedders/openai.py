"""Models behind OpenAI's embeddings API, or behind any server that speaks it.

Requests stay within the API's limits, are tried again when that can help, and their answers are checked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from migrate.documents import Query, Text
from migrate.embedders.base import Embedder, Role, require_texts
from migrate.embedders.openai_answers import Answer, TooLongError, read_answer, translate_status
from migrate.embedders.openai_requests import MAX_REQUEST_TEXTS, split_requests
from migrate.embedders.registry import find_model
from migrate.embedders.retry import RetryPolicy, TransientError
from migrate.errors import AuthenticationError, InputError, UsageError
from migrate.files import canonical_json
from migrate.manifest import ModelIdentity
from migrate.vectors import Progress, Vectors, no_progress, summarize_norms

if TYPE_CHECKING:
    from openai import OpenAI

_PLACEHOLDER_KEY = "none-needed"


class OpenAIEmbedder(Embedder):
    """A model of an OpenAI-compatible server. The key is read from OPENAI_API_KEY.

    Parameters
    ----------
    name
        The model, as the server calls it.
    base_url
        The server, up to and including `/v1`; None takes OPENAI_BASE_URL, or else OpenAI. Only OpenAI needs a key.
    dimensions
        Ask for shorter vectors; None takes what the model gives.
    batch_size
        Texts in one request, 1 to 2048.
    timeout_s
        Seconds to wait for one answer.
    retry
        How often, and after which waits, a failed request is sent again.

    Attributes
    ----------
    usage_tokens
        Tokens the server has charged for so far.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        dimensions: int | None = None,
        document_prefix: str | None = None,
        query_prefix: str | None = None,
        batch_size: int = 256,
        timeout_s: float = 120.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        if not 1 <= batch_size <= MAX_REQUEST_TEXTS:
            raise UsageError(f"expected a batch size from 1 to {MAX_REQUEST_TEXTS} for openai, found {batch_size}")
        facts = find_model(name)
        self.facts = facts if facts and facts.provider == "openai" else None
        self.name = self.facts.name if self.facts else name
        self.base_url = _check_url(base_url or os.environ.get("OPENAI_BASE_URL") or None)
        self.dimensions = dimensions
        self.prefixes = {
            "document": document_prefix if document_prefix is not None else "",
            "query": query_prefix if query_prefix is not None else "",
        }
        self.batch_size = batch_size
        self.timeout_s = timeout_s
        self.retry = retry or RetryPolicy()
        self.usage_tokens = 0
        self._dim = dimensions or (self.facts.dim if self.facts else None)
        self._normalized = self.facts.normalized if self.facts else None

    @property
    def service(self) -> str:
        """What messages call the server."""
        return self.base_url or "OpenAI"

    @property
    def identity(self) -> ModelIdentity:
        """The model as artefacts remember it; a model that is not in the registry is asked for one word's vector."""
        if self._dim is None or self._normalized is None:
            self._embed_batch([Query("probe", "word")], "document")
        return ModelIdentity(
            spec=f"openai:{self.name}",
            dim=self._dim or 0,
            normalized=bool(self._normalized),
            document_prefix=self.prefixes["document"],
            query_prefix=self.prefixes["query"],
        )

    def with_prefixes(self, document_prefix: str, query_prefix: str) -> OpenAIEmbedder:
        """The same model of the same server with other prefixes."""
        other = copy(self)
        other.prefixes = {"document": document_prefix, "query": query_prefix}
        return other

    def cache_scope(self, role: Role) -> str:
        """Two servers may mean two things by one name, so the server counts; the dimension need not be known."""
        return canonical_json([f"openai:{self.name}", self.base_url, self.dimensions, self.prefixes[role]])

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed texts in requests of at most `batch_size` texts and 300,000 tokens.

        Raises
        ------
        InputError
            A text is empty or longer than the model takes; names its id.
        AuthenticationError
            There is no key, or it was refused.
        RemoteError
            The server kept failing, has no such model, or the account has no quota left.
        """
        require_texts(texts, model=f"openai:{self.name}")
        if not texts:
            return np.empty((0, self.identity.dim), dtype=np.float32)
        parts: list[Vectors] = []
        done = 0
        for request in split_requests(texts, len(self.prefixes[role].encode()), max_texts=self.batch_size):
            parts.append(self._embed_batch(request, role))
            done += len(request)
            progress("embed", done, len(texts))
        return np.concatenate(parts)

    def _embed_batch(self, texts: Sequence[Text], role: Role) -> Vectors:
        """Embed the texts of one request; where the server finds them too long, each half of them on its own."""
        inputs = [self.prefixes[role] + text.text for text in texts]
        try:
            answer = self.retry.call(lambda: self._request(inputs), service=self.service)
        except TooLongError as error:
            if len(texts) == 1:
                raise InputError(
                    f"{texts[0].id!r} is longer than openai:{self.name} takes ({error}); cut it into chunks"
                ) from error
            half = len(texts) // 2
            return np.concatenate([self._embed_batch(texts[:half], role), self._embed_batch(texts[half:], role)])
        return self._learn(answer)

    def _learn(self, answer: Answer) -> Vectors:
        """Count the tokens; from the first answer of an unknown model, learn its dimension and normalisation."""
        self.usage_tokens += answer.tokens
        self._dim = answer.vectors.shape[1]
        if self._normalized is None:
            self._normalized = summarize_norms(answer.vectors).is_unit
        return answer.vectors

    def _request(self, inputs: list[str]) -> Answer:
        """Send one request once, and read the answer as bytes: the client's own parser trusts the server."""
        import openai

        create = self._client.embeddings.with_raw_response.create
        try:
            if self.dimensions is None:
                response = create(input=inputs, model=self.name, encoding_format="base64")
            else:
                response = create(input=inputs, model=self.name, encoding_format="base64", dimensions=self.dimensions)
        except openai.APITimeoutError as error:
            raise TransientError(f"no answer within {self.timeout_s:g} s") from error
        except openai.APIConnectionError as error:
            raise TransientError(f"the connection failed ({type(error.__cause__ or error).__name__})") from error
        except openai.APIStatusError as error:
            raise translate_status(error, service=self.service, model=self.name, key=self._key) from error
        return read_answer(response.content, count=len(inputs), dim=self._dim)

    @cached_property
    def _key(self) -> str:
        key = os.environ.get("OPENAI_API_KEY", "").strip()
        if not key and self.base_url is None:
            raise AuthenticationError(
                f"openai:{self.name} needs a key; set OPENAI_API_KEY, or --base-url for a server of your own"
            )
        if not (key.isascii() and key.isprintable()):
            raise AuthenticationError("OPENAI_API_KEY holds characters that no key has; paste it again")
        return key or _PLACEHOLDER_KEY

    @cached_property
    def _client(self) -> OpenAI:
        """Its own retries are off: it tries again where no quota is left, and counts nothing."""
        import openai

        return openai.OpenAI(api_key=self._key, base_url=self.base_url, max_retries=0, timeout=self.timeout_s)


def _check_url(url: str | None) -> str | None:
    if url is not None and not url.startswith(("http://", "https://")):
        raise UsageError(f"expected a --base-url such as http://localhost:8000/v1, found {url!r}")
    return url
