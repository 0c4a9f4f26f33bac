import asyncio
import inspect
import time

import pytest
from openai_server import OpenAIServer
from worker_tools import NEEDS, Hashed

from migrate.embedders.cache import CachedEmbedder


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Runs coroutines, which suites of LangChain have, without a plugin."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


@pytest.fixture
def server():
    with OpenAIServer() as running:
        yield running


@pytest.fixture
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def embedder(tmp_path):
    return CachedEmbedder(Hashed(), tmp_path / "cache.sqlite")


@pytest.fixture
def place_of(tmp_path, request):
    def make(kind, name="store"):
        for module in NEEDS.get(kind, ()):
            pytest.importorskip(module)
        if kind == "chroma server":
            from chroma_tools import server

            return f"{server()[1]}#{name}{time.time_ns():x}"
        if kind == "pgvector":
            from postgres import server_url

            return f"pgvector:{server_url()}#{name}{time.time_ns():x}"
        if kind == "qdrant server":
            return f"qdrant:{request.getfixturevalue('qdrant_url')}#{name}{time.time_ns():x}"
        return str(tmp_path / name) if kind == "folder" else f"{kind}:{tmp_path / name}#docs"

    return make


@pytest.fixture(scope="session")
def qdrant_url(tmp_path_factory):
    from qdrant_server import serving

    with serving(tmp_path_factory.mktemp("qdrant server")) as url:
        yield url
