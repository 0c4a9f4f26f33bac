import faiss
import pytest
import victims

import migrate.embed.corpus
import migrate.translate

ROWS = 600

# Many small indexes on a busy machine: waiting for threads costs more than they save.
faiss.omp_set_num_threads(1)


@pytest.fixture
def small_parts(monkeypatch):
    """As `victims.make_parts_small`, for one test."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr(migrate.translate, "_BATCH_BYTES", 1 << 16)
    monkeypatch.setattr(migrate.translate, "_FEWEST_ROWS", 64)
    monkeypatch.setattr("migrate.steps.translate.job._PART_BYTES", 1 << 17)
    monkeypatch.setattr(migrate.embed.corpus, "BATCH_DOCUMENTS", victims.PART_DOCUMENTS)


@pytest.fixture
def folder(memory_folder):
    return memory_folder


@pytest.fixture
def job(request, small_parts, folder):
    """A job of the kind that the test is parametrized with, in two parts or three."""
    victims.prepare(request.param, folder, ROWS)
    return victims.job_of(request.param, folder, ROWS)
