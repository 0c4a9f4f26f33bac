import faiss
import pytest
import victims

ROWS = 600

# Many small indexes on a busy machine: waiting for threads costs more than they save.
faiss.omp_set_num_threads(1)


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "")
    victims.make_parts_small(monkeypatch.setattr)


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def job(request, small_parts, folder):
    """A job of the kind that the test is parametrized with, in two parts or three."""
    victims.prepare(request.param, folder, ROWS)
    return victims.job_of(request.param, folder, ROWS)
