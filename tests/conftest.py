import gc
import hashlib
import inspect
import json
import locale
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from _pytest.doctest import DoctestModule
from schema import check_document

import migrate
from migrate.datasets.beir import write_beir
from migrate.datasets.stdlib import stdlib_beir
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.report.characters import printable_json

SOURCE_SPEC = "tfidf:32"
MEMORY = Path("/dev/shm")
"""A file system in memory, where there is one."""

ROOM_BYTES = 4 << 30
"""What there must be free of it; all files that a whole run has at one time are a fraction of that."""

SLOW_MODULE = re.compile(r"^pytestmark = .*\bpytest\.mark\.slow\b", re.MULTILINE)
LONGEST = "test_sessions.py"
"""The module whose tests take longest; its tests cannot be done at the same time."""


def pytest_configure():
    """Keep temporary files in memory where there is room, those of servers and commands too.

    On a disk most tests would wait for it, as whatever is written is synced.
    """
    # A shell without a terminal starts what is in its background with Ctrl-C ignored, which some clients undo
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    if has_room and "TMPDIR" not in os.environ:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
    if "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit it
        os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="lead-migrate-tests-")


def pytest_unconfigure():
    """Remove the notes that commands have left of what was asked of them."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["XDG_STATE_HOME"], ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage among modules and tests, which stay until the end: it takes a fifth of the collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path, config):
    """Modules that have slow tests alone are not even imported where none are run: clients of databases take long."""
    if config.option.markexpr == "not slow" and collection_path.match("test_*.py"):
        return SLOW_MODULE.search(collection_path.read_text("utf-8")) is not None or None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """No examples are looked for in the tests: only the package has them."""
    return [found for found in (yield) if not isinstance(found, DoctestModule)]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Modules with slow tests go first, so that no core is left with a long one while the others idle."""
    if not hasattr(config, "workerinput"):  # one process does them in the order that was asked for
        return
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path.name != LONGEST, item.path not in slow))


@pytest.fixture(scope="session", autouse=True)
def documents_follow_their_schema():
    """No command prints, in any test of its process, a document that `docs/schema.json` does not describe."""

    def checked(text):
        check_document(json.loads(text))
        return printable_json(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("migrate.cli.terminal.printable_json", checked)
        patch.delenv("GITHUB_ACTIONS", raising=False)  # where these run, they show it nothing
        yield


OWN_VARIABLES = {
    "PYTEST_CURRENT_TEST",
    *("GRPC_VERBOSITY", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "LANCEDB_LOG", "LANCE_LOG"),
    "TORCHINDUCTOR_CACHE_DIR",
}
"""Variables that pytest sets for each test, and those that libraries set for good when they are loaded."""

LIMITS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}

UMASK = re.compile(rb"^Umask:\s*(\d+)", re.MULTILINE)


def inherited_state():
    """What tests, and the commands that they start, inherit from the tests before: values by name."""
    variables = {f"variable {name}": text for name, text in os.environ.items() if name not in OWN_VARIABLES}
    # Children inherit no handlers, and pytest-timeout installs its own for each test
    ignored = {f"{s.name} ignored": True for s in signal.Signals if signal.getsignal(s) == signal.SIG_IGN}
    limits = {name: resource.getrlimit(limit) for name, limit in LIMITS.items()}
    return {
        **variables,
        **ignored,
        **limits,
        "working directory": os.getcwd(),  # noqa: PTH109 - as it is given to `chdir`
        "sys.path": list(sys.path),
        "umask": read_umask(),
        "locale": locale.setlocale(locale.LC_ALL),
    }


def read_umask():
    """Read the umask without changing it, which threads would notice; None where there is no /proc."""
    try:
        return UMASK.search(Path("/proc/self/status").read_bytes())[1]
    except FileNotFoundError:
        return None


