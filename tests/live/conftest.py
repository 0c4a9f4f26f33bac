import asyncio
import inspect

import pytest
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
def own_folders(tmp_path, monkeypatch):
    """A cache and a state that nobody else has."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def embedder(tmp_path):
    """A model with a cache."""
    return CachedEmbedder(Hashed(), tmp_path / "cache.sqlite")
