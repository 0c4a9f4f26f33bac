import os
from unittest.mock import patch

import pytest
from dask_processes import processes


@pytest.fixture(autouse=True)
def environment_before_nannies():
    """Restore what dask sets for its workers: the seed of hashes, threads."""
    with patch.dict(os.environ):
        yield


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with processes(tmp_path_factory.mktemp("dask")) as started:
        yield started


@pytest.fixture
def left_in():
    return lambda folder: [path for path in folder.rglob("*") if path.is_file()]
