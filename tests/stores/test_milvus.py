"""Milvus's own client, on folders of milvus-lite and on its server over gRPC.

No server of Milvus is among the packages that tests may install. Milvus-lite 3 speaks its protocol to the real client,
with collections, aliases, partitions, functions, filters and iterators of its own; `docs/stores.md` says what it lacks.
"""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from database_tests import DatabaseTests, ServerTests, backwards, name_of, store_of_lines, written
from kinds import kind_class
from milvus_server import client_of, serving

from migrate.cli.main import run
from migrate.errors import StoreError, UnsupportedStoreError, UsageError
from migrate.steps.switch import forget, rollback, switch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.testing.stores import example_vectors
from migrate.vectors import Document

MILVUS = kind_class("milvus")()
pymilvus = pytest.importorskip("pymilvus")

pytestmark = pytest.mark.slow


class TestFolder(DatabaseTests):
    maker = MILVUS

    def filter_by(self, name, value):
        return f"{name} == {value}"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("server")) as url:
        yield url


class TestServer(ServerTests):
    serves_threads = False  # a folder is asked by the same client, in threads too

    @pytest.fixture(autouse=True)
    def _on(self, url):
        self.url, self.server = url, f"milvus:{url}"

    def make_store(self, folder, documents, vectors, metric):
        return MILVUS.make(self.url, backwards(documents, vectors), metric, name_of(folder))


COUNT = 60


