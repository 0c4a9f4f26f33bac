"""Stores in files of Parquet, here and on object storage; `test_parquet` has those beside a FAISS index."""

import datetime
import decimal
import json
import os
import sys
import time
import uuid
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from itertools import cycle, islice

import numpy as np
import pytest
from blake3 import blake3
from children import call_in_child
from faiss_tools import build, damaged, save, write_docs
from kinds import kind_class
from sync_tools import Hashed, some_records, translate_in_parts

import migrate
from migrate import sync
from migrate.check.stamp import stamp_store
from migrate.embedders import load_embedder
from migrate.errors import InputError, LeadMigrateError, StoreError, UsageError
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence
from migrate.stores.parquet import store as store_of_parquet
from migrate.stores.registry import output_of
from migrate.testing.stores import DIM, StoreTests, example_documents, example_vectors
from migrate.translate import translated_blocks
from migrate.vectors import Document
from migrate.work.shards import ShardFolder
from migrate.work.writer import write_rows

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
fsspec = pytest.importorskip("fsspec")


@pytest.fixture(autouse=True)
def _own_folders(tmp_path_factory, monkeypatch):
    """Places in memory have the same names in each process, and the lists of their ids are kept by these."""
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path_factory.mktemp("own")))


def table_of(documents, vectors, metric="ip"):
    """A table of documents, whose metadata are a struct."""
    metadata = [dict(document.metadata) for document in documents]
    columns = {
        "id": [document.id for document in documents],
        "text": [document.text for document in documents],
        "metadata": pa.array(metadata, None if documents else pa.struct([("page", pa.int64())])),
        "embedding": pa.array(list(vectors), pa.list_(pa.float32(), vectors.shape[1])),
    }
    own = {b"lead-migrate": b'{"distance": "%s"}' % metric.encode()}
    return pa.table(columns).replace_schema_metadata(own)


def write_shards(system, root, table, shards=3):
    """The table in files of several row groups each; what was there is gone."""
    if system.exists(root):
        system.rm(root, recursive=True)
    system.makedirs(root, exist_ok=True)
    size = -(-max(len(table), 1) // shards)
    for number in range(shards):
        with system.open(f"{root}/part-{number:05d}.parquet", "wb") as file:
            pq.write_table(table.slice(number * size, size), file, row_group_size=7)


class TestParquetFolder(StoreTests):
    def make_store(self, folder, documents, vectors, metric):
        write_shards(fsspec.filesystem("file"), str(folder), table_of(documents, vectors, metric))
        return f"parquet:{folder}"

    def new_location(self, folder):
        return f"parquet:{folder}"


class TestParquetInMemory(StoreTests):
    root = "memory://"

    def make_store(self, folder, documents, vectors, metric):
        root = f"{self.root}{self.name(folder)}"
        system, path = fsspec.core.url_to_fs(root)
        write_shards(system, path, table_of(documents, vectors, metric), shards=2)
        return f"parquet:{root}"

    def new_location(self, folder):
        return f"parquet:{self.root}{self.name(folder)}"

    def name(self, folder):
        return "-".join(folder.parts[-2:])

    @pytest.fixture(autouse=True)
    def emptied(self):
        fsspec.filesystem("memory").store.clear()


@pytest.fixture(scope="module")
def s3():
    """A bucket of moto's server, which speaks S3."""
    moto, s3fs = pytest.importorskip("moto.server"), pytest.importorskip("s3fs")
    s3fs.S3FileSystem.clear_instance_cache()  # one of another server
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "x")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        bucket = f"bucket-{uuid.uuid4().hex[:8]}"
        fsspec.filesystem("s3").mkdir(bucket)
        yield f"s3://{bucket}/"
    server.stop()


class OnS3(TestParquetInMemory):
    __test__ = False


# The rest of the suite reads by what these read by, and is run on objects in memory
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "awkward_ids_and_texts_come_back_to_the_byte",
        "a_snapshot_notices_other_vectors_ids_and_texts",
        "a_store_that_is_written_to_is_not_unchanged",
        "rows_may_be_written_by_several_writers_in_any_order_and_again",
        "a_writer_that_finishes_again_leaves_the_same_store",
        "what_is_unfinished_has_no_final_name",
    ],
)
def test_object_storage_of_a_server_keeps_to_the_suite(name, s3, tmp_path):
    suite = OnS3()
    suite.root = f"{s3}{uuid.uuid4().hex[:8]}/"
    getattr(suite, f"test_{name}")(tmp_path)


IDS = [("7", "007", " x ", "naïve/路径#?", "🦆")[row % 5] + str(row) for row in range(60)]
OLD = np.random.default_rng(0).normal(size=(60, DIM))
NESTED = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.float16())])))])
HALF = np.float16(0.5)
NO_IMAGE = [None] if int(pa.__version__.partition(".")[0]) >= 26 else []
"""Older versions write or read no null among lists of a fixed length."""

