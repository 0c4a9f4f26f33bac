import contextlib
import os
import re
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import openai_server as fake
import pytest

from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.embedders.cache import CachedEmbedder, CacheFile, are_cached
from migrate.embedders.openai import OpenAIEmbedder
from migrate.errors import InputError, LockedError, OutputError, RemoteError
from migrate.manifest import ModelIdentity
from migrate.vectors import Document

TESTS = Path(__file__).parent


class CountingEmbedder(Embedder):
    batch_size = 4

    def __init__(self, *, dim=8, spec="count", revision=None, document_prefix="", query_prefix=""):
        self.asked = []
        self._identity = ModelIdentity(spec, dim, True, document_prefix, query_prefix, revision)

    @property
    def identity(self):
        return self._identity

    def embed(self, texts, role, *, progress=None):
        self.asked.append([text.text for text in texts])
        return np.stack([fake.vector_of(text.text, self._identity.dim) for text in texts])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "cache.sqlite"


def test_asks_only_for_what_it_has_not_seen_and_once_for_what_occurs_twice(path, documents):
    inner = CountingEmbedder()
    cached = CachedEmbedder(inner, path)
    first = cached.embed_documents(documents("a", "b", "a", "c"))
    second = cached.embed_documents(documents("c", "x", "a"))
    assert inner.asked == [["a", "b", "c"], ["x"]]
    assert (cached.hits, cached.misses) == (3, 4)
    np.testing.assert_array_equal(second[[2, 0, 2]], first[[0, 3, 2]])
    np.testing.assert_array_equal(second, CountingEmbedder().embed_documents(documents("c", "x", "a")))
    assert second.dtype == np.float32
    assert are_cached(cached, documents("a", "z", "a"), "document") == [True, False, True]


@pytest.mark.parametrize(
    ("other", "role", "asks"),
    [
        ({"spec": "another"}, "document", True),
        ({"revision": "2"}, "document", True),
        ({"document_prefix": "passage: "}, "document", True),
        ({"dim": 4}, "document", True),
        ({}, "query", False),
        ({"query_prefix": "query: "}, "query", True),
    ],
)
def test_another_model_shares_nothing_and_roles_a_vector_where_their_prefixes_agree(other, role, asks, path, documents):
    CachedEmbedder(CountingEmbedder(), path).embed_documents(documents("a"))
    inner = CountingEmbedder(**other)
    assert CachedEmbedder(inner, path).embed(documents("a"), role).shape == (1, inner.identity.dim)
    assert inner.asked == [["a"]] * asks


def test_two_servers_or_two_dimensions_share_nothing(path, documents):
    with fake.OpenAIServer() as one, fake.OpenAIServer() as two:
        for server, dimensions in [(one, None), (two, None), (two, 4), (two, 4)]:
            embedder = load_embedder("openai:tiny", base_url=server.url, dimensions=dimensions, cache=path)
            embedder.embed_documents(documents("a"))
        assert (len(one.texts_served), len(two.texts_served)) == (1, 2)


def test_vectors_of_the_model_that_the_server_had_before_are_not_mixed_with_new_ones(path, server, documents):
    embedders = [CachedEmbedder(OpenAIEmbedder("tiny", base_url=server.url), path) for _ in range(3)]
    embedders[0].embed_documents(documents("a", "b"))
    server.faults += [fake.SHORTER] * 9
    with pytest.raises(RemoteError, match=r"dimension 7, not 8 .*cache\.sqlite.* --cache"):
        embedders[1].embed_documents(documents("a", "c"))
    assert len(server.requests) == 2
    embedders[2].embed_documents(documents("c"))
    with pytest.raises(InputError, match="dimensions 7 and 8"):
        embedders[2].embed_documents(documents("a", "c", "d"))
    assert len(server.requests) == 3


WAIT_S = 120


