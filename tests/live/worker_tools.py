"""A translated store, as a folder or in a database, and a model that counts what it is asked for."""

import hashlib
import os
import time
from dataclasses import replace

import numpy as np

import migrate.live.worker
from migrate.embedders.base import Embedder
from migrate.embedders.cache import CachedEmbedder
from migrate.errors import InputError, RemoteError
from migrate.live.worker import Worker, WorkerOptions
from migrate.manifest import ModelIdentity
from migrate.stores import open_store


class Hashed(Embedder):
    """A vector for each text, at random but always the same. Refuses some texts, and fails `fails` times."""

    def __init__(self, dim=12):
        self.dim, self.asked, self.fails, self.refuses = dim, [], 0, ""

    @property
    def identity(self):
        return ModelIdentity("hashed", self.dim, True)

    def embed(self, texts, role, *, progress=None):
        if self.fails:
            self.fails -= 1
            raise RemoteError("the model does not answer")
        for text in texts:
            if text.text in ("", self.refuses):
                raise InputError(f"{text.id}: the model does not take this text")
        self.asked += [text.id for text in texts]
        return np.array([self.one(text.text) for text in texts], dtype=np.float32).reshape(-1, self.dim)

    def one(self, text):
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        row = np.random.default_rng(seed).normal(size=self.dim)
        return (row / np.linalg.norm(row)).astype(np.float32)


class Other(Hashed):
    @property
    def identity(self):
        return ModelIdentity("other", self.dim, True)

    def one(self, text):
        return super().one("other " + text)


class Drifting(Hashed):
    """Behind an API, where another model may come to have the name."""

    drift = ""

    @property
    def profile(self):
        return replace(super().profile, is_api=True)

    def one(self, text):
        return super().one(self.drift + text)


class Noting(Drifting):
    """Notes the ids of what it is sent in a file, and ends the process, as a kill does, after so many."""

    def __init__(self, journal, after):
        super().__init__()
        self.journal, self.after = journal, after

    def embed(self, texts, role, *, progress=None):
        with self.journal.open("a") as journal:
            journal.writelines(f"{text.id}\n" for text in texts)
        if len(self.asked) + len(texts) > self.after:
            os._exit(0)
        return super().embed(texts, role)


DATABASES = ["chroma", "chroma server", "lancedb", "milvus", "pgvector", "qdrant", "qdrant server", "sqlite-vec"]


def translate(source_folder, embedder, place, size=40):
    """150 documents, 40 of them with true vectors."""
    source = open_store(source_folder)
    fitted = migrate.fit(source, embedder, kind="ridge", sample=size)
    migrate.translate(source, fitted, place)
    return open_store(str(place))


def work(location, cache, batch=None):
    if batch is not None:
        migrate.live.worker._BATCH = batch
    Worker(location, CachedEmbedder(Hashed(), cache), WorkerOptions(once=True)).run()


def work_and_note(location, cache, journal, budget, after):
    options = WorkerOptions(once=True, budget=budget)
    migrate.live.worker._BATCH = 5
    Worker(location, CachedEmbedder(Noting(journal, after), cache), options).run()


def wait_for(condition, within_s=60):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"has not come about within {within_s} s"
        time.sleep(0.02)
