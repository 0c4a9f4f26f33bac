import asyncio
import inspect
from contextlib import ExitStack
from functools import cache

import pytest
from kinds import kind_class
from openai_server import OpenAIServer
from worker_tools import Hashed

from migrate.embedders.cache import CachedEmbedder


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Runs coroutines, which suites of LangChain have, without a plugin."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


@pytest.fixture
def server(monkeypatch):
    """A server that is soon asked again where it failed."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.05)
    with OpenAIServer() as running:
        yield running


@pytest.fixture(scope="session", autouse=True)
def short_rests():
    """A worker looks for what there is to do, and for what it is told, more often than once a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("migrate.live.worker._POLL_S", 0.05)
        yield


@pytest.fixture
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def embedder(tmp_path):
    return CachedEmbedder(Hashed(), tmp_path / "cache.sqlite")


@pytest.fixture(scope="session")
def started(tmp_path_factory):
    """Kinds of stores by name, each after its server, which serves all tests: stores have names of their own there."""
    with ExitStack() as ends:

        @cache
        def start(kind):
            name = "faiss" if kind == "folder" else kind.replace(" ", "-")
            return kind_class(name).started(ends, tmp_path_factory.mktemp("server") / f"{kind} data")

        yield start


@pytest.fixture
def place_of(tmp_path, started):
    def make(kind, name="store"):
        folder = tmp_path / name
        return started(kind).named_place(folder) or started(kind).place(folder)

    return make
