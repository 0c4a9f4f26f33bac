import faiss
import numpy as np
import pytest
from faiss_tools import COUNT, DIM, build, digest, read, rewrite, save, serialize

from migrate.errors import OutputError, StoreError, VectorError
from migrate.stores import open_store
from migrate.stores.faiss.build import build_index
from migrate.stores.faiss.recipe import Recipe
from migrate.work.rows import Rows
from migrate.work.shards import Shard
from migrate.work.writer import write_rows

LABELS = np.random.default_rng(3).permutation(COUNT) * 7 - 100
FLAT = [("Flat", None), ("IDMap,Flat", LABELS), ("IDMap2,Flat", LABELS)]
BUILT = [
    ("IVF16,Flat", None),
    ("IVF16,Flat", LABELS),
    ("IVF8_HNSW8,Flat", LABELS),
    ("HNSW12,Flat", None),
    ("IDMap,IVF16,Flat", LABELS),
    ("IDMap2,HNSW12,Flat", LABELS),
]


def halve(vectors):
    return vectors[:, : DIM // 2] * 2


@pytest.fixture
def new(tmp_path):
    (tmp_path / "new").mkdir()
    return tmp_path / "new"


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize(("factory", "labels"), FLAT)
def test_flat_output_is_what_faiss_itself_would_write(factory, labels, metric, vectors, tmp_path):
    save(build(factory, vectors, metric=metric, labels=labels), tmp_path / "old", "my store.faiss")
    rewrite(open_store(tmp_path / "old"), tmp_path / "new", halve, DIM // 2)
    expected = build(factory, np.ascontiguousarray(halve(vectors)), metric=metric, labels=labels)
    assert (tmp_path / "new" / "my store.faiss").read_bytes() == serialize(expected)
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["my store.faiss"]


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize(("factory", "labels"), BUILT)
def test_built_output_holds_the_same_ids_with_the_new_vectors(factory, labels, metric, vectors, tmp_path):
    save(build(factory, vectors, metric=metric, labels=labels), tmp_path / "old")
    old = open_store(tmp_path / "old")
    new, again = (rewrite(old, tmp_path / name, halve, DIM // 2) for name in ("new", "again"))
    assert digest(tmp_path / "new") == digest(again.folder)
    old_vectors = dict(zip(*read(old), strict=True))
    ids, found = read(new)
    assert set(ids) == set(old_vectors)
    assert np.array_equal(found, halve(np.stack([old_vectors[doc_id] for doc_id in ids])))
    assert new.info.metric == metric
    for name in ("factory", "nlist", "nprobe", "M", "efConstruction", "efSearch"):
        assert new.info.details.get(name) == old.info.details.get(name)
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["index.faiss"]
    if metric == "l2":
        index = faiss.read_index(str(tmp_path / "new" / "index.faiss"))
        labels = np.arange(COUNT) if labels is None else labels
        assert (index.search(np.ascontiguousarray(halve(vectors)), 1)[1][:, 0] == labels).mean() > 0.97


@pytest.mark.parametrize("factory", ["HNSW8,SQ8", pytest.param("OPQ4_8,IVF4,PQ4x4", marks=pytest.mark.slow)])
def test_an_index_of_codes_is_built_the_same_every_time(factory, vectors, tmp_path):
    save(build(factory, vectors), tmp_path / "old")
    store = open_store(tmp_path / "old")
    rewrite(store, tmp_path / "one")
    rewrite(store, tmp_path / "two")
    assert digest(tmp_path / "one") == digest(tmp_path / "two")


def test_settings_that_are_not_defaults_are_kept(vectors, tmp_path):
    ivf = build("IVF16,Flat", vectors)
    ivf.nprobe = 7
    hnsw = faiss.IndexHNSWFlat(DIM, 9, faiss.METRIC_INNER_PRODUCT)
    hnsw.hnsw.efConstruction = 55
    hnsw.hnsw.efSearch = 66
    hnsw.add(vectors)
    save(ivf, tmp_path / "ivf")
    save(hnsw, tmp_path / "hnsw")
    for name in ("ivf", "hnsw"):
        rewrite(open_store(tmp_path / name), tmp_path / f"new {name}")
    new_ivf, new_hnsw = (faiss.read_index(str(tmp_path / f"new {name}/index.faiss")) for name in ("ivf", "hnsw"))
    assert (new_ivf.nlist, new_ivf.nprobe) == (16, 7)
    assert (new_hnsw.hnsw.efConstruction, new_hnsw.hnsw.efSearch, new_hnsw.hnsw.nb_neighbors(1)) == (55, 66, 9)
    assert new_hnsw.metric_type == faiss.METRIC_INNER_PRODUCT


def test_nlist_shrinks_to_the_number_of_vectors(vectors, tmp_path):
    index = build("IVF16,Flat", vectors)
    index.remove_ids(np.arange(10, COUNT, dtype=np.int64))
    save(index, tmp_path / "old")
    new = rewrite(open_store(tmp_path / "old"), tmp_path / "new")
    assert new.info.count == 10
    assert new.info.details["nlist"] == 10


@pytest.mark.parametrize("factory", ["Flat", "IVF16,Flat", "HNSW8,Flat"])
@pytest.mark.parametrize("size", [COUNT - 1, COUNT + 1])
def test_fewer_or_more_rows_than_documents_are_refused(factory, size, vectors, tmp_path, new):
    save(build(factory, vectors), tmp_path / "old")
    writer = open_store(tmp_path / "old").destination(new, DIM)
    with pytest.raises(StoreError, match=f"{COUNT} vectors"):
        write_rows(writer, [(0, np.tile(vectors, (2, 1))[:size])], COUNT)


def test_rows_of_another_dimension_are_refused(vectors, tmp_path, new):
    save(build("Flat", vectors), tmp_path / "old")
    writer = open_store(tmp_path / "old").destination(new, DIM + 1)
    with pytest.raises(VectorError, match=f"dimension {DIM + 1}"):
        write_rows(writer, [(0, vectors)], COUNT)


@pytest.mark.parametrize("factory", ["IVF16,Flat", "IVF8,SQ8"])
def test_nan_rows_do_not_vanish_silently_from_lists(factory, vectors, tmp_path, new):
    save(build(factory, vectors), tmp_path / "old")
    vectors[3, 3] = np.nan
    with pytest.raises(StoreError, match="NaN"):
        write_rows(open_store(tmp_path / "old").destination(new, DIM), [(0, vectors)], COUNT)


@pytest.mark.parametrize("factory", ["Flat", "IDMap2,Flat", "HNSW8,Flat"])
def test_an_empty_store_is_read_and_written_as_one(factory, tmp_path):
    save(faiss.index_factory(DIM, factory), tmp_path / "old")
    old = open_store(tmp_path / "old")
    assert old.info.count == old.snapshot().count == 0
    assert list(old.scan()) == []
    new = rewrite(old, tmp_path / "new", dim=5)
    assert (new.info.count, new.info.dim) == (0, 5)


def test_rows_reach_their_place_in_the_file_as_they_are_written(vectors, tmp_path, new):
    save(build("Flat", vectors), tmp_path / "old")
    writer = open_store(tmp_path / "old").destination(new, DIM)
    writer.put(Shard(0, 100), [vectors[:60], vectors[60:100]])
    assert (new / "index.faiss").read_bytes()[45:][: 100 * DIM * 4] == vectors[:100].tobytes()


@pytest.mark.parametrize("factory", ["Flat", "HNSW8,Flat", "SQ8"])
def test_a_full_disk_is_an_input_output_error(factory, vectors, tmp_path, new):
    save(build(factory, vectors), tmp_path / "old")
    (new / "index.faiss").symlink_to("/dev/full")
    with pytest.raises(OutputError, match="free some space"):
        write_rows(open_store(tmp_path / "old").destination(new, DIM), [(0, vectors)], COUNT)


def test_a_large_index_is_built_with_no_more_threads_than_the_user_says(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    np.zeros((50_000, 2), np.float32).tofile(tmp_path / "vectors")
    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(2)
        rows = Rows([tmp_path / "vectors"], np.array([[0, 0, 50_000]]), 2)
        build_index(tmp_path / "index.faiss", Recipe("Flat"), faiss.METRIC_L2, rows, None)
        assert faiss.omp_get_max_threads() == 1
    finally:
        faiss.omp_set_num_threads(before)
    assert faiss.read_index(str(tmp_path / "index.faiss")).ntotal == 50_000