def start(function, *arguments):
    """Call a function of this module in a process of its own; it takes paths and numbers as strings."""
    call = f"import sys; sys.path.insert(0, {str(TESTS)!r}); import test_cache; test_cache.{function.__name__}"
    command = [sys.executable, "-W", "error", "-c", f"{call}(*sys.argv[1:])", *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def finish(process):
    with process:
        output, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    return output


def check_sound(path, rows):
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("SELECT count(*) FROM embeddings").fetchone() == (rows,)


def make_caches(folder):
    texts = [Document(str(n), f"text {n}") for n in range(12)]
    print("ready", flush=True)
    begin = float(sys.stdin.readline())
    for turn in range(25):
        while time.time() < begin + turn * 0.02:
            pass
        CachedEmbedder(CountingEmbedder(), Path(folder, f"{turn}.sqlite")).embed_documents(texts)


@pytest.mark.slow
def test_processes_may_come_upon_a_new_cache_at_once(tmp_path):
    processes = [start(make_caches, tmp_path) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == b"ready\n"
    begin = time.time() + 0.1
    for process in processes:
        process.stdin.write(f"{begin}\n".encode())
        process.stdin.flush()
    for process in processes:
        finish(process)
    assert len(list(tmp_path.glob("*.sqlite"))) == 25


def write_in_threads(path, process):
    def write(thread):
        for number in range(60):
            with CacheFile(Path(path)) as file:
                keys = [f"{process} {thread} {number} {place}".encode() for place in range(8)]
                file.write({key: np.full(400, number, np.float32) for key in keys})
                assert len(file.read(keys)) == 8

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))


@pytest.mark.slow
def test_threads_of_several_processes_do_not_damage_it(tmp_path):
    path = tmp_path / "cache.sqlite"
    for process in [start(write_in_threads, path, number) for number in range(2)]:
        finish(process)
    check_sound(path, 2 * 4 * 60 * 8)


def change(statement, *values):
    def run(path):
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute(statement, values)

    return run


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_text("notes " * 1000), "delete it, or choose another path"),
        (lambda path: path.unlink() or change("CREATE TABLE accounts (name TEXT)")(path), "another application"),
        (lambda path: path.write_bytes(path.read_bytes()[:20_000]), "damaged"),
        (change("PRAGMA user_version = 3"), "version 3, where this release reads 2"),
        (change("UPDATE embeddings SET vector = substr(vector, 1, 30)"), "damaged"),
        (change("UPDATE embeddings SET vector = ?", np.ones(8, dtype="<f4").tobytes()), "damaged"),
        (change("UPDATE embeddings SET vector = NULL"), "damaged"),
        (change("DROP TABLE embeddings"), "damaged"),
    ],
)
def test_what_is_no_cache_or_is_damaged_is_refused_in_a_line_and_left_alone(spoil, message, path, documents):
    texts = documents(*map(str, range(100)))
    CachedEmbedder(CountingEmbedder(dim=512), path).embed_documents(texts)
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=message) as caught:
        CachedEmbedder(CountingEmbedder(dim=512), path).embed_documents(texts)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


