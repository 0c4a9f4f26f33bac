"""LanceDB's own library: tables in a folder."""

import datetime
import decimal

import numpy as np
import pytest
import sync_tools as tools
from database_tests import DatabaseTests, backwards, written

from migrate.errors import StoreError
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.testing.stores import example_documents, example_vectors

lancedb = pytest.importorskip("lancedb")
pa = pytest.importorskip("pyarrow")
from lancedb import index as kinds  # noqa: E402

pytestmark = pytest.mark.slow


def column(vectors, kind=None):
    kind = kind or pa.float32()
    values = pa.array(vectors.reshape(-1).astype(kind.to_pandas_dtype()), kind)
    return pa.FixedSizeListArray.from_arrays(values, vectors.shape[1])


class TestLance(DatabaseTests):
    maker = tools.Lance()

    def filter_by(self, name, value):
        return f"{name} = {value}"


def awkward(folder, kind, count=600, dim=16):
    random = np.random.default_rng(5)
    vectors = random.normal(size=(count, dim)).astype(kind.to_pandas_dtype())
    there = np.arange(count) % 9 != 4
    whole = pa.FixedSizeListArray.from_arrays(
        pa.array(vectors.reshape(-1), kind), type=pa.list_(kind, dim), mask=pa.array(~there)
    )
    other = column(random.normal(size=(count, 3)).astype(np.float32))
    deep = pa.struct([("n", pa.int64()), ("l", pa.list_(pa.struct([("s", pa.string())])))])
    moment = datetime.datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=datetime.UTC)
    columns = {
        "title": pa.array([None if row % 5 == 0 else f"naïve 🦆 {row}" for row in range(count)]),
        "key": pa.array([row * 7919 % count for row in range(count)], pa.int32()),
        "deep": pa.array(
            [None if row % 3 else {"n": row, "l": [{"s": None}, {"s": "x"}]} for row in range(count)], deep
        ),
        "time": pa.array([moment] * count, pa.timestamp("us", "UTC")),
        "price": pa.array([decimal.Decimal("1.25")] * count, pa.decimal128(10, 2)),
        "blob": pa.array([bytes([0, 255, row % 256]) for row in range(count)], pa.binary()),
        "tags": pa.array([[] if row % 2 else ["a", None] for row in range(count)], pa.list_(pa.string())),
        "small": pa.array([row % 100 for row in range(count)], pa.int8()),
        "half": pa.array([0.5] * count, pa.float16()),
        "other": other,
        "vec": whole,
    }
    fields = [
        pa.field(name, values.type, metadata={"note": "kept"} if name in ("vec", "tags") else None)
        for name, values in columns.items()
    ]
    table = pa.table(list(columns.values()), schema=pa.schema(fields, metadata={"owner": "ann"}))
    return lancedb.connect(str(folder)).create_table("awkward", table, on_bad_vectors="null")


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_every_field_of_every_row_goes_through(kind, tmp_path):
    table = awkward(tmp_path / "old", kind)
    table.create_index("key", config=kinds.BTree())
    with pytest.raises(StoreError, match="other, vec"):
        open_store(f"lancedb:{tmp_path}/old")
    store = open_store(f"lancedb:{tmp_path}/old#awkward?vector=vec&text=title")
    expected = table.to_arrow().combine_chunks()
    has = np.array(expected["vec"].is_valid())
    assert (store.info.count, store.info.dim) == (int(has.sum()), 16)
    rows = {str(key): row for row, key in enumerate(expected["key"].to_pylist())}
    old = read_all(store.scan())
    values = [expected["vec"][rows[doc_id]].as_py() for doc_id in old.ids]
    assert np.array_equal(old.vectors, np.array(values, np.float32))
    document = next(store.documents())
    record = expected.slice(rows[document.id], 1).drop_columns(["vec", "title"]).to_pylist()[0]
    assert document.metadata == record

    vectors = np.random.default_rng(6).normal(size=(store.info.count, 5)).astype(np.float32)
    _, writer = written(store, f"lancedb:{tmp_path}/new#renamed", tmp_path / "new", vectors)
    made = lancedb.connect(str(tmp_path / "new")).open_table("renamed")
    found = made.to_arrow().combine_chunks()
    others, expected_others = (one.drop_columns(["vec"]) for one in (found, expected))
    assert others.equals(expected_others)
    fields = others.schema.remove_metadata()
    assert fields.equals(expected_others.schema.remove_metadata(), check_metadata=True)
    assert found.schema.metadata[b"owner"] == b"ann" and found.schema.field("vec").metadata == {b"note": b"kept"}
    assert found.schema.field("vec").type == pa.list_(kind, 5)
    assert np.array_equal(np.array(found["vec"].is_valid()), has)
    places = {doc_id: place for place, doc_id in enumerate(old.ids)}
    for row in np.flatnonzero(has)[::50]:
        exact = vectors[places[str(expected["key"][row].as_py())]].astype(kind.to_pandas_dtype())
        assert np.array_equal(np.array(found["vec"][row].as_py(), exact.dtype), exact)
    assert [index.index_type for index in made.list_indices()] == ["BTree"]
    assert any("half" in remark for remark in writer.remarks) == (kind == pa.float16())
    assert open_store(tmp_path / "new").info.details["vector"] == "vec"


@pytest.mark.parametrize(
    ("config", "lossy"),
    [
        (kinds.IvfPq(distance_type="cosine", num_partitions=2, num_sub_vectors=4), True),
        (kinds.HnswSq(distance_type="dot", num_partitions=1, m=12, ef_construction=90), True),
        (kinds.IvfFlat(distance_type="l2", num_partitions=2), False),
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
    _, writer = written(store, tmp_path / "new", tmp_path / "new", np.ascontiguousarray(vectors[:, :8]))
    made = lancedb.connect(str(tmp_path / "new")).open_table("docs")
    (new,) = made.list_indices()
    assert (new.index_type, new.name) == (old.index_type, old.name)
    assert made.index_stats(new.name).distance_type == table.index_stats(old.name).distance_type
    compression = [index.index_details.get("compression", {}).get("num_sub_vectors") for index in (old, new)]
    assert compression[0] == compression[1]
    assert old.index_details.get("hnsw_index_config") == new.index_details.get("hnsw_index_config")
    assert any("lossy" in remark for remark in writer.remarks) == lossy


def test_a_version_is_read_whatever_comes_after_it(tmp_path):
    location = tools.Lance().make(tmp_path / "old", backwards(example_documents(), example_vectors()))
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
    reason = r"^lancedb:.*/old#docs\?vector=vector: there are vectors of column other with NaN"
    with pytest.raises(StoreError, match=reason):
        written(store, tmp_path / "new", tmp_path / "new", read_all(store.scan()).vectors)