AWKWARD = [
    (pa.field("day", pa.date32()), [datetime.date(1969, 12, 31), None, None]),
    (pa.field("doc_id", pa.string(), nullable=False, metadata={"why": "ü"}), IDS),
    (pa.field("made", pa.timestamp("ns", "Europe/Berlin")), [None, 1_600_000_000_123_456_789]),
    (pa.field("price", pa.decimal128(30, 5)), [None, decimal.Decimal(10**24 + 1) / 100_000]),
    (pa.field("big", pa.int64()), [2**63 - 1, -(2**63), None]),
    (pa.field("huge", pa.uint64()), [2**64 - 1, 2**64 - 2]),
    (pa.field("raw", pa.large_binary()), [None, b"", bytes(range(256))]),
    (pa.field("code", pa.binary(4)), [None, b"abcd"]),
    (pa.field("tags", pa.list_(pa.field("item", pa.string(), nullable=False))), [None, [], ["", "b"]]),
    (pa.field("nested", NESTED), [None, {"a": None, "b": None}, {"a": 2, "b": [{"c": None}, None, {"c": HALF}]}]),
    (pa.field("pairs", pa.map_(pa.string(), pa.int8())), [None, [], [("k", None), ("l", 1)]]),
    (pa.field("label", pa.dictionary(pa.int16(), pa.string())), ["one", None, "two"]),
    (pa.field("gone", pa.null()), [None]),
    (pa.field("body", pa.large_string()), ["", None, "long " * 900, "tab\tline\n\u2028"]),
    (pa.field("image", pa.list_(pa.float16(), 3)), [*NO_IMAGE, *[[np.float16(0.25), None, np.float16(-0.0)]] * 4]),
    (
        pa.field("vector", pa.large_list(pa.field("element", pa.float64(), nullable=False)), metadata={"model": "old"}),
        OLD.tolist(),
    ),
    (pa.field("took", pa.duration("us")), [None, datetime.timedelta(microseconds=1)]),
]
"""Fields of all types, with values that come again and again until there are 60."""
SCHEMA = pa.schema([field for field, _ in AWKWARD], metadata={"owner": "ü", "other": "1"})


def new_vectors(count=60, dim=5):
    return np.random.default_rng(9).normal(size=(count, dim)).astype(np.float32)


def write_awkward(root):
    columns = {field.name: list(islice(cycle(values), 60)) for field, values in AWKWARD}
    table = pa.table(columns, SCHEMA)
    write_shards(fsspec.filesystem("file"), str(root), table)
    return table


def write_faiss(folder, documents):
    save(build("Flat", example_vectors()), folder)
    write_docs(folder, documents)
    return open_store(folder)


def write_copy(store, location, vectors, folder):
    """A copy with other vectors."""
    output = output_of(location)
    content = output.path if output.is_folder else folder / "content"
    content.mkdir()
    writer = output.writer(store, content, vectors.shape[1])
    write_rows(writer, [(0, vectors)], len(vectors))
    if not output.is_folder:
        output.publish(content, force=False)
    return open_store(location)


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_every_type_goes_through_field_by_field(place, tmp_path):
    table = write_awkward(tmp_path / "old")
    store = open_store(f"parquet:{tmp_path}/old#?vector=vector&text=body")
    assert store.info.index_type == "column of float64"
    assert np.array_equal(read_all(store.scan(batch_size=11)).vectors, OLD.astype(np.float32))
    assert np.array_equal(store.get(np.array([59, 0])).vectors, OLD[[59, 0]].astype(np.float32))
    new, root = new_vectors(), tmp_path / "new"
    url = str(root) if place == "folder" else f"memory://{tmp_path.name}/new"
    copy = write_copy(store, f"parquet:{url}", new, tmp_path)
    assert np.array_equal(read_all(copy.scan()).vectors, new)
    assert list(copy.documents()) == list(store.documents())
    system, path = fsspec.core.url_to_fs(url)
    names = [f"part-{number:05d}.parquet" for number in range(3)]
    files = [system.open(f"{path}/{name}") for name in names]
    read = pa.concat_tables([pq.read_table(file) for file in files])
    assert read.drop_columns("vector").equals(table.drop_columns("vector"))
    at = SCHEMA.get_field_index("vector")
    kind = pa.large_list(pa.field("element", pa.float32(), nullable=False))
    for file in files:
        schema = pq.read_schema(file)
        wanted = SCHEMA.set(at, SCHEMA.field(at).with_type(kind))
        assert schema.equals(wanted, check_metadata=False)
        for found, field in zip(schema, wanted, strict=True):
            kept = {key: value for key, value in (found.metadata or {}).items() if key != b"PARQUET:field_id"}
            assert kept == (field.metadata or {})
        own = {b"lead-migrate": b'{"text":"body","vector":"vector"}'}
        assert schema.metadata == {**SCHEMA.metadata, **own}
    vectors = np.array(read.column("vector").to_pylist(), np.float32)
    assert np.array_equal(vectors, new)


