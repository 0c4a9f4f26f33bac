import pytest
from dask_processes import processes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with processes(tmp_path_factory.mktemp("dask")) as started:
        yield started


@pytest.fixture
def left_in():
    """The files at a place of shards."""
    return lambda folder: [path for path in folder.rglob("*") if path.is_file()]
