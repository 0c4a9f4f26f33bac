"""LanceDB's own library: tables in a folder."""

import numpy as np
import pytest
from database_tests import DatabaseTests, backwards, written
from kind_base import vectors_of
from kinds import kind_class

from migrate.errors import StoreError, UsageError
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.testing.stores import example_documents, example_vectors

Lance = kind_class("lancedb")
lancedb = pytest.importorskip("lancedb")
pa = pytest.importorskip("pyarrow")
from lancedb import index as indexes  # noqa: E402

pytestmark = pytest.mark.slow


def column(vectors, kind=None):
    kind = kind or pa.float32()
    values = pa.array(vectors.reshape(-1).astype(kind.to_pandas_dtype()), kind)
    return pa.FixedSizeListArray.from_arrays(values, vectors.shape[1])


LEGACY = {"new_table_data_storage_version": "legacy"}
"""Options by which the client writes files of the format before 2.0."""


class LegacyLance(Lance):
    """Tables in files of the format before 2.0."""

    def create(self, client, name, records, metric):
        rows = pa.Table.from_pylist([{**d.metadata, "id": d.id, "text": d.text} for d, _ in records.values()])
        if not records:
            rows = pa.table({"id": pa.array([], pa.string()), "text": pa.array([], pa.string())})
        vectors = np.array(vectors_of(records), np.float32)
        rows = rows.append_column("vector", column(vectors))
        client.create_table(name, rows, mode="overwrite", storage_options=LEGACY)


class TestLance(DatabaseTests):
    maker = Lance()

    def filter_by(self, name, value):
        return f"{name} = {value}"


class TestLegacy(TestLance):
    maker = LegacyLance()


@pytest.mark.parametrize("has_ids", [True, False])
def test_rows_of_legacy_files_are_read_by_their_positions(has_ids, tmp_path):
    vectors = example_vectors(300)
    rows = pa.table({"title": [f"t{row}" for row in range(300)], "vector": column(vectors)})
    if has_ids:
        rows = rows.append_column("id", pa.array([f"{row * 7 % 300:03d}" for row in range(300)]))
    client = lancedb.connect(str(tmp_path / "old"))
    table = client.create_table("docs", rows, storage_options=LEGACY)
    table.delete("title = 't7'")  # the positions of the rows after it are others now
    with pytest.raises(RuntimeError, match="v1 files"):
        table.take_offsets([0]).to_arrow()
    store = open_store(tmp_path / "old")
    expected = {f"t{row}": vectors[row] for row in range(300) if row != 7}
    assert store.info.count == len(expected)
    for rows in (np.array([200, 3, 200, 77]), np.arange(store.info.count)):
        titles = [document.metadata.get("title", document.text) for document in store.documents(rows)]
        assert np.array_equal(store.get(rows).vectors, np.array([expected[title] for title in titles]))
    assert sorted(titles) == sorted(expected)
    location = f"lancedb:{tmp_path}/old#docs"
    if has_ids:
        with pytest.raises(UsageError, match=r"format before 2\.0.*translate"):
            open_store(location).rows.fields.refuse("vector2", 8)


def test_doubles_and_rows_without_a_vector_stay_what_they_are(tmp_path):
    vectors = np.random.default_rng(5).normal(size=(60, 16))
    has = np.arange(60) % 9 != 4
    whole = pa.FixedSizeListArray.from_arrays(
        pa.array(vectors.reshape(-1)), type=pa.list_(pa.float64(), 16), mask=pa.array(~has)
    )
    old = pa.table(
        {
            "title": [None if row % 5 == 0 else f"naïve 🦆 {row}" for row in range(60)],
            "key": pa.array([row * 7 % 60 for row in range(60)], pa.int32()),
            "other": column(example_vectors(dim=3)),
            "vec": whole,
        }
    )
    lancedb.connect(str(tmp_path / "old")).create_table("awkward", old, on_bad_vectors="null")
    with pytest.raises(StoreError, match="other, vec"):
        open_store(f"lancedb:{tmp_path}/old")
    store = open_store(f"lancedb:{tmp_path}/old#awkward?vector=vec&text=title")
    found = read_all(store.scan())
    rows = [int(doc_id) * 43 % 60 for doc_id in found.ids]  # 43 undoes 7
    assert np.array_equal(found.vectors, vectors[rows].astype(np.float32))

    new = example_vectors(store.info.count, 5)
    _, finished = written(store, f"lancedb:{tmp_path}/new#renamed", tmp_path / "new", new)
    made = lancedb.connect(str(tmp_path / "new")).open_table("renamed").to_arrow().combine_chunks()
    assert made.drop_columns(["vec"]).equals(old.drop_columns(["vec"]).combine_chunks())
    assert made.schema.field("vec").type == pa.list_(pa.float64(), 5) and finished.remarks == ()
    assert np.array_equal(np.array(made["vec"].is_valid()), has)
    assert np.array_equal(np.array([made["vec"][row].as_py() for row in rows]), new.astype(float))
    assert open_store(tmp_path / "new").info.details["vector"] == "vec"


