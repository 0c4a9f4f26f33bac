"""Recall of an index, held against FAISS's own exact search."""

import faiss
import numpy as np
import pytest
from faiss_tools import COUNT, DIM, build, save

from migrate.stores import index_recall, open_store
from migrate.work.writer import write_rows

pytestmark = pytest.mark.slow


def own_recall(index, vectors, labels, metric, queries=200):
    """Recall@10 counted by labels, for vectors without ties."""
    exact = faiss.IndexFlatL2(DIM) if metric == "l2" else faiss.IndexFlatIP(DIM)
    exact.add(vectors)
    rows = np.unique(np.linspace(0, COUNT - 1, queries).astype(int))
    truth = labels[exact.search(vectors[rows], 10)[1]]
    found = index.search(vectors[rows], 10)[1]
    return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(truth, found, strict=True)])


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("factory", ["IVF16,Flat", "HNSW4,Flat", "IDMap2,IVF16,Flat"])
def test_recall_is_the_share_of_true_neighbours(factory, metric, vectors, tmp_path):
    labels = np.random.default_rng(4).permutation(COUNT) * 2 if "IDMap" in factory else np.arange(COUNT)
    index = build(factory, vectors, metric=metric, labels=labels if "IDMap" in factory else None)
    save(index, tmp_path)
    store = open_store(tmp_path)
    # the rows of lists come in another order, and so do the queries: all rows make them the same
    found = index_recall(store, queries=COUNT)
    expected = own_recall(index, vectors, labels, metric, COUNT)
    assert 0.1 < expected < 1
    assert found == pytest.approx(expected, abs=0.002)


@pytest.mark.parametrize("factory", ["Flat", "IDMap2,Flat"])
def test_flat_indexes_have_no_recall_to_tell(factory, vectors, tmp_path):
    save(build(factory, vectors, labels=np.arange(COUNT) if "IDMap" in factory else None), tmp_path)
    assert index_recall(open_store(tmp_path)) is None


def test_the_writer_of_a_coded_index_tells_what_coding_costs(vectors, tmp_path):
    """Over the vectors it was given: those read back would be found exactly."""
    save(build("SQ4", vectors), tmp_path / "old")
    store = open_store(tmp_path / "old")
    assert index_recall(store) > 0.98
    (tmp_path / "new").mkdir()
    finished = write_rows(store.destination(tmp_path / "new", DIM), [(0, vectors)], len(vectors))
    index = faiss.read_index(str(tmp_path / "new" / "index.faiss"))
    expected = own_recall(index, vectors, np.arange(COUNT), "l2")
    assert expected < 0.98
    assert finished.recall == pytest.approx(expected, abs=0.002)
