"""Models behind OpenAI's embeddings API, or behind any server that speaks it.

Texts are split into requests within the API's limits. Several requests are in flight at once, each in a thread with
the openai library's own retries, and each answer is handed over as it comes.
"""

from __future__ import annotations

import logging
import math
import os
import re
import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cache, partial
from itertools import chain

import numpy as np

from migrate.embedders.abilities import PrefixedModel, RemoteModel
from migrate.embedders.base import BUILT_WITH, Keep, Role, gather, other_dimension, require_texts
from migrate.embedders.kinds import EmbedderKind, LoadOptions
from migrate.embedders.openai_errors import (
    Endpoint,
    FailedTextsError,
    SeveralRefusedError,
    TooLongError,
)
from migrate.embedders.openai_requests import UNUSABLE_VECTOR, Answer, Client, RequestLimit, ServerLimits, load_library
from migrate.embedders.profile import Profile
from migrate.embedders.rates import parse_rate
from migrate.embedders.registry import ModelFacts, find_model, rate_limits
from migrate.embedders.services import COHERE, GEMINI, OPENAI, VOYAGE, Service
from migrate.embedders.tokens import BYTE_PAIRS, EstimateCounter, find_api_counter
from migrate.errors import AuthenticationError, InputError, RemoteError, UsageError
from migrate.files import canonical_json
from migrate.locations import is_escaped, mask_url
from migrate.manifest import ModelIdentity
from migrate.vectors import Progress, Query, Text, Vectors, no_progress, summarize_norms

_log = logging.getLogger(__name__)

MAX_REQUEST_TEXTS = OPENAI.max_texts
MAX_REQUEST_TOKENS = OPENAI.max_tokens

MANY_TEXTS = 256
"""Texts in a request that are worth its round trip, and that a server on a modest machine answers in time."""


_FEW_TEXTS = 16
"""Texts in a request below which it is hardly faster."""

_REQUESTS_PER_PLACE = 4
"""Requests that each place is to have before they grow: with fewer, places would be idle at the end."""

_LAST_ANSWERS_S = 10.0
"""Seconds for which answers in flight are waited for when a call ends early."""

_SAME_VECTOR = 1e-5
"""Difference of two vectors, in units of the largest number in them, that a server's rounding may make."""

_MOST_AT_ONCE = 16_384
"""Texts of one call, whose vectors are held in memory, at any concurrency."""