def check_inherited_state(owner):
    """Fail after the test, or the fixtures, of `owner` if they leave what others inherit changed; code of a fixture."""
    before = inherited_state()
    yield
    after = inherited_state()
    changes = [
        f"{name} was {before.get(name)!r} and is {after.get(name)!r}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    if changes:
        restore_inherited_state(before)  # so that no other test is named
        pytest.fail(f"{owner} does not restore what it changes: {'; '.join(changes)}", pytrace=False)


def restore_inherited_state(state):
    """Restore the environment, the working directory and the path."""
    variables = {name.removeprefix("variable "): text for name, text in state.items() if name.startswith("variable ")}
    for name in os.environ.keys() - variables.keys() - OWN_VARIABLES:
        del os.environ[name]
    os.environ.update(variables)
    os.chdir(state["working directory"])
    sys.path[:] = state["sys.path"]


# pytest tears fixtures down in reverse: this one is the first of each test, and is set up after those of modules
@pytest.fixture(autouse=True)
def each_test_restores(request):
    """Fail a test that changes what later tests inherit."""
    yield from check_inherited_state(request.node.nodeid)


@pytest.fixture(autouse=True, scope="module")
def each_module_restores(request):
    """Fail the last test of a module whose fixtures change what later modules inherit."""
    yield from check_inherited_state(f"a fixture of {request.node.nodeid}")


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a package on the path: a module of some code, whose KIND an entry point of a group names."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(package, code, group, kind):
        (tmp_path / f"{package}_module.py").write_text(code)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[lead_migrate.{group}]\n{kind} = {package}_module:KIND\n")

    return make


@pytest.fixture
def step_fields(monkeypatch):
    """Called with fields of a step that commands of this process then have, as no option stands for them."""

    def set_fields(step, **values):
        for name, value in values.items():
            monkeypatch.setitem(inspect.unwrap(step.__init__).__kwdefaults__, name, value)

    return set_fields


@pytest.fixture
def mount():
    """Mounts a file system of its own at a folder, which only root may."""
    mounted = []

    def at(folder):
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("file systems cannot be mounted here")
        mounted.append(folder)

    yield at
    for folder in reversed(mounted):
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def but_again(monkeypatch):
    """Called with the texts that a server has billed: leaves out those that were embedded again, to prove a model.

    What was embedded again is forgotten then.
    """
    again, real = [], Embedder.embed_again

    def noted(self, texts, role):
        vectors = real(self, texts, role)
        again.extend(text.text for text in texts)
        return vectors

    def left(billed):
        counts = Counter(billed)
        counts.subtract(again)
        again.clear()
        assert min(counts.values(), default=0) >= 0
        return list(counts.elements())

    monkeypatch.setattr(Embedder, "embed_again", noted)
    return left


@pytest.fixture(scope="session")
def corpus():
    """150 docstrings with a question each."""
    return stdlib_beir(max_docs=150, seed=3)


@pytest.fixture(scope="session")
def short_corpus(corpus):
    """The first 20 words of each document: a real model reads them in a fifth of the time."""
    documents = [replace(document, text=" ".join(document.text.split()[:20])) for document in corpus.documents]
    return replace(corpus, documents=tuple(documents))


def save_beir(corpus, folder):
    write_beir(folder, corpus.documents, corpus.queries, corpus.qrels)
    return folder


def save_store(corpus, folder):
    embed_corpus(lambda: corpus.documents, load_embedder(SOURCE_SPEC), folder)
    return folder


@pytest.fixture(scope="session")
def beir(corpus, tmp_path_factory):
    return save_beir(corpus, tmp_path_factory.mktemp("data") / "docstrings")


@pytest.fixture(scope="session")
def short_beir(short_corpus, tmp_path_factory):
    return save_beir(short_corpus, tmp_path_factory.mktemp("short") / "docstrings")


@pytest.fixture(scope="session")
def source_folder(corpus, tmp_path_factory):
    """A store of the corpus, embedded lexically; nobody writes to it."""
    return save_store(corpus, tmp_path_factory.mktemp("stores") / "source")


@pytest.fixture(scope="session")
def short_folder(short_corpus, tmp_path_factory):
    """A store of the short documents, embedded lexically; nobody writes to it."""
    return save_store(short_corpus, tmp_path_factory.mktemp("short") / "source")


@pytest.fixture(scope="session")
def bare_folder(source_folder, forget_hashes, tmp_path_factory):
    """The same store, ids and all, without its texts; nobody writes to it."""
    folder = tmp_path_factory.mktemp("stores") / "bare"
    shutil.copytree(source_folder, folder)
    lines = (json.loads(line) for line in (folder / "docs.jsonl").read_text().splitlines())
    (folder / "docs.jsonl").write_text("".join(json.dumps({"id": line["id"]}) + "\n" for line in lines))
    forget_hashes(folder)
    return folder


@pytest.fixture(scope="session")
def forget_hashes():
    """Takes all hashes out of a store's manifest, as if it were older than they are."""

    def forget(folder: Path):
        path = folder / "lead-migrate.json"
        facts = json.loads(path.read_text())
        del facts["manifest_sha256"], facts["details"]["index_hash"], facts["details"]["documents_hashes"]
        path.write_text(json.dumps(facts))

    return forget


@pytest.fixture(scope="session")
def write_vectors(corpus):
    """Writes what a model makes of the corpus and its queries to a file, to be found by id."""

    def write(path, spec):
        embedder = load_embedder(spec)
        embedder.fit(corpus.documents)
        ids, asked = ([one.id for one in kind] for kind in (corpus.documents, corpus.queries))
        documents, queries = embedder.embed_documents(corpus.documents), embedder.embed_queries(corpus.queries)
        np.savez(path, doc_ids=ids, docs=documents, query_ids=asked, queries=queries)
        return path

    return write


@pytest.fixture(scope="session")
def target_file(write_vectors, tmp_path_factory):
    """A model whose vectors of the corpus somebody else computed, in 24 dimensions, to be found by id."""
    return write_vectors(tmp_path_factory.mktemp("data") / "target.npz", "tfidf:24")


@pytest.fixture(scope="module")
def short_training():
    """Networks are trained for a hundred steps instead of 1,500: for tests that need one, however good."""
    from migrate.lab.stitches import mlp

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlp, "Training", partial(mlp.Training, steps=100))
        yield


@pytest.fixture
def shell(tmp_path):
    """Run a line in a new shell, in the current folder."""
    program = tmp_path / "bin" / "lead-migrate"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m migrate "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(Path(migrate.__file__).parents[1])}
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    return lambda line: subprocess.run(line, shell=True, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def digest():
    """Hash of every file of a folder, by name."""

    def hashes(folder: Path):
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}

    return hashes


def pytest_xdist_auto_num_workers():
    """Two processes more than there are cores: many tests wait for commands and servers that they have started."""
    return (os.cpu_count() or 1) + 2
