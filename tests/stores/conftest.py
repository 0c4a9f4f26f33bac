from contextlib import ExitStack
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from faiss_tools import COUNT, DIM
from kinds import kind_class


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def kind_of(tmp_path):
    """Kinds by name; a server ends with the test, but for Chroma's, of which a process has one."""
    with ExitStack() as ends:
        yield cache(lambda name: kind_class(name).started(ends, tmp_path / name))


@pytest.fixture
def vectors():
    return np.random.default_rng(7).normal(size=(COUNT, DIM)).astype(np.float32)


@pytest.fixture
def shared_stores():
    folder = Path(__file__).parents[3] / "shared" / "data" / "stores"
    if not folder.is_dir():
        pytest.skip("the stores of public projects are not here")
    return folder
