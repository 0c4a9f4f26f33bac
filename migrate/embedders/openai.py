"""Models behind OpenAI's embeddings API, or behind any server that speaks it.

Texts are split into requests within the API's limits. Several requests are in flight at once, failures are retried
when that can help, and answers are checked.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import chain

import numpy as np

from migrate.embedders.base import BUILT_WITH, Embedder, Keep, Role, other_dimension, require_texts
from migrate.embedders.kinds import EmbedderKind, LoadOptions
from migrate.embedders.openai_answers import Answer, SameModel, Sameness, TooLongError
from migrate.embedders.openai_limits import RetryPolicy, Throttle, parse_rate
from migrate.embedders.openai_session import Endpoint, Expected, Flight, LoopThread, Session, first_answer
from migrate.embedders.openai_tokens import token_counter
from migrate.embedders.profile import Profile
from migrate.embedders.registry import RATE_LIMITS, find_model, known_models
from migrate.embedders.tokens import BYTE_PAIRS, EstimateCounter, find_api_counter
from migrate.errors import AuthenticationError, InputError, UsageError
from migrate.files import canonical_json
from migrate.manifest import ModelIdentity
from migrate.vectors import Progress, Query, Text, Vectors, no_progress, summarize_norms

MAX_REQUEST_TEXTS = 2048
MAX_REQUEST_TOKENS = 300_000

FEW_TEXTS = 16
"""A request of fewer texts is hardly faster than one of this many."""

MANY_TEXTS = 256
"""Texts in a request that are worth its round trip, and that a server on a modest machine answers in time."""


DEFAULT_CONCURRENCY = 8
MAX_CONCURRENCY = 256

MOST_AT_ONCE = 16_384
"""The most texts to hand over at once, at any concurrency: their vectors are held in memory."""

_PLACEHOLDER_KEY = "none-needed"


def fair_share(count: int, concurrency: int, most: int) -> int:
    """Texts in a request where `count` are to be sent, `concurrency` requests at a time, of at most `most` texts.

    Few texts are dealt out to all; of many, requests grow up to the limit only where each place has four of them to
    send, so that none waits long for the last one. A place that is the only one takes as many as it may.

    >>> [fair_share(count, 8, 2048) for count in (10, 1_000, 8_192, 1_000_000)]
    [16, 125, 256, 2048]
    """
    if concurrency == 1:
        return most
    once, four_times = -(-count // concurrency), -(-count // (4 * concurrency))
    return min(most, max(FEW_TEXTS, min(once, MANY_TEXTS // 2), four_times))


def split_requests(
    tokens: Sequence[int], *, max_texts: int = MAX_REQUEST_TEXTS, max_tokens: int = MAX_REQUEST_TOKENS
) -> Iterator[range]:
    """Cut texts, given by their tokens, into runs of at most `max_texts` and `max_tokens`; a longer text goes alone.

    >>> list(split_requests([5, 5, 5, 9], max_tokens=10))
    [range(0, 2), range(2, 3), range(3, 4)]
    """
    start, total = 0, 0
    for position, more in enumerate(tokens):
        if position > start and (position - start == max_texts or total + more > max_tokens):
            yield range(start, position)
            start, total = position, 0
        total += more
    if start < len(tokens):
        yield range(start, len(tokens))


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
        Texts in one request, 1 to 2048; None shares them out among the requests that are in flight, up to 2,048 for
        OpenAI and 256 for other servers, and 300,000 tokens.
    concurrency
        Requests in flight at most, 1 to 256.
    rate_per_s
        Requests a second at most; None for no limit but the server's own, which is always kept to.
    timeout_s
        Seconds to wait for one answer, from the first byte sent to the last one received.
    retry
        How often, and after which waits, a failed request is sent again.

    Attributes
    ----------
    usage_tokens
        Tokens the server has charged for so far, those of answers that could not be used included.
    before_request
        Called before each request with its tokens, estimated high, in the thread that called `embed`. Where it raises,
        nothing further is sent, and what is in flight is kept.
    """

    usage_tokens = 0

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        dimensions: int | None = None,
        document_prefix: str | None = None,
        query_prefix: str | None = None,
        batch_size: int | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        rate_per_s: float | None = None,
        timeout_s: float = 120.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        if batch_size is not None and not 1 <= batch_size <= MAX_REQUEST_TEXTS:
            raise UsageError(f"expected a batch size from 1 to {MAX_REQUEST_TEXTS} for openai, found {batch_size}")
        if not 1 <= concurrency <= MAX_CONCURRENCY:
            raise UsageError(f"expected a concurrency from 1 to {MAX_CONCURRENCY}, found {concurrency}")
        facts = find_model(name)
        self.facts = facts if facts and facts.provider == "openai" else None
        self.name = self.facts.name if self.facts else name
        self.base_url = _check_url(base_url or os.environ.get("OPENAI_BASE_URL") or None)
        self.dimensions = dimensions
        self.prefixes = {
            "document": document_prefix if document_prefix is not None else "",
            "query": query_prefix if query_prefix is not None else "",
        }
        self.request_texts = batch_size
        self.concurrency = concurrency
        self.batch_size = min(MOST_AT_ONCE, 4 * concurrency * (batch_size or MANY_TEXTS))
        self.timeout_s = timeout_s
        self.retry = retry or RetryPolicy()
        self.usage_tokens = 0
        self.before_request: Callable[[int], None] = _allow
        self._rate_per_s = rate_per_s
        self._throttle = Throttle(concurrency, rate_per_s)
        self._one_call = threading.RLock()
        self._charging = threading.Lock()
        self._expected = self._told_beforehand()
        self._normalized = self.facts.normalized if self.facts else None
        self._sameness = Sameness()
        siblings = [facts.name for facts in known_models() if facts.provider == "openai"] if self.facts else ()
        self._same_model = SameModel(self.name, siblings)

    @property
    def service(self) -> str:
        """The name of the server in messages."""
        return self.base_url or "OpenAI"

    @property
    def identity(self) -> ModelIdentity:
        """The model as artefacts remember it; for a model that is not in the registry, one word is embedded."""
        if self._expected is None or self._normalized is None:
            self.embed([Query("probe", "word")], "document")
        return ModelIdentity(
            spec=f"openai:{self.name}",
            dim=self._expected.dim if self._expected else 0,
            normalized=bool(self._normalized),
            document_prefix=self.prefixes["document"],
            query_prefix=self.prefixes["query"],
        )

    @property
    def profile(self) -> Profile:
        """The profile, with the registry's price per token for any server."""
        facts = self.facts
        return Profile(
            f"openai:{self.name}",
            kind="openai",
            dim=self.dimensions or (facts.dim if facts else None),
            document_prefix=self.prefixes["document"],
            query_prefix=self.prefixes["query"],
            max_tokens=facts.max_tokens if facts else None,
            is_paid=True,
            price_usd_per_mtok=facts.price_usd_per_mtok if facts else None,
            batch_price_usd_per_mtok=facts.batch_price_usd_per_mtok if facts else None,
            counter=find_api_counter(self.name) or EstimateCounter(BYTE_PAIRS),
            is_api=True,
            rate_limits=() if self.base_url else RATE_LIMITS,
        )

    def with_prefixes(self, document_prefix: str, query_prefix: str) -> OpenAIEmbedder:
        """The same model of the same server with other prefixes."""
        prefixed = copy(self)
        prefixed.prefixes = {"document": document_prefix, "query": query_prefix}
        return prefixed

    def beside(self, *, attempts: int) -> OpenAIEmbedder:
        """The same model of the same server, with requests of its own, each tried so many times."""
        other = copy(self)
        other._one_call, other._charging = threading.RLock(), threading.Lock()
        other._throttle = Throttle(self.concurrency, self._rate_per_s)
        other._sameness, other.usage_tokens = Sameness(), 0
        other.retry = replace(self.retry, max_attempts=attempts, max_unreached=attempts, max_unusable=attempts)
        return other

    def share(self, users: int) -> None:
        """Take one of so many equal parts of the requests in flight, of the user's rate and of the server's limits."""
        if users > 1:
            rate = self._throttle.rate_per_s
            self.concurrency = max(1, self.concurrency // users)
            self._throttle = Throttle(self.concurrency, None if rate is None else rate / users, users=users)

    def cache_scope(self, role: Role) -> str:
        """Two servers may mean two things by one name, so the server counts; the dimension need not be known."""
        return canonical_json([f"openai:{self.name}", self.base_url, self.dimensions, self.prefixes[role]])

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed texts, some requests at a time.

        Raises
        ------
        InputError
            A text is empty or longer than the model takes; names its id.
        AuthenticationError
            There is no key, or it was refused.
        RemoteError
            The server kept failing, has no such model, gives vectors of another dimension than was expected or one
            vector to all texts, or the account has no quota left.
        """
        if not texts:
            return np.empty((0, self.identity.dim), dtype=np.float32)
        rows: list[Vectors | None] = [None] * len(texts)

        def keep(positions: Sequence[int], vectors: Vectors) -> None:
            for position, vector in zip(positions, vectors, strict=True):
                rows[position] = vector

        self.embed_each(texts, role, keep, progress=progress)
        return np.stack([row for row in rows if row is not None])

    def embed_each(self, texts: Sequence[Text], role: Role, keep: Keep, *, progress: Progress = no_progress) -> None:
        """Embed texts, and hand over the vectors of each answer as it comes; errors as of `embed`.

        Whatever raises, `progress`, `keep`, the server or Ctrl-C: no further request is sent, and what is answered
        within ten seconds is handed over before the error goes on. Calls from several threads take turns.
        """
        require_texts(texts, model=f"openai:{self.name}")
        inputs = [self.prefixes[role] + text.text for text in texts]
        tokens = [self._count(text) for text in inputs]

        def take(answers: Mapping[range, Answer]) -> None:
            positions = list(chain.from_iterable(answers))
            for answer in answers.values():
                self._same_model.add(answer.model, service=self.service)
            vectors = np.concatenate([answer.vectors for answer in answers.values()])
            self._learn([inputs[position] for position in positions], vectors)
            keep(positions, vectors)

        with self._one_call, self._new_flight(inputs, tokens) as flight:
            self._throttle.begin(self.retry.clock.now())
            try:
                flight.run(
                    split_requests(tokens, max_texts=self._texts_in_request(len(texts))),
                    keep=take,
                    on_progress=lambda done: progress("embed", done, len(texts)),
                )
            except TooLongError as error:
                raise InputError(
                    f"{texts[error.position].id!r} is longer than openai:{self.name} takes ({error}); "
                    "cut it into chunks"
                ) from error

    @contextmanager
    def _new_flight(self, inputs: Sequence[str], tokens: Sequence[int]) -> Iterator[Flight]:
        """A `Flight` that sends requests for runs of `inputs`, and closes its connections at the end."""
        endpoint = Endpoint(self.name, self.base_url, self._key, self.dimensions, self.timeout_s)
        session = Session(endpoint, self._throttle, self.retry, expected=self._expected, charge=self._charge)
        with LoopThread(session.close) as loop:
            yield Flight(loop, session, inputs, tokens, before_request=self.before_request)

    def _texts_in_request(self, count: int) -> int:
        if self.request_texts is not None:
            return self.request_texts
        return fair_share(count, self.concurrency, MAX_REQUEST_TEXTS if self.base_url is None else MANY_TEXTS)

    def expect_dim(self, dim: int, source: str, *, advice: str = BUILT_WITH) -> None:
        """As of any embedder; for a model that is not in the registry, the first answer is checked."""
        if self._expected is not None and self._expected.dim != dim:
            raise other_dimension(f"openai:{self.name}", self._expected.dim, dim, source, advice)
        self._expected = Expected(dim, f"as {source} has", f"{advice}, or check `base_url`")

    def _told_beforehand(self) -> Expected | None:
        """The dimension that the user chose, or else that of the registry."""
        if self.dimensions is not None:
            advice = f"leave out `dimensions={self.dimensions}`, or name a model that gives vectors of that length"
            return Expected(self.dimensions, "as asked for", advice)
        if self.facts is None:
            return None
        advice = "if `base_url` is right, give `dimensions={dim}`"
        return Expected(self.facts.dim, f"as {self.name} gives by itself", advice)

    def _learn(self, texts: Sequence[str], vectors: Vectors) -> None:
        """From the first answers learn the dimension and normalisation, and that the model tells texts apart."""
        if self._expected is None:
            self._expected = first_answer(vectors.shape[1])
        self._sameness.add(texts, vectors, service=self.service)
        if self._normalized is None:
            self._normalized = summarize_norms(vectors).is_unit

    def _charge(self, tokens: int) -> None:
        with self._charging:
            self.usage_tokens += tokens

    @cached_property
    def _count(self) -> Callable[[str], int]:
        return token_counter(self.name)

    @cached_property
    def _key(self) -> str:
        key = os.environ.get("OPENAI_API_KEY", "").strip()
        if not key and self.base_url is None:
            raise AuthenticationError(
                f"openai:{self.name} needs a key; set OPENAI_API_KEY, or `base_url` for a server of your own"
            )
        if not (key.isascii() and key.isprintable()):
            raise AuthenticationError("OPENAI_API_KEY holds characters that no key has; paste it again")
        return key or _PLACEHOLDER_KEY


def _allow(_tokens: int) -> None:
    """Let every request go."""


def _check_url(url: str | None) -> str | None:
    if url is not None and not url.startswith(("http://", "https://")):
        raise UsageError(f"expected a `base_url` such as http://localhost:8000/v1, found {url!r}")
    return url


def _load(name: str, options: LoadOptions) -> OpenAIEmbedder:
    return OpenAIEmbedder(
        name,
        base_url=options.base_url,
        dimensions=options.dimensions,
        document_prefix=options.document_prefix,
        query_prefix=options.query_prefix,
        batch_size=options.batch_size,
        concurrency=DEFAULT_CONCURRENCY if options.concurrency is None else options.concurrency,
        rate_per_s=None if options.rate is None else parse_rate(options.rate),
    )


KIND = EmbedderKind(_load, "text-embedding-3-small", takes_prefixes=True, takes_dimensions=True)
