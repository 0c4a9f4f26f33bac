"""Inverted lists that are written from a file: to the byte what FAISS writes itself."""

import faiss
import numpy as np
import pytest

from migrate.stores.faiss import lists


def indexes(vectors, nlist, metric):
    """The same trained, empty index twice."""
    for _ in range(2):
        flat = faiss.IndexFlatL2 if metric == faiss.METRIC_L2 else faiss.IndexFlatIP
        index = faiss.IndexIVFFlat(flat(vectors.shape[1]), vectors.shape[1], nlist, metric)
        index.cp.min_points_per_centroid = 1
        index.nprobe = 3
        index.train(vectors)
        yield index


@pytest.mark.parametrize("metric", [faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT])
@pytest.mark.parametrize(("count", "nlist", "alike"), [(3_000, 16, False), (300, 200, False), (300, 40, True)])
def test_the_file_is_that_of_faiss(count, nlist, alike, metric, tmp_path, monkeypatch):
    monkeypatch.setattr(lists, "_MOST_ROWS", 700)  # several blocks
    vectors = np.random.default_rng(0).standard_normal((count, 24), dtype=np.float32)
    if alike:
        vectors[:] = vectors[0]  # most lists are empty
    labels = np.arange(count) * 3 + 7
    theirs, ours = indexes(vectors, nlist, metric)
    theirs.add_with_ids(vectors, labels)
    faiss.write_index(theirs, str(tmp_path / "theirs"))
    (tmp_path / "ours").write_bytes(b"head")
    lists.append_lists(tmp_path / "ours", ours, vectors, labels)
    assert (tmp_path / "ours").read_bytes() == b"head" + (tmp_path / "theirs").read_bytes()
