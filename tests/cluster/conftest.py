import pytest
from dask_processes import processes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with processes(tmp_path_factory.mktemp("dask")) as started:
        yield started