def awkward(client, name="awkward"):
    """Fields of all sorts with nulls and defaults, other vectors, a function, dynamic fields, and a partition."""
    kinds = pymilvus.DataType
    schema = client.create_schema(enable_dynamic_field=True)
    schema.add_field("key", kinds.INT64, is_primary=True)
    schema.add_field("body", kinds.VARCHAR, max_length=1_000, enable_analyzer=True, enable_match=True)
    schema.add_field("dense", kinds.FLOAT_VECTOR, dim=8)
    schema.add_field("other", kinds.FLOAT_VECTOR, dim=3)
    schema.add_field("sparse", kinds.SPARSE_FLOAT_VECTOR)
    schema.add_field("words", kinds.SPARSE_FLOAT_VECTOR)
    schema.add_field("small", kinds.INT8, nullable=True, default_value=7)
    schema.add_field("price", kinds.DOUBLE)
    schema.add_field("ratio", kinds.FLOAT, nullable=True)
    schema.add_field("flag", kinds.BOOL)
    schema.add_field("time", kinds.TIMESTAMPTZ)
    schema.add_field("where", kinds.GEOMETRY, nullable=True)
    schema.add_field("note", kinds.VARCHAR, max_length=100, nullable=True)
    schema.add_field("deep", kinds.JSON, nullable=True)
    schema.add_field("tags", kinds.ARRAY, element_type=kinds.VARCHAR, max_capacity=5, max_length=20, nullable=True)
    function = pymilvus.Function(
        name="bm25", function_type=pymilvus.FunctionType.BM25, input_field_names=["body"], output_field_names=["words"]
    )
    schema.add_function(function)
    indices = client.prepare_index_params()
    # milvus-lite hears of parameters in this form alone
    made_with = {"params": {"M": 12, "efConstruction": 40}}
    indices.add_index("dense", index_type="HNSW", metric_type="COSINE", params=made_with)
    indices.add_index("other", index_type="IVF_FLAT", metric_type="L2", params={"params": {"nlist": 4}})
    indices.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
    indices.add_index("words", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    indices.add_index("price", index_type="INVERTED")
    client.create_collection(name, schema=schema, index_params=indices, properties={"owner": "ann"})
    client.create_partition(name, "archive")
    client.create_partition(name, "empty")
    for partition, first in (("_default", 0), ("archive", COUNT // 2)):
        client.insert(name, [record(row) for row in range(first, first + COUNT // 2)], partition_name=partition)


def record(row):
    vectors = np.random.default_rng(row).normal(size=11).astype(np.float32)
    found = {
        "key": 7 * row - 20,
        "body": f"naïve 🦆 {row}",
        "dense": vectors[:8].tolist(),
        "other": vectors[8:].tolist(),
        "sparse": {row: 0.5, 1_000: 1.25},
        "price": row / 3,
        "ratio": None if row % 2 else row / 7,
        "flag": bool(row % 2),
        "time": f"2024-02-29T12:30:{row:02d}.000005Z",
        "where": None if row % 3 else f"POINT ({row} 2.5)",
        "note": None if row % 3 else 'quote"s\n',
        "deep": None if row % 5 == 0 else {"list": [1, {"k": [True, 2.5, None]}], "big": 2**53 + 1},
        "tags": ["a", "路径"] if row % 4 else None,
        "colour": "red",
    }
    return {**found, **({"small": row} if row % 2 else {}), **({} if row % 6 else {"extra": {"k": [1, None]}})}


def whole(client, name):
    """All that a collection holds, by its own client: records by partition and key, schema, indexes, properties."""
    facts = client.describe_collection(name)
    fields = {field["name"]: {k: str(v) for k, v in field.items()} for field in facts["fields"]}
    indexes = {
        index: {k: v for k, v in client.describe_index(name, index).items() if "rows" not in k}
        for index in client.list_indexes(name)
    }
    client.load_collection(name)
    rows = {
        partition: {
            row["key"]: {k: v if isinstance(v, int | float | dict | str | None) else list(v) for k, v in row.items()}
            for row in client.query(name, filter="", limit=1_000, output_fields=["*"], partition_names=[partition])
        }
        for partition in client.list_partitions(name)
    }
    settings = {key: facts[key] for key in ("enable_dynamic_field", "properties", "consistency_level_name")}
    return rows, fields, indexes, settings, str(facts["functions"])


@pytest.mark.parametrize("kind", ["folder", "server"])
def test_every_field_of_every_record_goes_through(kind, url, tmp_path):
    place, new = (tmp_path / "old", tmp_path / "new") if kind == "folder" else (url, url)
    with client_of(place) as client:
        awkward(client)
        expected = whole(client, "awkward")
    with pytest.raises(StoreError, match="dense, other"):
        open_store(f"milvus:{place}#awkward")
    store = open_store(f"milvus:{place}#awkward?vector=dense&text=body")
    assert (store.info.count, store.info.dim, store.info.details["distance"]) == (COUNT, 8, "COSINE")
    assert "other, sparse, words" in " ".join(store.info.notes)
    dense = {str(record(row)["key"]): record(row)["dense"] for row in range(COUNT)}
    old = read_all(store.scan())
    assert np.array_equal(old.vectors, np.array([dense[doc_id] for doc_id in old.ids], np.float32))
    document = store.records.documents(["-20"])["-20"]
    assert document.text == "naïve 🦆 0" and document.metadata["extra"] == {"k": [1, None]}

    vectors = np.random.default_rng(6).normal(size=(COUNT, 5)).astype(np.float32)
    made, finished = written(store, f"milvus:{new}#renamed", tmp_path / "new", vectors)
    assert finished.remarks == ()
    assert np.array_equal(read_all(made.scan()).vectors, vectors)
    with client_of(new) as client:
        found = whole(client, "renamed")
    assert found[1]["dense"].pop("params") == "{'dim': 5}" and expected[1]["dense"].pop("params") == "{'dim': 8}"
    by_key = dict(zip(map(int, made.ids(range(COUNT))), vectors, strict=True))
    for partition, rows in found[0].items():
        for key, row in rows.items():
            assert row.pop("dense") == by_key[key].tolist() and expected[0][partition][key].pop("dense")
    assert found[2]["dense"]["params"] == {"M": 12, "efConstruction": 40}
    properties = found[3]["properties"]
    assert properties.pop("lead-migrate.vector") == "dense" and properties.pop("lead-migrate.text") == "body"
    assert found == expected and list(found[0]) == ["_default", "archive", "empty"]


def test_new_vectors_leave_all_else_as_it_is(url, tmp_path):
    for place in (tmp_path / "old", url):
        with client_of(place) as client:
            awkward(client, "puts")
            expected = whole(client, "puts")
        store = open_store(f"milvus:{place}#puts?vector=dense&text=body")
        new = example_vectors(3)
        assert store.records.put(["-20", str(7 * 40 - 20), "nobody"], new) == 2
        nearest = store.searcher().search(new, 1)[1]
        assert nearest.ids == (str(7 * 40 - 20),) and abs(nearest.scores[0] - 1) < 1e-6, "a cosine"
        assert np.array_equal(store.records.vectors(["-20"]).vectors, new[:1])
        store.driver.client.close()
        if place != url:
            store.driver._end()
        del store
        with client_of(place) as client:
            found = whole(client, "puts")
        for partition, key, row in (("_default", -20, 0), ("archive", 260, 1)):
            assert np.array_equal(np.float32(found[0][partition][key]["dense"]), new[row])
            found[0][partition][key]["dense"] = expected[0][partition][key]["dense"]
        assert found == expected


def make(client, name="docs", count=20, *, auto_id=False, index="FLAT", **options):
    schema = client.create_schema(auto_id=auto_id, enable_dynamic_field=True)
    schema.add_field("id", pymilvus.DataType.INT64, is_primary=True)
    schema.add_field("part", pymilvus.DataType.INT64, is_partition_key=bool(options.pop("by_part", False)))
    schema.add_field("vector", pymilvus.DataType.FLOAT_VECTOR, dim=8, **options)
    client.create_collection(name, schema=schema)
    if index:
        indices = client.prepare_index_params()
        indices.add_index("vector", index_type=index, metric_type="IP")
        client.create_index(name, indices)
    rows = [
        {"part": row % 5, "text": f"text {row}", "vector": vector.tolist(), **({} if auto_id else {"id": row})}
        for row, vector in enumerate(example_vectors(count))
    ]
    client.insert(name, rows)


def make_folder(tmp_path, **options):
    """The location of such a collection in a folder."""
    with client_of(tmp_path / "old") as client:
        make(client, **options)
    return f"milvus:{tmp_path}/old#docs"


def test_ids_that_milvus_gave_stay_and_no_vector_is_put_among_them(tmp_path):
    store = open_store(make_folder(tmp_path, auto_id=True))
    made, finished = written(store, f"milvus:{tmp_path}/new#docs", tmp_path / "new", example_vectors(20, 5))
    assert "auto_id" in finished.remarks[0]
    assert list(made.ids(range(20))) == list(store.ids(range(20)))
    assert list(made.documents()) == list(store.documents())
    with pytest.raises(StoreError, match="auto_id"):
        store.records.put(store.ids(range(1)), example_vectors(1))
    assert made.records.put(made.ids(range(1)), example_vectors(1, 5, seed=3)) == 1


def test_a_folder_is_read_by_its_own_schema_at_a_port_that_another_had(tmp_path, monkeypatch):
    from milvus_lite.adapter.grpc import server

    documents = [Document(f"id {row}", f"text {row}", {}) for row in range(20)]
    texts = MILVUS.make(tmp_path / "texts", backwards(documents, example_vectors(20)), "ip")
    numbers = make_folder(tmp_path)
    start, ports = server.start_server_in_thread, []

    def start_again(folder):
        started = start(folder, port=ports[0] if ports else 0)
        ports.append(started[2])
        return started

    monkeypatch.setattr(server, "start_server_in_thread", start_again)
    assert len(read_all(open_store(texts).scan()).ids) == 20
    found = read_all(open_store(numbers).scan())
    assert np.array_equal(found.vectors, example_vectors(20)[[int(name) for name in found.ids]])
    assert len(ports) > 1 and len(set(ports)) == 1


def test_a_partition_key_stays_one_and_lossy_indexes_are_named(tmp_path):
    with client_of(tmp_path / "old") as client:
        make(client, by_part=True, index="HNSW_SQ")
        partitions = client.list_partitions("docs")
    store = open_store(f"milvus:{tmp_path}/old#docs")
    assert "lossy" in " ".join(store.info.notes) and "HNSW_SQ" in str(store.info)
    made, finished = written(store, f"milvus:{tmp_path}/new#docs", tmp_path / "new", example_vectors(20, 6))
    assert "check its recall" in finished.remarks[0] and list(made.documents()) == list(store.documents())
    with client_of(tmp_path / "new") as client:
        assert client.describe_collection("docs")["fields"][1]["is_partition_key"]
        assert client.list_partitions("docs") == partitions and len(partitions) > 2


def test_what_is_not_kept_is_refused_by_name(tmp_path):
    with client_of(tmp_path / "old") as client:
        make(client, "nulls", nullable=True)
        make(client, "bare", index=None)
    with pytest.raises(UnsupportedStoreError, match="vectors of field vector may be null"):
        open_store(f"milvus:{tmp_path}/old#nulls")
    with pytest.raises(StoreError, match="field vector has no index"):
        open_store(f"milvus:{tmp_path}/old#bare")
    (tmp_path / "old.db").write_bytes(b"SQLite format 3\0")
    with pytest.raises(StoreError, match="milvus-lite before 3"):
        open_store(f"milvus:{tmp_path}/old.db#docs")


@pytest.mark.parametrize("kind", ["BINARY_VECTOR", "FLOAT16_VECTOR", "INT8_VECTOR"])
def test_types_that_milvus_lite_lacks_are_refused_by_name(kind, tmp_path, monkeypatch):
    location = make_folder(tmp_path)
    described = pymilvus.MilvusClient.describe_collection

    def describe(self, *arguments):
        facts = described(self, *arguments)
        return {**facts, "fields": [*facts["fields"], {"name": "b", "type": pymilvus.DataType[kind], "params": {}}]}

    monkeypatch.setattr(pymilvus.MilvusClient, "describe_collection", describe)
    with pytest.raises(UnsupportedStoreError, match=f"field b is a {kind}"):
        open_store(location)


def test_a_text_that_is_too_long_is_named(tmp_path):
    lines = [{"id": f"d{row}", "text": "é" * (10 + 40_000 * row)} for row in range(2)]
    old = store_of_lines(tmp_path / "old", *lines)
    with pytest.raises(StoreError, match="'d1' has 80,020 bytes"):
        written(old, f"milvus:{tmp_path}/new#docs", tmp_path / "new", example_vectors(2, 5))


def test_filters_are_expressions_or_mappings(tmp_path):
    documents = [Document(f"d{row}", "x", {"page": row % 7, "name": f'q"{row % 2}\\'}) for row in range(40)]
    made = open_store(MILVUS.make(tmp_path / "old", backwards(documents, example_vectors(40))))
    query = example_vectors(1, seed=9)
    chosen = {f"d{row}" for row in range(40) if row % 7 == 3 and row % 2 == 1}
    for where in ({"page": 3, "name": 'q"1\\'}, 'page == 3 and name like "%1%"'):
        assert set(made.searcher().search(query, 40, where)[0].ids) == chosen
    with pytest.raises(UsageError, match="no expression of Milvus"):
        made.searcher().search(query, 5, 3)
    with pytest.raises(UsageError, match=r"Milvus says.*is the filter right"):
        made.searcher().search(query, 5, "page ===")


def test_a_folder_that_another_program_has_open_is_read_and_not_written(tmp_path):
    with client_of(tmp_path / "old") as client:
        make(client)
        store = open_store(f"milvus:{tmp_path}/old#docs")
        assert store.info.count == 20 and len(list(store.documents())) == 20
        with pytest.raises(StoreError, match="lock"):
            store.records.put(["1"], example_vectors(1))
        client.insert("docs", [{"id": 99, "part": 1, "vector": [1.0] * 8}])
        assert not store.is_as_opened()
        assert open_store(f"milvus:{tmp_path}/old#docs").info.count == 21


def test_a_folder_with_an_alias_opens_by_it(tmp_path):
    with client_of(tmp_path / "old") as client:
        make(client)
        client.create_alias("docs", "live")
    assert open_store(f"milvus:{tmp_path}/old#live").info.count == 20
    with pytest.raises(StoreError, match="docs, live"):
        open_store(f"milvus:{tmp_path}/old")


@pytest.fixture
def server(tmp_path):
    """The location of a server that has nothing else, and a client of it."""
    with serving(tmp_path / "server") as url, client_of(url) as client:
        yield f"milvus:{url}", client


def test_aliases_of_a_server_are_switched_and_collections_are_not(server, tmp_path):
    place, client = server
    make(client, "first", 40)
    old, new, live = (f"{place}#{name}" for name in ("first", "new", "live"))
    written(open_store(old), new, tmp_path / "new", example_vectors(40, 5))
    with pytest.raises(UsageError, match="only aliases of Milvus are switched"):
        switch(old, new, unproven=True)
    client.create_alias("first", "live")

    def dims():
        return open_store(live).info.dim, open_store(new).info.dim

    before = open_store(live)
    switch(live, new, unproven=True)
    assert dims() == (5, 8)
    with pytest.raises(StoreError, match="another store has come"):
        before.records.put(["1"], example_vectors(1))
    rollback(live)
    assert dims() == (8, 5)
    names, made = open_store(live).driver.server_names, client.describe_alias("new")["collection_name"]
    client.alter_alias(made, "live")  # as a run that was killed between the two leaves it
    names.swap({"live": made, "new": "first"})
    assert dims() == (5, 8)
    names.swap({"live": "first", "new": made})
    switch(live, new, unproven=True)
    forget(live)
    assert client.list_collections() == [made] and open_store(live).info.dim == 5
    assert client.list_aliases("")["aliases"] == ["live"]


def test_a_name_that_is_made_again_leaves_no_collection(server, tmp_path):
    place, client = server
    make(client)
    stitch = str(tmp_path / "stitch")
    assert run(["fit", f"{place}#docs", "--target", "tfidf:6", "--sample", "15", "-o", stitch, "-q"]) == 0
    command = ["translate", f"{place}#docs", stitch, "-q", "-o", f"{place}#new"]
    assert run(command) == 0 and run([*command, "--force"]) == 0
    assert len(client.list_collections()) == 2 and client.list_aliases("")["aliases"] == ["new"]
    assert run([*command[:-1], f"{place}#docs"]) == 2
    assert run([*command[:-1], f"{place}#docs", "--force"]) == 2


def test_a_folder_is_closed_in_silence_beside_a_connection_that_is_still_open(tmp_path):
    program = """if True:
        import sys
        import grpc  # before the store, as a program that has another client does
        from milvus_lite.adapter.grpc import server
        from migrate.stores import open_store

        start, channels = server.start_server_in_thread, []

        def start_and_connect(folder):
            started = start(folder)
            channels.append(grpc.insecure_channel(f"127.0.0.1:{started[2]}"))
            grpc.channel_ready_future(channels[-1]).result(30)
            return started

        server.start_server_in_thread = start_and_connect
        for _ in range(8):
            open_store(sys.argv[1]).scan()
        assert channels
    """
    done = subprocess.run([sys.executable, "-c", program, make_folder(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_thread_is_left(tmp_path):
    location, before = make_folder(tmp_path), threading.active_count()
    store = open_store(location)
    del store
    deadline = time.monotonic() + 30  # threads of gRPC end soon after their server has
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before