def fill_disk(path):
    """A limit on the size of files stands in for a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    inner = CountingEmbedder(dim=512)
    cached = CachedEmbedder(inner, Path(path))
    cached.embed_documents([Document("a", "a")])
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    texts = [Document(str(number), str(number)) for number in range(500)]
    with pytest.raises(OutputError, match="free some space"):
        cached.embed_documents(texts)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    paid = sum(map(len, inner.asked)) - inner.batch_size
    assert paid > 1
    cached.embed_documents(texts)
    assert sum(map(len, inner.asked)) == 501 + inner.batch_size


@pytest.mark.slow
def test_a_full_disk_keeps_what_was_there(tmp_path):
    finish(start(fill_disk, tmp_path / "cache.sqlite"))


def test_a_folder_that_cannot_be_made_is_an_output_error(tmp_path, documents):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError):
        CachedEmbedder(CountingEmbedder(), tmp_path / "file" / "cache.sqlite").embed_documents(documents("a"))


def test_a_lock_that_is_held_too_long_is_named(path, documents, monkeypatch):
    monkeypatch.setattr("migrate.embedders.cache.CacheFile.busy_s", 0.1)
    CachedEmbedder(CountingEmbedder(), path).embed_documents(documents("a"))
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        with pytest.raises(LockedError, match="another run"):
            CachedEmbedder(CountingEmbedder(), path).embed_documents(documents("b"))


@pytest.mark.slow
def test_reads_more_keys_than_one_statement_takes(path, documents):
    texts = documents(*map(str, range(1300)))
    cached = CachedEmbedder(CountingEmbedder(), path)
    np.testing.assert_array_equal(cached.embed_documents(texts), cached.embed_documents(texts))
    assert (cached.hits, cached.misses) == (1300, 1300)


class InterruptedConnection(sqlite3.Connection):
    """Stands for Ctrl-C while a transaction begins: Python raises as the call returns."""

    is_interrupted = False

    def execute(self, statement, *values):
        cursor = super().execute(statement, *values)
        if statement == "BEGIN IMMEDIATE" and self.is_interrupted:
            self.is_interrupted = False
            raise KeyboardInterrupt
        return cursor


def test_what_is_paid_for_can_be_written_after_an_interrupt_at_the_begin_of_a_transaction(path, monkeypatch):
    monkeypatch.setattr("migrate.embedders.own_database.sqlite3.connect", InterruptedConnection)
    rows = {b"k" * 32: np.ones(3, dtype=np.float32)}
    with CacheFile(path) as file:
        file._database.is_interrupted = True
        with pytest.raises(KeyboardInterrupt):
            file.write(rows)
        file.write(rows)
        assert list(file.read(rows)) == list(rows)


class InterruptAtContext:
    """Stands for Ctrl-C as the n-th context that is a generator has begun: Python raises before its block."""

    def __init__(self, number):
        self.number, self.entered = number, 0

    def __call__(self, frame, event, _):
        return self.inside if frame.f_code is contextlib._GeneratorContextManager.__enter__.__code__ else None

    def inside(self, _, event, __):
        if event == "return":
            self.entered += 1
            if self.entered == self.number:
                raise KeyboardInterrupt
        return self.inside


@pytest.mark.parametrize("number", [1, 2])
def test_what_is_written_after_an_interrupt_at_any_context_of_a_transaction_is_kept(path, number):
    rows = {b"k" * 32: np.ones(3, dtype=np.float32)}
    with CacheFile(path) as file:
        before = sys.gettrace()
        with pytest.raises(KeyboardInterrupt) as interrupt:
            sys.settrace(InterruptAtContext(number))
            try:
                file.write({})
            finally:
                sys.settrace(before)
        assert interrupt.tb, "its traceback holds what was begun"
        file.write(rows)
    with CacheFile(path) as file:
        assert list(file.read(rows)) == list(rows)


def modes(path):
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in (path.parent, *path.parent.iterdir())}


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_a_new_cache_is_for_its_user_alone(umask, path):
    before = os.umask(umask)
    try:
        with CacheFile(path) as cache:
            cache.write({b"key": np.ones(2, np.float32)})
            cache._database.execute("BEGIN IMMEDIATE")
            cache._database.execute("DELETE FROM embeddings")
            assert modes(path) == {"deep": 0o700, "cache.sqlite": 0o600, "cache.sqlite-journal": 0o600}
            cache._database.execute("ROLLBACK")
    finally:
        os.umask(before)


def test_a_cache_that_all_may_write_to_is_not_believed(path):
    with CacheFile(path):
        path.chmod(0o646)
    with pytest.raises(InputError, match=re.escape(str(path))):
        CacheFile(path).__enter__()
    path.chmod(0o664)
    path.parent.chmod(0o757)
    with pytest.raises(InputError, match=f"{re.escape(str(path))}.* folder"):
        CacheFile(path).__enter__()
    path.parent.chmod(0o1777)
    with CacheFile(path):
        assert path.stat().st_mode & 0o777 == 0o664, "what somebody chose stays as it is"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_cache_of_another_user_is_not_believed(path):
    with CacheFile(path):
        os.chown(path, 12_345, 12_345)
    with pytest.raises(InputError, match=f"{re.escape(str(path))}.* another user"):
        CacheFile(path).__enter__()