def test_another_reader_finds_the_same(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    write_awkward(tmp_path / "old")
    write_copy(open_store(f"parquet:{tmp_path}/old#?vector=vector"), f"parquet:{tmp_path}/new", new_vectors(), tmp_path)
    with closing(duckdb.connect()) as connection:
        names = [name for name in SCHEMA.names if name not in ("vector", "gone", "image")]
        columns = ", ".join("epoch_ns(made)" if name == "made" else name for name in names)
        found = [
            connection.execute(f"SELECT {columns} FROM '{tmp_path}/{name}/*.parquet' ORDER BY doc_id").fetchall()
            for name in ("old", "new")
        ]
        question = f"SELECT doc_id, vector FROM '{tmp_path}/new/*.parquet'"
        vectors = dict(connection.execute(question).fetchall())
    assert len(found[0]) == 60 and found[0] == found[1]
    assert np.array_equal(np.array([vectors[doc_id] for doc_id in IDS], np.float32), new_vectors())


def test_documents_of_another_kind_come_back_as_they_were(tmp_path):
    metadata = [{}, {"a": None}, {"n": 2**60, "x": {"y": [1, 2.5, None, {"z": ""}]}}, {"text": "mine", "id": 7}]
    documents = [Document(f"d{row}", f"text {row}", metadata[row % 4]) for row in range(60)]
    source = write_faiss(tmp_path / "faiss", documents)
    store = write_copy(source, f"parquet:{tmp_path}/new", new_vectors(), tmp_path)
    assert list(store.documents()) == list(source.documents()) == documents
    assert (store.info.metric, store.info.has_texts) == (source.info.metric, True)
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(tmp_path / "new")
    assert frame.columns.tolist() == ["id", "text", "metadata", "vector"]
    assert frame.id.tolist() == [document.id for document in documents]
    assert [json.loads(text) for text in frame.metadata] == [dict(document.metadata) for document in documents]
    assert np.array_equal(np.stack(frame.vector), new_vectors())
    assert open_store(tmp_path / "new").info.kind == "parquet"


def test_shards_are_told_with_their_rows_ids_norms_and_hashes(tmp_path, monkeypatch):
    monkeypatch.setattr("migrate.stores.parquet.output._GROUP_BYTES", 5 * 4 * 4)
    monkeypatch.setattr("migrate.stores.parquet.output._GROUPS_A_SHARD", 5)
    documents = example_documents()
    write_copy(write_faiss(tmp_path / "faiss", documents), f"parquet:{tmp_path}/new", new_vectors(), tmp_path)
    shards = json.loads((tmp_path / "new" / "_shards.json").read_text())["shards"]
    assert [shard["rows"] for shard in shards] == [20, 20, 20]
    for number, shard in enumerate(shards):
        path, rows = tmp_path / "new" / f"part-{number:05d}.parquet", slice(20 * number, 20 * number + 20)
        assert shard["name"] == path.name and shard["bytes"] == path.stat().st_size
        assert shard["hash"] == f"blake3:{blake3(path.read_bytes()).hexdigest()}"
        assert (shard["first_id"], shard["last_id"]) == (documents[rows][0].id, documents[rows][-1].id)
        norms = np.linalg.norm(new_vectors()[rows].astype(float), axis=1)
        found = [shard["norm_min"], shard["norm_mean"], shard["norm_max"]]
        assert np.allclose(found, [norms.min(), norms.mean(), norms.max()])
        assert pq.ParquetFile(path).num_row_groups == 5


def small(tmp_path, name="x.parquet", **columns):
    """A file of three rows; a column None is left out."""
    table = {"id": ["a", "b", "c"], "text": ["x"] * 3, "vector": [[1.0, 2.0]] * 3} | columns
    tmp_path.mkdir(exist_ok=True)
    pq.write_table(pa.table({key: value for key, value in table.items() if value is not None}), tmp_path / name)
    return f"parquet:{tmp_path}"


@pytest.mark.parametrize(
    "metadata",
    [
        pa.array([{"page": 1, "x": None}] * 3, pa.struct([("page", pa.int64()), ("x", pa.string())])),
        pa.array([[("page", 1), ("x", None)]] * 3, pa.map_(pa.string(), pa.int32())),
        ['{"page": 1, "x": null}'] * 3,
    ],
)
def test_metadata_is_a_struct_a_map_json_or_further_columns(metadata, tmp_path):
    expected = {"page": 1, "x": None}
    stores = iter(range(9))

    def read_metadata(options="", **columns):
        location = small(tmp_path / str(next(stores)), **columns)
        return [document.metadata for document in open_store(f"{location}{options}").documents()]

    assert read_metadata(metadata=metadata) == [expected] * 3
    assert read_metadata("#?metadata=extra", extra=metadata) == [expected] * 3
    assert read_metadata(page=[1] * 3, x=pa.nulls(3)) == [expected] * 3
    both = read_metadata(metadata=metadata, more=[1, None, 3])
    assert both == [{"more": number, **expected} for number in (1, None, 3)]
    assert all(whole.keys() == {"metadata"} for whole in read_metadata("#?metadata=", metadata=metadata))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"other": [[1.0]] * 3, "vector": None, "third": [[1.0]] * 3}, "", r"are other, third: say #\?vector=COLUMN"),
        ({"embedding": [[1.0]] * 3}, "", r"there are vector, embedding: say #\?vector=COLUMN"),
        ({"vector": None}, "", r"no column of vectors .* there are none"),
        ({}, "?vector=text", "'text'; there are vector"),
        ({}, "?id=name", "ids 'name'; there are id, text, vector"),
        ({}, "?text=name", "texts 'name'; there are text"),
        ({}, "?metadata=text2", "column 'text2' of metadata"),
        ({}, "?distance=far", "unknown distance 'far'; say l2, cosine or dot"),
        ({}, "?colour=red", "no option colour"),
        ({}, "embedding", r"#\?vector=embedding"),
        ({"id": [1.5, 2.5, 3.5]}, "", "column id is of double"),
        ({"id": ["a", "b", "a"]}, "", "duplicate id 'a' in column id"),
        ({"id": ["a", None, "c"]}, "", "row 1 has no id in column id"),
        *(({"vector": [[1.0, 2.0], [3.0, 4.0], bad]}, "", "row 2 has no vector of 2 numbers in column vector")
          for bad in ([1.0], None, [1.0, None])),
        ({"metadata": ['{"a": 1}', "[1]", None]}, "", "column metadata of document 'b'"),
        ({"metadata": ['{"a": 1}'] * 3, "a": [1] * 3}, "", "document 'a' has 'a' twice, in column metadata"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_refused_by_name(columns, options, message, tmp_path):
    location = small(tmp_path / "store", **columns)
    with pytest.raises((StoreError, UsageError), match=message) as raised:
        store = open_store(f"{location}#{options}" if options else location)
        list(store.scan())
        list(store.documents())
    assert "\n" not in str(raised.value)


def test_files_are_read_once_for_their_snapshot_until_they_change(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    location = small(tmp_path / "a", text=["one", "two", "six"])
    file = tmp_path / "a" / "x.parquet"

    def snapshot_of(content, changed_s):
        file.write_bytes(content)
        os.utime(file, (changed_s, changed_s))
        return open_store(location).snapshot()

    old = file.read_bytes()
    new = old.replace(b"two", b"ten")
    before_s = time.time() - 60
    assert snapshot_of(old, before_s).texts_hash != snapshot_of(new, before_s).texts_hash
    assert not [*(tmp_path / "cache").rglob("snapshots/*.json")]  # files that have just been written
    monkeypatch.setattr(store_of_parquet, "_TICK_NS", 0)
    first = snapshot_of(old, before_s)
    changed = snapshot_of(new, before_s)  # the time is set back
    assert changed.difference(first.fingerprint) == "the same vectors, other texts"
    with monkeypatch.context() as patch:
        patch.setattr(store_of_parquet, "sampled_snapshot", None)  # whatever reads them again fails
        assert open_store(location).snapshot() == changed
    (note,) = [path for path in (tmp_path / "cache").rglob("*.json") if str(changed.texts_hash) in path.read_text()]
    note.write_text("{")
    assert open_store(location).snapshot() == changed
    copy = small(tmp_path / "b", text=["one", "two", "six"])
    assert open_store(copy).snapshot().difference(first.fingerprint) is None
    assert open_store(copy).snapshot().difference(changed.fingerprint) == "the same vectors, other texts"
    store = open_store(location)
    small(tmp_path / "a", "y.parquet", id=["d", "e", "f"])
    with pytest.raises(StoreError, match="changed while it was read"):
        store.snapshot()


def test_files_that_do_not_belong_together_are_refused_by_name(tmp_path):
    location = small(tmp_path / "a")
    small(tmp_path / "a", "y.parquet", id=["d", "e", "f"], page=[1] * 3)
    with pytest.raises(StoreError, match=r"y.parquet has other columns than x.parquet: page"):
        open_store(location)
    location = small(tmp_path / "b")
    small(tmp_path / "b", "y.parquet")
    with pytest.raises(StoreError, match="duplicate id 'a'"):
        open_store(location)
    (tmp_path / "c" / "year=2024").mkdir(parents=True)
    small(tmp_path / "c" / "year=2024")
    with pytest.raises(StoreError, match=r"year=2024/x.parquet is in a folder of its own"):
        open_store(f"parquet:{tmp_path / 'c'}")
    with pytest.raises(StoreError, match="no such file or folder; check the path"):
        open_store(f"parquet:{tmp_path / 'nothing'}")
    with pytest.raises(StoreError, match=r"no file \.parquet was found there"):
        open_store("parquet:memory://nothing-there")
    with pytest.raises(UsageError, match="install what that kind of place needs"):
        open_store("parquet:nowhere://x")


def test_a_folder_without_one_of_its_shards_is_refused(tmp_path):
    write_awkward(tmp_path / "old")
    write_copy(open_store(f"parquet:{tmp_path}/old#?vector=vector"), f"parquet:{tmp_path}/new", new_vectors(), tmp_path)
    small(tmp_path / "new", "part-9.parquet")
    with pytest.raises(StoreError, match=r"does not list part-9.parquet"):
        open_store(f"parquet:{tmp_path}/new")
    (tmp_path / "new" / "part-9.parquet").unlink()
    (tmp_path / "new" / "part-00001.parquet").rename(tmp_path / "part-00001.parquet")
    with pytest.raises(StoreError, match=r"the file part-00001.parquet is missing"):
        open_store(f"parquet:{tmp_path}/new")
    (tmp_path / "new" / "_shards.json").write_text("[1]")
    with pytest.raises(StoreError, match="not a list of shards of version 1"):
        open_store(f"parquet:{tmp_path}/new")


def test_damaged_files_are_one_line(tmp_path):
    write_awkward(tmp_path / "old")
    for is_cut in damaged(tmp_path / "old" / "part-00001.parquet", cuts=(0, 4, 0.5, -1), first=4, spoils=40):
        try:
            store = open_store(f"parquet:{tmp_path}/old#?vector=vector&text=body")
            list(store.scan())
            list(store.documents())
        except LeadMigrateError as error:
            assert "\n" not in str(error)
            assert error.exit_code == 4
        else:
            assert not is_cut


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path):
    store = open_store(small(tmp_path / "store"))
    small(tmp_path / "store", vector=[[5.0, 2.0]] * 3)
    with pytest.raises(StoreError, match="changed since it was opened"):
        list(store.get(np.arange(3)))


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    location = small(tmp_path / "store")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'lead-migrate\[parquet\]'"):
        open_store(location)


@pytest.fixture(scope="module")
def stitch(tmp_path_factory):
    """An old store in files, and a stitch of it."""
    folder = tmp_path_factory.mktemp("stitch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        old = kind_class("parquet")().make(folder / "old", some_records())
        migrate.fit(open_store(old), Hashed(), kind="ridge", sample=40).save(folder / "stitch")
    return old, str(folder / "stitch")


@pytest.fixture(scope="module")
def undisturbed(s3, stitch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        call_in_child(translate_in_parts, *stitch, f"parquet:{s3}undisturbed", str(folder / "state"))
    return objects(f"{s3}undisturbed")


@pytest.fixture
def in_parts(monkeypatch):
    """Called with a folder for notes: this process then translates as `translate_in_parts` does in another."""

    def set_up(state):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        monkeypatch.setenv("XDG_STATE_HOME", str(state))
        monkeypatch.setattr("migrate.translate._BATCH_BYTES", 1)
        monkeypatch.setattr("migrate.translate._FEWEST_ROWS", 32)
        monkeypatch.setattr("migrate.steps.translate.job._PART_BYTES", 1)

    return set_up


def pandas_of(location):
    pandas = pytest.importorskip("pandas")
    system, root = fsspec.core.url_to_fs(location.partition(":")[2])
    return pandas.concat([pandas.read_parquet(system.open(path)) for path in system.glob(f"{root}/*.parquet")])


def objects(url):
    """All objects below a place, by name."""
    system, root = fsspec.core.url_to_fs(url)
    system.invalidate_cache()
    return {path.removeprefix(root): system.cat_file(path) for path in system.find(root)}


@pytest.mark.slow
@pytest.mark.parametrize("point", ["recorded:2", "claimed:1", "put:4", "listed:1", "published:1"])
def test_a_translation_to_object_storage_that_is_killed_ends_in_the_same_objects(
    point, s3, stitch, undisturbed, in_parts, tmp_path
):
    place, state = f"{s3}{uuid.uuid4().hex[:8]}", tmp_path / "killed"
    call_in_child(translate_in_parts, *stitch, f"parquet:{place}/new", str(state), point=point)
    if point in ("listed:1", "published:1"):
        assert open_store(f"parquet:{place}/new").info.count == 200
    else:
        with pytest.raises(StoreError, match=r"being written|no file \.parquet was found"):
            open_store(f"parquet:{place}/new")
        if objects(f"{place}/new"):
            with pytest.raises(UsageError, match="another run writes there, or broke off"):  # as from another machine
                output_of(f"parquet:{place}/new").refuse_existing(force=True)
    in_parts(state)
    migrate.translate(open_store(stitch[0]), load_stitch(stitch[1]), f"parquet:{place}/new")
    made = objects(f"{place}/new")
    assert made == undisturbed
    assert {
        "/_shards.json",
        "/_lead-migrate/lead-migrate.json",
        "/_lead-migrate/confidence.npy",
        "/part-0.parquet",
    } <= made.keys()
    store = open_store(f"parquet:{place}/new")
    assert store.info.manifest.model.spec == "hashed" and stored_confidence(store).shape == (200,)
    assert not [*(state / "lead-migrate" / "outputs").iterdir()]


@pytest.mark.slow
def test_what_is_on_object_storage_is_never_replaced(s3, stitch, tmp_path):
    location = f"parquet:{s3}{uuid.uuid4().hex[:8]}"
    fitted, old = load_stitch(stitch[1]), open_store(stitch[0])
    migrate.translate(old, fitted, location)
    before = objects(location.partition(":")[2])
    with pytest.raises(UsageError, match="objects are not replaced"):
        migrate.translate(old, fitted, location, force=True)
    with pytest.raises(UsageError, match="object storage"):
        sync(old, open_store(location), target=Hashed())
    assert objects(location.partition(":")[2]) == before
    new = open_store(location)
    assert len(new.companions.verify()) == 3
    frame = pandas_of(location)
    assert frame.id.tolist() == open_store(location).ids(range(200))
    back = migrate.translate(new, migrate.fit(new, Hashed("more"), kind="ridge", sample=40), tmp_path / "back")
    assert open_store(back.path, verify=True).info.kind == "parquet"
    stamped = open_store(location)
    stamped.companions.keep(replace(stamped.info.manifest, seed=77))
    assert open_store(location).info.manifest.seed == 77


@pytest.mark.slow
def test_an_object_that_is_damaged_is_noticed_before_it_is_translated(s3, stitch):
    location = f"parquet:{s3}{uuid.uuid4().hex[:8]}"
    migrate.translate(open_store(stitch[0]), load_stitch(stitch[1]), location)
    system, root = fsspec.core.url_to_fs(location.partition(":")[2])
    content = bytearray(system.cat_file(f"{root}/part-1.parquet"))
    content[2_000] ^= 1
    system.pipe_file(f"{root}/part-1.parquet", bytes(content))
    with pytest.raises(StoreError, match=r"part-1\.parquet: its BLAKE3 "):
        open_store(location, verify=True)


@pytest.mark.parametrize("name", ["new.parquet", "new#vectors", "new#?vector=e", ""])
def test_other_names_of_new_stores_are_refused(name, tmp_path):
    with pytest.raises(UsageError) as raised:
        output_of(f"parquet:{f'{tmp_path}/{name}' if name else ''}")
    assert "\n" not in str(raised.value)


def test_a_folder_is_a_url_too(tmp_path):
    location = small(tmp_path / "a store")
    url = location.removeprefix("parquet:").replace(" ", "%20")
    assert list(open_store(f"parquet:file://{url}").documents()) == list(open_store(location).documents())


@pytest.mark.parametrize("kind", ["memory", pytest.param("s3", marks=pytest.mark.slow)])
def test_a_place_whose_name_begins_like_another_is_another(kind, request, tmp_path):
    bucket = "memory://" if kind == "memory" else request.getfixturevalue("s3")
    place = f"{bucket}{tmp_path.name}-likes"
    system, root = fsspec.core.url_to_fs(place)
    for name in ("new", "new2"):
        write_shards(system, f"{root}/{name}", table_of(example_documents(), example_vectors()))
    assert open_store(f"parquet:{place}/new").info.details["files"] == 3
    output_of(f"parquet:{place}/ne").refuse_existing(force=False)
    with pytest.raises(UsageError, match="exists; objects are not replaced"):
        output_of(f"parquet:{place}/new").refuse_existing(force=True)


def test_columns_whose_names_begin_alike_are_told_apart(tmp_path):
    first = {"vector.old": [[9.0, 9.0]] * 3, "id.old": ["x"] * 3, "text": ["a text"] * 3}
    pq.write_table(pa.table({**first, "vector": [[1.0, 2.0]] * 3, "id": ["a", "b", "c"]}), tmp_path / "x.parquet")
    store = open_store(f"parquet:{tmp_path}")
    whole = read_all(store.scan())
    assert list(whole.ids) == store.ids(np.array([0, 1, 2])) == ["a", "b", "c"]
    assert whole.vectors.tolist() == store.get(np.arange(3)).vectors.tolist() == [[1.0, 2.0]] * 3
    assert [document.metadata["id.old"] for document in store.documents()] == ["x"] * 3


def test_one_object_is_a_store(tmp_path):
    table = table_of(example_documents(), example_vectors())
    with fsspec.filesystem("memory").open(f"/{tmp_path.name}-one/x.parquet", "wb") as file:
        pq.write_table(table, file, row_group_size=9)
    store = open_store(f"parquet:memory://{tmp_path.name}-one/x.parquet")
    copy = write_copy(store, f"parquet:{tmp_path}/new", new_vectors(), tmp_path)
    assert [path.name for path in sorted((tmp_path / "new").glob("*.parquet"))] == ["x.parquet"]
    assert list(copy.documents()) == list(store.documents()) == example_documents()
    assert store.companions is None
    with pytest.raises(UsageError, match="no place beside the store for a stamp"):
        stamp_store(store, Hashed(dim=store.info.dim), trust=True)
    with pytest.raises(StoreError, match="nothing is there; check the location"):
        open_store(f"parquet:memory://{tmp_path.name}-one/y.parquet")


@pytest.mark.parametrize("name", ["a.parquet", "z.parquet"])
@pytest.mark.parametrize("kind", ["a device", "a pipe", "a broken link"])
def test_what_is_no_file_among_files_of_rows_is_named(kind, name, tmp_path):
    pq.write_table(table_of(example_documents(8), example_vectors(8)), tmp_path / "part.parquet")
    assert open_store(tmp_path).info.count == 8
    if kind == "a pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/dev/zero" if kind == "a device" else "nowhere")
    told = "the link leads nowhere" if kind == "a broken link" else "this is a pipe, a socket or a device"
    with pytest.raises(InputError, match=f"{name}: {told}"):
        open_store(tmp_path)
    (tmp_path / name).rename(tmp_path / f".{name}")
    assert open_store(tmp_path).info.count == 8, "hidden ones are nobody's rows"


def test_vectors_that_were_written_as_tensors_are_read_and_written_as_lists(tmp_path):
    """As Ray Data writes arrays, and whether the type is known here or not."""
    vectors = new_vectors()
    (tmp_path / "known").mkdir()
    columns = {
        "id": [str(row) for row in range(len(vectors))],
        "vector": pa.FixedShapeTensorArray.from_numpy_ndarray(vectors),
    }
    pq.write_table(pa.table(columns), tmp_path / "known" / "x.parquet")
    (tmp_path / "unknown").mkdir()
    notes = {"ARROW:extension:name": "another.tensor", "ARROW:extension:metadata": f"[{vectors.shape[1]}]"}
    lists = columns["vector"].storage
    field = pa.field("vector", lists.type, metadata=notes)
    pq.write_table(
        pa.table([columns["id"], lists], pa.schema([("id", pa.string()), field])), tmp_path / "unknown" / "x.parquet"
    )
    for name in ("known", "unknown"):
        store = open_store(tmp_path / name)
        assert np.array_equal(read_all(store.scan()).vectors, vectors)
        copy = write_copy(store, f"parquet:{tmp_path}/{name}-copy", vectors[:, :2].copy(), tmp_path)
        assert np.array_equal(read_all(copy.scan()).vectors, vectors[:, :2])
        field = pq.read_schema(tmp_path / f"{name}-copy" / "x.parquet").field("vector")
        assert field.type.list_size == 2 and not any(b"ARROW" in key for key in field.metadata or {})


@pytest.fixture
def one_file(tmp_path, monkeypatch):
    """The location of 60 documents in one file, and a stitch of them; work on them is in batches of 8."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr("migrate.translate._BATCH_BYTES", 1)
    monkeypatch.setattr("migrate.translate._FEWEST_ROWS", 8)
    monkeypatch.setattr("migrate.steps.translate.job._PART_BYTES", 1)
    (tmp_path / "old").mkdir()
    pq.write_table(table_of(example_documents(), example_vectors()), tmp_path / "old" / "part-0.parquet")
    location = f"parquet:{tmp_path}/old"
    return location, migrate.fit(open_store(location), Hashed(dim=4), kind="ridge", sample=40)


def counted_by_others(folder):
    """How many rows each other reader finds in a folder, of those that are installed."""
    import pyarrow.dataset

    yield pyarrow.dataset.dataset(folder).count_rows()
    yield len(pq.read_table(folder))
    if find_spec("pandas"):
        import pandas

        yield len(pandas.read_parquet(folder))
    if find_spec("duckdb"):
        import duckdb

        with closing(duckdb.connect()) as connection:
            question = f"SELECT count(*) FROM read_parquet('{folder}/*.parquet')"
            yield connection.execute(question).fetchall()[0][0]


@pytest.mark.parametrize("command", ["translate", "reembed", "sync", "stamp"])
def test_a_folder_of_ours_is_read_by_others_as_the_old_one_is(command, one_file, tmp_path):
    location, fitted = one_file
    folder = tmp_path / "new"
    if command == "reembed":
        migrate.reembed(location, Hashed(dim=4), f"parquet:{folder}")
    elif command == "stamp":
        migrate.stamp(location, Hashed(dim=DIM), trust=True)
        folder = tmp_path / "old"
    else:
        migrate.translate(location, fitted, f"parquet:{folder}")
    if command == "sync":
        table = table_of(example_documents(), example_vectors())
        pq.write_table(table.slice(0, 50), tmp_path / "old" / "part-0.parquet")
        sync(location, f"parquet:{folder}", target=Hashed(dim=4))
    assert [*(folder / "_lead-migrate").glob("lead-migrate.json")], "what is ours lies there"
    assert set(counted_by_others(folder)) == {50 if command == "sync" else 60}


def translate_until(rows, one_file, output):
    """Translate until so many rows are done; then the run is interrupted."""

    def interrupt(stage, done, total):
        if done >= rows:
            raise KeyboardInterrupt

    location, fitted = one_file
    with pytest.raises(KeyboardInterrupt):
        migrate.translate(open_store(location), fitted, output, progress=interrupt)


def test_the_vectors_of_a_file_are_written_once(one_file, tmp_path):
    translate_until(60, one_file, tmp_path / "new")
    shards = ShardFolder(tmp_path / ".new.work" / "shards")
    assert [(shard.start, shard.stop) for shard in shards] == [(0, 60)]
    assert [shards.names(shard) for shard in shards] == [["confidence", "sources"]]


@pytest.mark.parametrize(("begun_with", "done", "finished_with"), [(0, 24, 1 << 30), (1 << 30, 60, 0)])
def test_a_run_goes_on_with_the_shards_that_it_was_begun_with(
    begun_with, done, finished_with, one_file, tmp_path, monkeypatch
):
    location, fitted = one_file
    migrate.translate(open_store(location), fitted, tmp_path / "undisturbed")
    monkeypatch.setattr("migrate.steps.translate.job._LARGEST_WRITTEN", begun_with)
    translate_until(done, one_file, tmp_path / "new")
    monkeypatch.setattr("migrate.steps.translate.job._LARGEST_WRITTEN", finished_with)
    migrate.translate(open_store(location), fitted, tmp_path / "new")
    for path in (tmp_path / "undisturbed").rglob("*.*"):
        made = tmp_path / "new" / path.relative_to(tmp_path / "undisturbed")
        assert made.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("largest", [0, 1 << 30])
def test_batches_are_of_one_file_whether_or_not_each_file_is_a_shard(largest, tmp_path, monkeypatch, one_file):
    monkeypatch.setattr("migrate.steps.translate.job._LARGEST_WRITTEN", largest)
    fitted, table = one_file[1], table_of(example_documents(), example_vectors())
    for number in range(3):
        path = tmp_path / "three" / f"part-{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table.slice(20 * number, 20), path)
    store, begun = open_store(f"parquet:{tmp_path}/three"), []

    def noted(*arguments):
        for block in translated_blocks(*arguments):
            begun.append(len(block.arrays["confidence"]))
            yield block

    monkeypatch.setattr("migrate.steps.translate.job.translated_blocks", noted)
    migrate.translate(store, fitted, tmp_path / "new", workers=1, any_store=True)
    assert begun == [8, 8, 4] * 3


@pytest.fixture
def many_files(tmp_path, monkeypatch):
    """The location of 60 documents in six files, and a stitch that reads their texts; work is in batches of 8."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr("migrate.translate._BATCH_BYTES", 1)
    monkeypatch.setattr("migrate.translate._FEWEST_ROWS", 8)
    monkeypatch.setattr("migrate.steps.translate.job._FEWEST_READ", 6)
    monkeypatch.setattr("migrate.steps.translate.job._MANY_TEXTS", 1)
    (tmp_path / "old").mkdir()
    table = table_of(example_documents(), example_vectors())
    for number in range(6):
        pq.write_table(table.slice(10 * number, 10), tmp_path / "old" / f"part-{number}.parquet")
    location = f"parquet:{tmp_path}/old"
    return location, migrate.fit(open_store(location), load_embedder("tfidf:4"), kind="ridge+text", sample=40)


def shards_begun(many_files, output):
    """Interrupt a translation of 60 documents in one process, and return its shards."""

    def interrupt(stage, done, total):
        if done >= 20:
            raise KeyboardInterrupt

    location, fitted = many_files
    with pytest.raises(KeyboardInterrupt):
        migrate.translate(open_store(location), fitted, output, workers=1, progress=interrupt)
    return ShardFolder(output.with_name(f".{output.name}.work") / "shards")


@pytest.mark.slow
def test_a_stitch_that_reads_texts_writes_many_files_once_whoever_does_it(many_files, tmp_path):
    location, fitted = many_files
    shards = shards_begun(many_files, tmp_path / "new")
    assert {(shard.start, shard.stop) for shard in shards} >= {(0, 10), (10, 20)}
    assert {*map(tuple, map(shards.names, shards))} == {("confidence", "sources")}
    migrate.translate(open_store(location), fitted, tmp_path / "new", workers=2)
    migrate.translate(open_store(location), fitted, tmp_path / "undisturbed", workers=1)
    contents = [
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*") if path.is_file()}
        for name in ("new", "undisturbed")
    ]
    assert contents[0] == contents[1]


@pytest.mark.parametrize(("constant", "value"), [("_FEWEST_READ", 7), ("_LONGEST_READ", 9)])
def test_files_that_are_few_or_long_are_read_batch_by_batch(constant, value, many_files, tmp_path, monkeypatch):
    monkeypatch.setattr(f"migrate.steps.translate.job.{constant}", value)
    shards = shards_begun(many_files, tmp_path / "new")
    assert all(len(shard) == 8 and "vectors" in shards.names(shard) for shard in shards)


def test_files_of_less_than_a_batch_are_read_batch_by_batch(many_files, tmp_path, monkeypatch):
    monkeypatch.setattr("migrate.translate._FEWEST_ROWS", 16)
    assert all(len(shard) == 16 for shard in shards_begun(many_files, tmp_path / "new"))