@pytest.mark.parametrize(
    ("config", "lossy"),
    [
        (indexes.IvfPq(distance_type="cosine", num_partitions=2, num_sub_vectors=4), True),
        (indexes.HnswSq(distance_type="dot", num_partitions=1, m=12, ef_construction=90), True),
        (indexes.IvfFlat(distance_type="l2", num_partitions=2), False),
    ],
    ids=["IvfPq", "HnswSq", "IvfFlat"],
)
def test_the_index_is_read_and_made_again(config, lossy, tmp_path):
    vectors = np.random.default_rng(7).normal(size=(600, 16)).astype(np.float32)
    table = lancedb.connect(str(tmp_path / "old")).create_table(
        "docs", pa.table({"id": [f"{row}" for row in range(600)], "vector": column(vectors)})
    )
    table.create_index("vector", config=config)
    (old,) = table.list_indices()
    store = open_store(tmp_path / "old")
    assert store.info.index_type == old.index_type
    assert store.info.metric == ("l2" if config.distance_type == "l2" else "ip")
    _, finished = written(store, tmp_path / "new", tmp_path / "new", np.ascontiguousarray(vectors[:, :8]))
    made = lancedb.connect(str(tmp_path / "new")).open_table("docs")
    (new,) = made.list_indices()
    assert (new.index_type, new.name) == (old.index_type, old.name)
    assert made.index_stats(new.name).distance_type == table.index_stats(old.name).distance_type
    compression = [index.index_details.get("compression", {}).get("num_sub_vectors") for index in (old, new)]
    assert compression[0] == compression[1]
    assert old.index_details.get("hnsw_index_config") == new.index_details.get("hnsw_index_config")
    assert any("lossy" in remark for remark in finished.remarks) == lossy


def test_a_version_is_read_whatever_comes_after_it(tmp_path):
    location = Lance().make(tmp_path / "old", backwards(example_documents(), example_vectors()))
    table = lancedb.connect(str(tmp_path / "old")).open_table("docs")
    first = table.version
    store = open_store(location)
    before = store.snapshot()
    table.delete("id = 'doc-3'")
    assert len(read_all(store.scan())) == 60
    with pytest.raises(StoreError, match="changed"):
        store.check_unchanged(before)
    assert open_store(location).info.count == 59
    assert open_store(f"{location}?version={first}").info.count == 60


def test_a_table_without_ids_is_numbered(tmp_path):
    vectors = example_vectors()
    lancedb.connect(str(tmp_path)).create_table(
        "docs", pa.table({"body": [f"t{row}" for row in range(60)], "vector": column(vectors)})
    )
    store = open_store(tmp_path)
    rows = [int(doc_id) for doc_id in read_all(store.scan()).ids]
    assert sorted(rows) == list(range(60)) and np.array_equal(read_all(store.scan()).vectors, vectors[rows])
    assert [document.text for document in store.documents()] == [f"t{row}" for row in rows]
    assert any("numbered" in note for note in store.info.notes)


def test_nan_in_another_vector_is_refused_by_name(tmp_path):
    """The client would make it null."""
    vectors = example_vectors(dim=12)
    other = vectors.copy()
    other[7, 3] = np.nan
    rows = pa.table({"id": [f"{row}" for row in range(60)], "vector": column(vectors), "other": column(other[:, :5])})
    lancedb.connect(str(tmp_path / "old")).create_table("docs", rows)
    store = open_store(f"lancedb:{tmp_path}/old#docs?vector=vector")
    reason = r"^lancedb:.*/old#docs\?vector=vector: .*column other with NaN"
    with pytest.raises(StoreError, match=reason):
        written(store, tmp_path / "new", tmp_path / "new", read_all(store.scan()).vectors)


@pytest.mark.parametrize("ids", [["a", None, "c"], [2**60 + 1, None, 3]])
def test_a_row_without_an_id_is_told(ids, tmp_path):
    rows = pa.table({"id": pa.array(ids), "vector": column(example_vectors(3))})
    lancedb.connect(str(tmp_path / "old")).create_table("docs", rows)
    store = open_store(f"lancedb:{tmp_path / 'old'}#docs")
    with pytest.raises(StoreError, match="a row has no id in column id"):
        store.ids(range(3))


def test_whole_numbers_of_64_bits_are_ids_to_the_last_digit(tmp_path):
    ids = [2**62 + 1, 2**62, -5]
    rows = pa.table({"id": pa.array(ids), "vector": column(example_vectors(3))})
    lancedb.connect(str(tmp_path / "old")).create_table("docs", rows)
    assert open_store(f"lancedb:{tmp_path / 'old'}#docs").ids(range(3)) == sorted(map(str, ids))
