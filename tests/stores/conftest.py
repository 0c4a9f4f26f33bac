from pathlib import Path

import numpy as np
import pytest
from faiss_tools import COUNT, DIM


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    """What is kept on a machine is each test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def vectors():
    return np.random.default_rng(7).normal(size=(COUNT, DIM)).astype(np.float32)


@pytest.fixture
def shared_stores():
    folder = Path(__file__).parents[3] / "shared" / "data" / "stores"
    if not folder.is_dir():
        pytest.skip("the stores of public projects are not here")
    return folder