def fair_share(count: int, concurrency: int, most: int) -> int:
    """Return how many texts to put into a request where `count` are to be sent, of at most `most`.

    Few are dealt out to all requests in flight; requests grow only where each place has four of them to send.

    >>> [fair_share(count, 8, 2048) for count in (10, 1_000, 8_192, 1_000_000)]
    [16, 125, 256, 2048]
    """
    if concurrency == 1:
        return most
    once = math.ceil(count / concurrency)
    often = math.ceil(count / (_REQUESTS_PER_PLACE * concurrency))
    return min(most, max(_FEW_TEXTS, min(once, MANY_TEXTS // 2), often))


def split_requests(
    tokens: Sequence[int], *, max_texts: int = MAX_REQUEST_TEXTS, max_tokens: int = MAX_REQUEST_TOKENS
) -> Iterator[range]:
    """Cut texts, given by their tokens, into runs within the API's limits; a text beyond these goes alone.

    >>> list(split_requests([5, 300_000, 5, 9], max_texts=2))
    [range(0, 1), range(1, 2), range(2, 4)]
    """
    start = 0
    total = 0
    for position, more in enumerate(tokens):
        if position > start and (position - start == max_texts or total + more > max_tokens):
            yield range(start, position)
            start = position
            total = 0
        total += more
    if start < len(tokens):
        yield range(start, len(tokens))


class ServedModel:
    """The model behind a server, as its answers show it; each is checked against what is known before it is used.

    `name` is that of the requests, `service` the server in messages, `dimensions` what the user asked for.
    """

    def __init__(self, name: str, service: str, entry: ModelFacts | None, dimensions: int | None) -> None:
        self.service = service
        self.dim: int | None = None
        self.normalized = None if entry is None else entry.normalized
        self._name = name
        self._answers_as = ""
        self._is_listed = entry is not None
        self._first: Vectors | None = None
        self._alike: set[str] | None = set()
        if dimensions is not None:
            advice = f"leave out dimensions={dimensions}, or name a model that gives vectors of that length"
            self.expect(dimensions, "as requested", advice)
        elif entry is not None:
            self.expect(
                entry.dim, f"as {name} gives by itself", "if `base_url` is right, name the model with ,dimensions={dim}"
            )

    def expect(self, dim: int, reason: str, advice: str) -> None:
        """Expect vectors of a dimension, for a reason, and advise what to do where answers have another."""
        self.dim = dim
        self._reason = reason
        self._advice = advice

    def check(self, texts: Sequence[str], answer: Answer) -> Vectors:
        """Return the usable vectors of an answer, which are those of `texts`.

        Dimension, normalisation and name are learnt from the first.

        Raises RemoteError: they have another dimension, are of another model by its name, or are one vector for
        different texts.
        """
        vectors = answer.vectors[answer.is_usable]
        dim = vectors.shape[1]
        if self.dim is None:
            self.expect(dim, "as earlier answers", "is another model behind `base_url` now, or more than one?")
        if dim != self.dim:
            raise RemoteError(
                f"{self.service}: the answer has vectors of dimension {dim}, not {self.dim} ({self._reason}); "
                f"{self._advice.format(dim=dim)}"
            )
        # Some servers name no model
        if answer.model:
            self._check_name(answer.model)
        if self._alike is not None:
            self._check_difference(texts, vectors)
        if self.normalized is None:
            self.normalized = summarize_norms(vectors).is_unit
        return vectors

    def _check_name(self, name: str) -> None:
        """Servers of open models name them by a path, a file or a tag, so the first answer's name counts."""
        bare = bare_name(name)
        entry = find_model(bare, "openai")
        if self._is_listed and entry is not None and entry.name != self._name:
            raise RemoteError(
                f"{self.service}: {self._name!r} was requested, and {name!r} answered; check `base_url` and its models"
            )
        if not self._answers_as:
            self._answers_as = name
            if not _is_alike(bare, bare_name(self._name)):
                _note(
                    f"{self.service}: {self._name!r} was requested, and a model named {name!r} answers; check that it "
                    "is the one you mean"
                )
        if bare != bare_name(self._answers_as):
            raise RemoteError(
                f"{self.service}: two models answered, {self._answers_as!r} and then {name!r}; use a server that keeps "
                "to one"
            )

    def _check_difference(self, texts: Sequence[str], vectors: Vectors) -> None:
        """Refuse one vector for four different texts, as a stub gives it; once two vectors differ, stop looking."""
        if self._first is None:
            self._first = vectors[0].copy()
        first = self._first
        if self._alike is None or (np.abs(vectors - first) > _SAME_VECTOR * np.abs(first).max()).any():
            self._alike = None
            return
        # Models without capitals or accents rightly give one vector to some texts that differ
        self._alike.update("".join(filter(str.isalnum, text.casefold())) for text in texts)
        if len(self._alike) >= 4:
            raise RemoteError(
                f"{self.service}: the server returned one and the same vector for {len(self._alike)} different texts; "
                "check the model behind `base_url`"
            )


def bare_name(name: str) -> str:
    """Return the name of a model without provider, folder, file type and version.

    >>> bare_name("openai/text-embedding-3-small-2024-05-01"), bare_name("/models/bge-m3.gguf")
    ('text-embedding-3-small', 'bge-m3')
    """
    base = re.split(r"[/\\]", name.casefold().rstrip("/\\"))[-1]
    return re.sub(r"(\.(gguf|bin|onnx|safetensors)|:latest|[-@:]v?\d{4}-?\d{2}-?\d{2}|(?<=-\d{3})-v\d+)$", "", base)


def _is_alike(name: str, other: str) -> bool:
    """Return whether one bare name has all words of the other, as that of a quantised or finetuned model has.

    >>> _is_alike("bge-m3-q8_0", "bge-m3"), _is_alike("bge-m3", "bge-large")
    (True, False)
    """
    name_words, other_words = (set(re.split(r"[-_.:@ ]", text)) for text in (name, other))
    return name_words <= other_words or other_words <= name_words


@cache
def _note(sentence: str) -> None:
    """Say something once, however many embedders of the model there are."""
    _log.warning("%s", sentence)


class OpenAIEmbedder(RemoteModel, PrefixedModel):
    """A model of an OpenAI-compatible server, or of another `api`; options as of `load_embedder`.

    The key is read from OPENAI_API_KEY, or the variable of the API.

    `base_url` is the server up to and including `/v1`, None OPENAI_BASE_URL, or else OpenAI, which alone needs a key.
    Its query parameters go with each request; with `api-version`, the key goes as Azure OpenAI takes it.
    `batch_size` None shares texts out among the requests in flight, up to 2,048 for OpenAI and 256 for other servers,
    and 300,000 tokens. A 429 halves the requests in flight for a while. `timeout_s` is for the beginning of an answer,
    and from there for its end; a request is sent `attempts` times at most, by the openai library's own retries.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        dimensions: int | None = None,
        document_prefix: str | None = None,
        query_prefix: str | None = None,
        batch_size: int | None = None,
        concurrency: int = 8,
        rate_per_s: float | None = None,
        timeout_s: float = 120.0,
        attempts: int = 8,
        api: Service = OPENAI,
    ) -> None:
        if batch_size is not None and not 1 <= batch_size <= api.max_texts:
            raise UsageError(f"the batch size for {api.kind} must be from 1 to {api.max_texts}, not {batch_size}")
        if not 1 <= concurrency <= 256:
            raise UsageError(f"the concurrency must be from 1 to 256, not {concurrency}")
        # The library reads this variable itself, but then it is neither checked nor part of the cache's key
        base_url = base_url or os.environ.get(api.url_variable) or None
        if base_url is not None and not base_url.startswith(("http://", "https://")):
            raise UsageError(f"{mask_url(base_url)!r} is not a `base_url`; give one such as http://localhost:8000/v1")
        if base_url is not None and not is_escaped(base_url):
            raise UsageError(
                f"{mask_url(base_url)!r}: a part of this `base_url` would not reach the server; in a user or a "
                "password write / as %2F, ? as %3F and # as %23, and leave out what stands behind a #"
            )
        self.api = api
        self.entry = find_model(name, api.kind)
        self.name = name
        if self.entry is not None:
            self.name = self.entry.name  # in the provider's spelling: caches and manifests compare it
        self.base_url = base_url
        self._shown_url = None if base_url is None else mask_url(base_url)
        self.dimensions = dimensions
        explicit = {"document": document_prefix, "query": query_prefix}
        self.prefixes = {role: self._prefix(role, prefix) for role, prefix in explicit.items()}
        self.request_texts = batch_size
        self.concurrency = concurrency
        texts_per_request = batch_size or min(MANY_TEXTS, api.max_texts)
        self.batch_size = min(_MOST_AT_ONCE, _REQUESTS_PER_PLACE * concurrency * texts_per_request)
        self.timeout_s = timeout_s
        self.attempts = attempts
        self._limit = RequestLimit(concurrency, rate_per_s)
        self._server = ServerLimits()
        self._one_call = threading.RLock()
        self._charges: list[int] = []
        self._is_checked = False
        self._served = ServedModel(self.name, self._shown_url or api.title, self.entry, dimensions)

    def _prefix(self, role: str, explicit: str | None) -> str:
        """Return the prefix that was given, or that of the registry."""
        if explicit is not None:
            return explicit
        if self.entry is None:
            return ""
        prompt = self.entry.document if role == "document" else self.entry.query
        return prompt.prefix or ""

    @property
    def spec(self) -> str:
        """The model as `load_embedder` takes it."""
        return f"{self.api.kind}:{self.name}"

    def task(self, role: Role) -> str | None:
        """Return what the API is told of a text; None where the registry has prefixes for that."""
        entry = self.entry
        if entry is None or not (entry.document.task or entry.document.prefix):
            return self.api.task(role)
        if role == "document":
            return entry.document.task
        return entry.query.task

    @property
    def identity(self) -> ModelIdentity:
        """The model as artefacts remember it; for a model that is not in the registry, one word is embedded."""
        if self._served.dim is None or self._served.normalized is None:
            self.embed([Query("probe", "word")], "document")
        return ModelIdentity(
            spec=self.spec,
            dim=self._served.dim or 0,
            normalized=bool(self._served.normalized),
            document_prefix=self.prefixes["document"],
            query_prefix=self.prefixes["query"],
            dimensions=None if self.entry else self.dimensions,
        )

    @property
    def profile(self) -> Profile:
        """The profile, with the registry's price per token for any server."""
        profile = Profile(
            self.spec,
            kind=self.api.kind,
            dim=self.dimensions,
            document_prefix=self.prefixes["document"],
            query_prefix=self.prefixes["query"],
            is_paid=True,
            counter=EstimateCounter(BYTE_PAIRS),
            is_api=True,
            request_texts=self.api.max_texts,
            request_tokens=self.api.max_tokens,
        )
        entry = self.entry
        if entry is not None:
            profile = replace(
                profile,
                dim=self.dimensions or entry.dim,
                max_tokens=entry.max_tokens,
                price_usd_per_mtok=entry.price_usd_per_mtok,
            )
        if self.api is not OPENAI:
            return profile
        # Its tokenizers are published; the limits are those of its own server, and others set theirs
        profile = replace(profile, counter=find_api_counter(self.name) or profile.counter)
        if self.base_url:
            return profile
        return replace(profile, rate_limits=rate_limits())

    @property
    def usage_tokens(self) -> int:
        """Tokens that the server has charged for so far, those of answers that could not be used included."""
        return sum(self._charges)

    def with_prefixes(self, document_prefix: str, query_prefix: str) -> OpenAIEmbedder:
        """The same model of the same server with other prefixes."""
        prefixed = copy(self)
        prefixed.prefixes = {"document": document_prefix, "query": query_prefix}
        prefixed._charges = []  # each counts its own, so that none is counted twice
        return prefixed

    def with_attempts(self, *, attempts: int) -> OpenAIEmbedder:
        """The same model of the same server, with requests of its own, each tried so many times."""
        twin = copy(self)
        twin._limit = RequestLimit(self.concurrency, self._limit.rate_per_s)
        # Its calls do not wait for those of this one, which may be in the middle of many retries
        twin._one_call = threading.RLock()
        twin._served = copy(self._served)
        twin._charges = []
        twin.attempts = attempts
        return twin

    def cache_scope(self, role: Role) -> str:
        """Two servers may mean two things by one name, so the server counts; the dimension need not be known."""
        scope = [self.spec, self._shown_url, self.dimensions, self.prefixes[role]]
        task = self.task(role)
        if task is not None:  # a place of its own in the list would make every older cache miss
            scope.append(task)
        return canonical_json(scope)

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed texts, some requests at a time.

        Raises InputError: a text is empty or longer than the model takes, or the server fails on it and answers others;
        names its id. AuthenticationError: there is no key, or it was refused. RemoteError: the server kept failing, has
        no such model, gives vectors of another dimension than was expected or one vector to all texts, or the account
        has no quota left.
        """
        if not texts:
            return np.empty((0, self.identity.dim), dtype=np.float32)
        return gather(self, texts, role, progress)

    def embed_each(self, texts: Sequence[Text], role: Role, keep: Keep, *, progress: Progress = no_progress) -> None:
        """Embed texts, and hand over the vectors of each answer as it comes; errors as of `embed`.

        Whatever raises: no further request is sent, and what is answered within ten seconds is handed over before the
        error goes on. Calls from several threads take turns.
        """
        require_texts(texts, model=self.spec)
        inputs = [self.prefixes[role] + text.text for text in texts]
        waiting = deque(self._requests(inputs))
        in_flight: dict[Future[Answer], range] = {}
        suspects: set[range] = set()
        done = 0

        def take(finished: Collection[Future[Answer]]) -> int:
            """Hand over answers together, which is one transaction of the cache; returns of how many texts they are."""
            answered = [future for future in finished if future.exception() is None]
            if not answered:
                return 0
            checked = [self._check(future.result(), in_flight[future], inputs) for future in answered]
            usable = [position for positions, _ in checked for position in positions]
            # Before any error of the same answers: they are paid for
            keep(usable, np.concatenate([vectors for _, vectors in checked]))
            self._is_checked = True
            requested = chain.from_iterable(in_flight.pop(future) for future in answered)
            if lacking := set(requested) - set(usable):
                raise self._bad_text(texts[min(lacking)], UNUSABLE_VECTOR)
            return len(usable)

        endpoint = Endpoint(
            self.name,
            self.base_url,
            self._read_key(),
            self.dimensions,
            self.timeout_s,
            api=self.api,
            task=self.task(role),
        )
        client = Client(endpoint, self.attempts, self._limit, self._charges.append, self._server)
        with self._one_call, client:
            try:
                while waiting or in_flight:
                    # A place is free again only when its answer was kept: a kill costs the requests in flight at most
                    # Before the first is kept there is one request: of a wrong model no second answer is paid for
                    while waiting and len(in_flight) < (self._limit.places if self._is_checked else 1):
                        future = Future[Answer]()
                        in_flight[future] = request = self._next(waiting)  # before Ctrl-C can come in between
                        client.start(inputs[request.start : request.stop], future, is_hurried=request in suspects)
                    finished = wait(in_flight, return_when=FIRST_COMPLETED).done
                    if more := take(finished):
                        done += more
                        progress("embed", done, len(texts))
                    for future in finished & in_flight.keys():
                        request = in_flight.pop(future)
                        waiting.extendleft(reversed(self._split(request, future, texts, client, suspects)))
            except BaseException:
                client.stop()
                sent = [future for future in in_flight if not future.cancel()]
                for future in wait(sent, timeout=_LAST_ANSWERS_S).done:  # they are paid for
                    with suppress(Exception):  # the first error is raised
                        take([future])
                raise

    def _requests(self, inputs: Sequence[str]) -> Iterator[range]:
        """Split texts into requests; where tokens are estimated, as many more as the estimate may be off."""
        most = self.request_texts
        if most is None:
            limit = self.api.max_texts
            if self.base_url is not None:  # a server of one's own may take a minute for what OpenAI takes at once
                limit = min(MANY_TEXTS, limit)
            most = fair_share(len(inputs), self.concurrency, limit)
        counter = self.profile.counter
        # A request that is too long is refused as a whole, and its texts are sent again
        tokens = np.ceil(counter.count(inputs) * (1 + counter.error)).astype(int).tolist()
        return split_requests(tokens, max_texts=most, max_tokens=self.api.max_tokens)

    def _next(self, waiting: deque[range]) -> range:
        """Take the next request, with no more texts than the server has been found to take."""
        request = waiting.popleft()
        most = self._server.most_texts
        if most is not None and len(request) > most:
            waiting.appendleft(request[most:])
            request = request[:most]
        return request

    def _check(self, answer: Answer, request: range, inputs: Sequence[str]) -> tuple[list[int], Vectors]:
        """Return the positions of the texts that got a vector that can be used, and these, checked."""
        positions = np.asarray(request)[answer.is_usable].tolist()
        return positions, self._served.check([inputs[position] for position in positions], answer)

    def _split(
        self,
        request: range,
        failed: Future[Answer],
        texts: Sequence[Text],
        client: Client,
        suspects: set[range],
    ) -> list[range]:
        """Return the parts of a request that is too large for the server, or holds a text that it fails on.

        The latter become `suspects`. Any other failure is raised.
        """
        text = texts[request.start]
        halves = [request[: len(request) // 2], request[len(request) // 2 :]]
        try:
            failed.result()
        except SeveralRefusedError:
            self._server.refuse_texts(len(request))  # the rest is cut when its turn comes
            self._is_checked = False  # what suits one text decides, before any other request is sent
            return [request[:1], request[1:]]
        except TooLongError as error:
            if len(request) == 1:
                raise InputError(
                    f"{text.id!r} is longer than {self.spec} takes ({error}); cut it into chunks"
                ) from error
        except FailedTextsError as error:
            # A server that is out fails on every text: a word tells it from one that fails on this text
            if not client.responds():
                raise error.error from error
            if len(request) == 1:
                raise self._bad_text(text, str(error)) from error
            # A few failures of a part are enough to split it; those of one text have to be sure
            suspects.update(half for half in halves if len(half) > 1)
        return halves

    def _bad_text(self, text: Text, reason: str) -> InputError:
        return InputError(
            f"{text.id!r}: {self._served.service} fails on this text ({reason}) and embeds others; change the text or "
            "leave it out"
        )

    def warm_up(self) -> None:
        """Import the client's library, which takes a second."""
        load_library()

    def expect_dim(self, dim: int, source: str, *, advice: str = BUILT_WITH) -> None:
        """Check the dimension; for a model that is not in the registry, the first answer is checked."""
        if self._served.dim not in (None, dim):
            raise other_dimension(self.spec, self._served.dim, dim, source, advice)
        self._served.expect(dim, f"as {source} has", f"{advice}, or check `base_url`")

    def _read_key(self) -> str:
        variable = self.api.key_variable
        # Keys that are pasted into files end in a line break, which no header may hold
        key = os.environ.get(variable, "").strip()
        if not key and self.base_url is None:
            own_server = ""
            if self.api is OPENAI:
                own_server = ", or `base_url` for a server of your own"
            raise AuthenticationError(f"{self.spec} needs a key; set {variable}{own_server}")
        if not (key.isascii() and key.isprintable()):
            raise AuthenticationError(f"{variable} holds characters that no key has; paste it again")
        # The library refuses to start without one, and servers of open models ask for none
        return key or "none-needed"


def requests_per_s(text: str) -> float:
    """Return the requests a second of `3000/min`, `50/s` or `100/h`.

    >>> requests_per_s("3000/min")
    50.0
    """
    amount, seconds, is_tokens = parse_rate(text) or (0.0, 1, False)
    if not amount or is_tokens:
        raise UsageError(f"{text!r} is not a rate of requests; give one such as 3000/min, 50/s or 100/h")
    return amount / seconds


def _load(name: str, options: LoadOptions, *, api: Service = OPENAI) -> OpenAIEmbedder:
    names = ["dimensions", "document_prefix", "query_prefix", "batch_size", "concurrency"]
    if api is OPENAI:  # the server that is named is one of its form
        names.append("base_url")
    rate_per_s = None
    if options.rate is not None:
        rate_per_s = requests_per_s(options.rate)
    return OpenAIEmbedder(name, rate_per_s=rate_per_s, api=api, **options.chosen(*names))


def _kind(api: Service, example: str) -> EmbedderKind:
    return EmbedderKind(partial(_load, api=api), example, takes_prefixes=True, takes_dimensions=True)


KIND = _kind(OPENAI, "text-embedding-3-small")
VOYAGE_KIND = _kind(VOYAGE, "voyage-4")
COHERE_KIND = _kind(COHERE, "embed-v4.0")
GEMINI_KIND = _kind(GEMINI, "gemini-embedding-001")
