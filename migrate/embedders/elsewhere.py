"""A model that runs in other processes, here or on other machines: the workers of a runner.

Everything in front of the model stays where it is: the cache is asked before anything is sent, the meter counts before
anything is spent, and the store is written by one process. Only texts go out, and vectors come back.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder, Keep, Role, WrappedEmbedder
from migrate.errors import InputError
from migrate.manifest import ModelIdentity
from migrate.vectors import Document, Progress, Text, Vectors, no_progress
from migrate.work.jobs import Pool, Task
from migrate.work.runner import Runner
from migrate.work.shards import VECTORS, pack


@dataclass(frozen=True)
class RemoteModel(Task):
    """A model for a worker to load, as it is here: the model itself, or the spec and options that it was loaded by.

    `scope` is its `cache_scope` for documents, where it has one that the worker's must equal; `state` what it has
    learned, as files; `environment` variables that it needs, a key perhaps. `users` processes share the limits of its
    server.
    """

    model: Embedder | tuple[str, Mapping[str, Any]] = field(repr=False)
    digest: str
    scope: str | None
    state: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    users: int = 1

    def name_of(self, *arguments: Any) -> str:
        """Name a call by its texts and their role."""
        texts, role = arguments
        return sha256(json.dumps([role, [[text.id, text.text] for text in texts]]).encode()).hexdigest()

    def open(self) -> Callable[[Sequence[Text], Role], Sequence[memoryview]]:
        """Load the model; it stays for as long as the function does.

        It makes the vectors of some texts, (n, dim), and says what its server charged for them, and what its model is.

        Raises InputError: what is loaded here is another model.
        """
        os.environ.update(self.environment)
        folder = tempfile.TemporaryDirectory(prefix="lead-migrate-")
        for name, content in self.state.items():
            (Path(folder.name) / name).write_bytes(content)
        if isinstance(self.model, Embedder):
            model = self.model
        else:
            spec, options = self.model
            model = load_embedder(spec, **options, state=Path(folder.name) if self.state else None)
        model.share(self.users)
        if self.scope is not None and (scope := model.cache_scope("document")) != self.scope:
            raise InputError(f"a worker loads the model {scope}, not {self.scope}; have the same one on all machines")

        def embed(texts: Sequence[Text], role: Role, _folder: object = folder) -> Sequence[memoryview]:
            tokens_before = model.usage_tokens
            vectors = model.embed(texts, role)
            details = {"usage_tokens": model.usage_tokens - tokens_before, "model": asdict(model.identity)}
            return pack({VECTORS: [vectors]}, details)

        return embed


class RemoteEmbedder(WrappedEmbedder):
    """A model whose texts are embedded by the workers of a runner while `at_work`, and here at other times."""

    def __init__(self, embedder: Embedder, runner: Runner) -> None:
        super().__init__(embedder)
        self.runner = runner
        self._pool: Pool | None = None
        self._usage_tokens = 0
        self._identity: ModelIdentity | None = None
        self._lock = threading.Lock()
        self._taken = threading.local()

    def around(self, embedder: Embedder) -> RemoteEmbedder:
        """Another model, by the same runner."""
        return RemoteEmbedder(embedder, self.runner)

    def with_model(self, change: Callable[[Embedder], Embedder]) -> Embedder:
        """Put the change around this embedder, so that a meter stays in this process."""
        return change(self)

    @property
    def identity(self) -> ModelIdentity:
        """Identity that a worker reported, so that the model need not be loaded here."""
        return self._identity or self.embedder.identity

    @property
    def usage_tokens(self) -> int:
        """Tokens that the workers used, and this process."""
        return self.embedder.usage_tokens + self._usage_tokens

    @contextmanager
    def at_work(self) -> Iterator[Pool]:
        """Have the texts embedded by the workers.

        A model of a server is used by no more processes than there are now, and than it may have requests in flight:
        each of them has its share of the limits, so that all of them together keep to these.
        """
        profile = self.embedder.profile
        most = getattr(self.embedder, "concurrency", None) if profile.is_api else None
        with self.runner.pool(self._portable, ahead=1 if profile.is_api else 2, most=most) as pool:
            self._pool = pool
            try:
                yield pool
            finally:
                self._pool = None

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed texts in one call of a worker."""
        if self._pool is None or not texts:
            return self.embedder.embed(texts, role, progress=progress)
        block = self._pool.call([Document(text.id, text.text) for text in texts], role)
        with self._lock:
            self._usage_tokens += block.details["usage_tokens"] if block.is_new else 0
            self._identity = ModelIdentity(**block.details["model"])
        if block.file is not None:
            self._files().append(block.file)
        progress("embed", len(texts), len(texts))
        return block.vectors

    def _files(self) -> list[str]:
        files: list[str] = self._taken.__dict__.setdefault("files", [])
        return files

    def take_files(self) -> list[str]:
        """The files that this thread's vectors came in since it was asked last, to be released when they are safe."""
        files = self._files()[:]
        self._files().clear()
        return files

    def embed_each(self, texts: Sequence[Text], role: Role, keep: Keep, *, progress: Progress = no_progress) -> None:
        """Embed texts in one call of a worker, and hand them over together."""
        if self._pool is None:
            self.embedder.embed_each(texts, role, keep, progress=progress)
        elif texts:
            keep(range(len(texts)), self.embed(texts, role, progress=progress))

    def embed_again(self, texts: Sequence[Text], role: Role) -> Vectors:
        """Embed in this process: the few texts that prove the model need no worker."""
        return self.embedder.embed_again(texts, role)

    def _portable(self, users: int) -> RemoteModel:
        model, state = self.embedder, self.embedder.state()
        scope = model.cache_scope("document") if model.cacheable else None
        # A model that cannot be told from others has files of its own
        identity = [scope or uuid.uuid4().hex, *(f"{name} {sha256(state[name]).hexdigest()}" for name in sorted(state))]
        digest = sha256("\n".join(identity).encode()).hexdigest()
        api = model.profile.kind.upper()
        variables = (f"{api}_API_KEY", f"{api}_BASE_URL") if model.profile.is_api else ()
        environment = {name: os.environ[name] for name in variables if name in os.environ}
        return RemoteModel(model.loaded_by or model, digest, scope, state, environment, users)


def elsewhere(embedder: Embedder, runner: Runner) -> Embedder:
    """The embedder with its model run by a runner's workers, if that runner has any for it."""
    if not runner.embeds or remote_in(embedder) is not None:
        return embedder
    return embedder.with_model(lambda model: RemoteEmbedder(_as_here(model, runner), runner))


def _as_here(model: Embedder, runner: Runner) -> Embedder:
    """The model as this machine can load it: the device that is asked for may be one that only workers have."""
    if runner.is_local or model.loaded_by is None or model.loaded_by[1]["device"] in ("auto", "cpu") or model.state():
        return model
    spec, options = model.loaded_by
    local = load_embedder(spec, **{**options, "device": "auto"})
    local.loaded_by = model.loaded_by
    return local


def remote_in(embedder: Embedder) -> RemoteEmbedder | None:
    """Return the part of an embedder that runs elsewhere, or None."""
    while not isinstance(embedder, RemoteEmbedder):
        if not isinstance(embedder, WrappedEmbedder):
            return None
        embedder = embedder.embedder
    return embedder
