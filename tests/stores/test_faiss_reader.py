import os
from dataclasses import asdict

import faiss
import numpy as np
import pytest
from faiss_tools import COUNT, DIM, build, read, save

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.stores import open_store
from migrate.stores.faiss import reader

OWN_LABELS = np.random.default_rng(1).permutation(COUNT) * 5 - 40
SUPPORTED = [
    "Flat",
    "IVF16,Flat",
    "IVF300,Flat",
    "IVF8_HNSW8,Flat",
    "HNSW12,Flat",
    "IDMap,Flat",
    "IDMap2,Flat",
    "IDMap,IVF16,Flat",
    "IDMap2,HNSW12,Flat",
]


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("factory", SUPPORTED)
def test_every_vector_is_read_exactly_under_its_label(factory, metric, vectors, tmp_path):
    labels = OWN_LABELS if factory.startswith(("IDMap", "IVF")) else None
    save(build(factory, vectors, metric=metric, labels=labels), tmp_path)
    store = open_store(tmp_path)
    ids, found = read(store)
    row_of = {str(label): row for row, label in enumerate(range(COUNT) if labels is None else labels)}
    assert len(ids) == COUNT
    assert np.array_equal(found, vectors[[row_of[doc_id] for doc_id in ids]])
    assert (store.info.count, store.info.dim, store.info.metric) == (COUNT, DIM, metric)
    assert store.info.details["factory"] == factory
    rows = np.array([399, 0, 1, 2, 57, 57, 200, 3])
    batch = store.get(rows)
    assert list(batch.ids) == [ids[row] for row in rows]
    assert np.array_equal(batch.vectors, found[rows])


def test_batches_are_aligned_contiguous_float32_in_two_reused_buffers(vectors, tmp_path):
    save(build("Flat", vectors), tmp_path)
    batches = open_store(tmp_path).scan(batch_size=100)
    first = next(batches).vectors
    address = first.ctypes.data
    assert first.dtype == np.float32
    assert first.flags.c_contiguous
    assert first.flags.aligned
    assert next(batches).vectors.ctypes.data != address  # is read meanwhile
    assert next(batches).vectors.ctypes.data == address


def test_a_row_that_is_not_there_is_refused(vectors, tmp_path):
    save(build("Flat", vectors), tmp_path)
    with pytest.raises(IndexError):
        open_store(tmp_path).get(np.array([COUNT]))


def test_removed_ids_are_gone_and_the_others_stay(vectors, tmp_path):
    index = build("IVF16,Flat", vectors, labels=np.arange(COUNT) * 3)
    index.remove_ids(np.arange(0, 600, 6, dtype=np.int64))
    save(index, tmp_path)
    ids, found = read(open_store(tmp_path))
    assert len(ids) == COUNT - 100
    assert not {"0", "6", "594"} & set(ids)
    assert np.array_equal(found, vectors[[int(doc_id) // 3 for doc_id in ids]])


@pytest.mark.parametrize("kind", ["NoMap", "Array", "Hashtable"])
def test_any_direct_map_is_passed_over(kind, vectors, tmp_path):
    index = build("IVF16,Flat", vectors)
    index.set_direct_map_type(getattr(faiss.DirectMap, kind))
    save(index, tmp_path)
    ids, _ = read(open_store(tmp_path))
    assert sorted(map(int, ids)) == list(range(COUNT))


def test_settings_are_told(vectors, tmp_path):
    ivf = build("IVF16,Flat", vectors)
    ivf.nprobe = 5
    hnsw = build("IDMap2,HNSW12,Flat", vectors, labels=OWN_LABELS)
    faiss.downcast_index(hnsw.index).hnsw.efSearch = 99
    save(ivf, tmp_path / "ivf")
    save(hnsw, tmp_path / "hnsw")
    assert open_store(tmp_path / "ivf").info.details.items() >= {"nlist": 16, "nprobe": 5}.items()
    info = open_store(tmp_path / "hnsw").info
    assert info.details.items() >= {"M": 12, "efSearch": 99, "efConstruction": 40, "fourcc": "IxM2"}.items()
    assert info.index_type == "IndexIDMap2(IndexHNSWFlat)"


@pytest.mark.parametrize("factory", ["Flat", "IDMap2,Flat", "HNSW8,Flat"])
def test_other_metrics_are_refused_by_name(factory, tmp_path):
    save(faiss.index_factory(DIM, factory, faiss.METRIC_Canberra), tmp_path)
    with pytest.raises(UnsupportedStoreError, match="Canberra"):
        open_store(tmp_path)


def test_a_file_cut_after_opening_is_an_error_and_no_crash(vectors, tmp_path):
    path = save(build("Flat", vectors), tmp_path)
    store = open_store(tmp_path)
    batches = store.scan(batch_size=100)
    next(batches)
    os.truncate(path, 45 + 150 * DIM * 4)
    with pytest.raises(StoreError, match="cut while it was read"):
        list(batches)
    with pytest.raises(StoreError, match="changed while it was read"):
        store.get(np.array([0]))


def test_a_file_that_changes_while_it_is_read_is_noticed_at_the_end(vectors, tmp_path):
    path = save(build("Flat", vectors), tmp_path)
    batches = open_store(tmp_path).scan(batch_size=100)
    next(batches)
    with path.open("r+b") as file:
        file.seek(45)
        file.write(b"\0\0\0\0")
    os.utime(path, ns=(1, 1))
    with pytest.raises(StoreError, match="changed while it was read"):
        list(batches)


def test_a_file_of_a_sharded_ivf_index_is_read_whole_and_called_a_shard(vectors, tmp_path):
    whole = build("IVF16,Flat", vectors)
    faiss.shard_ivf_index_centroids(whole, 4, str(tmp_path / "shard.%d.index"), None)
    for number in range(4):
        store = open_store(tmp_path / f"shard.{number}.index")
        ids, rows = read(store)
        assert np.array_equal(rows, vectors[[int(doc_id) for doc_id in ids]])
        assert len(set(ids)) == COUNT
        assert any("4 of 16 centroids" in note for note in store.info.notes)


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("count", [0, COUNT])
def test_a_flat_index_is_known_without_another_process_as_faiss_knows_it(count, metric, vectors, tmp_path, monkeypatch):
    path = save(build("Flat", vectors[:count], metric=metric), tmp_path)
    found, labels, added, places = reader.FaissFile(path)._look()
    monkeypatch.setattr(reader, "run_job", None)
    file = reader.FaissFile(path)
    facts = {
        "chain": file.chain,
        "dim": file.dim,
        "count": file.count,
        "exact": file.exact,
        "recipe": asdict(file.recipe),
    }
    assert facts == {name: found[name] for name in facts}
    assert file.metric == metric
    assert labels is file.labels is added is file.added is None
    if count:  # of an empty one FAISS names no place
        assert places.tolist() == [[file._offsets[0], count]]


@pytest.mark.parametrize("spoil", [b"", b"\0", b"\0" * DIM * 4])
def test_a_flat_index_of_another_size_than_it_says_is_left_to_faiss(spoil, vectors, tmp_path):
    path = save(build("Flat", vectors), tmp_path)
    content = path.read_bytes()
    path.write_bytes(content + spoil if spoil else content[:-1])
    with pytest.raises(StoreError, match=r"FAISS|the index ends at byte"):
        reader.FaissFile(path)
