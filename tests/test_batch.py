"""A stitch as a function of batches, and the store that comes of what an engine has written."""

import dataclasses
import pickle
import subprocess
import sys

import numpy as np
import pytest

import migrate
from migrate.audit.audit import run_audit
from migrate.audit.document import report_of
from migrate.audit.step import Audit
from migrate.embedders import load_embedder
from migrate.errors import InputError, StitchError, StoreError, UsageError, VectorError
from migrate.stores import open_store
from migrate.stores.base import read_all

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")


def fit(store, **options):
    return migrate.fit(store, load_embedder("tfidf:24"), **{"sample": 60, "kind": "ridge", **options})


@pytest.fixture(scope="module")
def old(source_folder, tmp_path_factory):
    """The store as Parquet; nobody writes to it."""
    folder = tmp_path_factory.mktemp("parquet") / "old"
    migrate.reembed(source_folder, "tfidf:32", f"parquet:{folder}")
    return folder


@pytest.fixture(scope="module")
def fitted(old):
    return fit(old)


@pytest.fixture(scope="module")
def reading(old):
    return fit(old, kind="ridge+text")


@pytest.fixture(scope="module")
def table(old):
    read = pq.read_table(old / "part-00000.parquet", columns=["id", "vector", "text"])
    return read.replace_schema_metadata(None)


@pytest.fixture(autouse=True)
def one_date(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def vectors_in(done):
    """The new vectors of any kind of batch."""
    column = done["vector"]
    return np.array(column.to_pylist() if hasattr(column, "to_pylist") else [*column], np.float32)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def written(folder, *tables):
    """A folder of what an engine has written."""
    folder.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


def frame_of(table):
    return table.to_pandas()


def arrays_of(table):
    names = ("id", "text")
    return {"vector": np.array(table["vector"].to_pylist()), **{n: np.array(table[n].to_pylist()) for n in names}}


def record_batch_of(table):
    return table.combine_chunks().to_batches()[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ridge", "reading"])
@pytest.mark.parametrize("convert", [lambda table: table, record_batch_of, frame_of, arrays_of])
def test_each_kind_of_batch_gets_the_vectors_of_translate(convert, kind, old, table, fitted, reading, tmp_path):
    stitch = fitted if kind == "ridge" else reading
    given = convert(table)
    done = migrate.batch(stitch)(given)
    assert isinstance(done, type(given))
    assert [*(done.schema.names if hasattr(done, "schema") else done)] == ["id", "vector", "confidence"]
    migrate.translate(old, stitch, tmp_path / "new")
    new = open_store(tmp_path / "new")
    assert np.array_equal(vectors_in(done), read_all(new.scan()).vectors)
    assert np.array_equal(np.array(done["confidence"]), np.load(tmp_path / "new" / "_lead-migrate" / "confidence.npy"))


def test_a_batch_keeps_its_ids_and_an_iterator_its_order(fitted, table):
    translate = migrate.batch(fitted)
    frame = table.to_pandas().iloc[30:35]
    assert [*translate(frame).index] == [*range(30, 35)]
    numbered = {"id": np.arange(3), "vector": [[1.0] * 32] * 3}
    assert translate(numbered)["id"] is numbered["id"]
    done = [*translate(iter(table.to_batches(max_chunksize=40)))]
    assert [part.num_rows for part in done] == [40, 40, 40, 30]
    assert pa.Table.from_batches(done)["id"] == table["id"]
    whole = vectors_in(translate(table))
    assert np.abs(vectors_in(pa.Table.from_batches(done)) - whole).max() < 1e-6


@pytest.mark.parametrize("form", [pa.float64(), pa.float16()])
def test_vectors_of_other_floats_are_read_as_stores_read_them(form, fitted, table):
    lists = pa.array([np.array(row, form.to_pandas_dtype()) for row in table["vector"].to_pylist()], pa.list_(form))
    done = migrate.batch(fitted)(table.set_column(1, "vector", lists))
    rounded = [np.array(row, form.to_pandas_dtype()).astype(np.float32) for row in table["vector"].to_pylist()]
    assert np.array_equal(vectors_in(done), vectors_in(migrate.batch(fitted)({"id": table["id"], "vector": rounded})))


def test_a_batch_without_rows_has_the_columns_of_any_other(fitted, table):
    translate = migrate.batch(fitted)
    assert translate(table.slice(0, 0)).schema == translate(table).schema
    assert translate(table.slice(0, 0).to_pandas()).empty
    assert translate({"id": [], "vector": []})["vector"].shape == (0, 24)


def test_a_large_batch_is_translated_in_those_of_translate(fitted, table, monkeypatch):
    monkeypatch.setattr("migrate.translate._BATCH_BYTES", 4 * 32 * 16)
    monkeypatch.setattr("migrate.translate._FEWEST_ROWS", 16)
    translate = migrate.batch(fitted)
    assert translate.rows == 16
    parts = [translate(table.slice(first, 16)) for first in range(0, 150, 16)]
    assert np.array_equal(vectors_in(translate(table)), vectors_in(pa.concat_tables(parts)))


@pytest.mark.slow
def test_a_process_loads_a_pickled_stitch_once_and_needs_none_of_its_files(reading, table, tmp_path):
    reading.save(tmp_path / "stitch")
    translate = migrate.batch(tmp_path / "stitch")
    (tmp_path / "stitch" / "weights.safetensors").unlink()
    (tmp_path / "pickled").write_bytes(pickle.dumps(translate))
    np.save(tmp_path / "here.npy", vectors_in(translate(table)))
    pq.write_table(table, tmp_path / "batch.parquet")
    code = """
import pickle
import numpy as np, pyarrow.parquet as pq
content = open("pickled", "rb").read()
first, second = pickle.loads(content), pickle.loads(pickle.dumps(pickle.loads(content)))
assert first.stitch is second.stitch
there = np.array(first(pq.read_table("batch.parquet"))["vector"].to_pylist(), np.float32)
assert np.array_equal(there, np.load("here.npy"))
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, check=True)


def without(table, row, column, value):
    values = table[column].to_pylist()
    values[row] = value
    return {**{name: table[name].to_pylist() for name in table.column_names}, column: values}


@pytest.mark.parametrize(
    ("column", "value", "error", "message"),
    [
        ("vector", None, VectorError, "document 'X' has no vector of 32 numbers in column 'vector'"),
        ("vector", [1.0] * 31, VectorError, "document 'X' has no vector of 32 numbers in column 'vector'"),
        ("vector", [1.0] * 31 + [np.nan], VectorError, "the batch: NaN, Inf or overflowing vector for document 'X'"),
        ("vector", [0.0] * 32, VectorError, "the batch: zero vector for document 'X'"),
        ("id", None, InputError, "row 7 has no text and no integer in the column of ids 'id', but (None|nan)"),
        ("text", 1.5, InputError, "document 'X' has no text in column 'text', but 1.5"),
    ],
)
@pytest.mark.parametrize("convert", [dict, pd.DataFrame])
def test_a_bad_row_is_named(convert, column, value, error, message, reading, table):
    batch = convert(without(table, 7, column, value))
    with pytest.raises(error, match=message.replace("X", table["id"][7].as_py())):
        migrate.batch(reading)(batch)


@pytest.mark.parametrize("value", [None, [1.0] * 31, [1.0] * 31 + [None]])
def test_a_bad_row_of_arrow_is_named(value, fitted, table):
    lists = pa.array(without(table, 7, "vector", value)["vector"], pa.list_(pa.float32()))
    with pytest.raises(VectorError, match=rf"document '{table['id'][7]}' has no vector of 32 numbers"):
        migrate.batch(fitted)(table.set_column(1, "vector", lists))
    with pytest.raises(VectorError, match="no vector of 32 numbers in column 'text'"):
        migrate.batch(fitted, vectors="text")(table)


def test_an_empty_text_is_read_as_stores_read_it(reading, table):
    translate = migrate.batch(reading)
    empty = vectors_in(translate(without(table, 7, "text", "")))
    assert np.array_equal(vectors_in(translate(without(table, 7, "text", None))), empty)
    assert np.array_equal(vectors_in(translate(pd.DataFrame(without(table, 7, "text", None)))), empty)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"id": ["a"]}, r"no column 'vector', for their old vectors; name it with vectors= \(its columns: id\)"),
        ({"vector": [[1.0] * 32]}, "no column 'id', for the ids of the documents; name it with ids="),
        ({"id": ["a"], "vector": [[1.0] * 32]}, r"no column 'text', for the texts that the ridge\+text stitch reads"),
        ({"id": [], "vector": [], "text": [], "confidence": []}, "has a column 'confidence' already"),
        ([1.0], "a batch is an Arrow table or record batch, a pandas frame or a mapping of arrays, and this is a list"),
    ],
)
def test_a_column_that_is_not_there_is_named(batch, message, reading):
    with pytest.raises(UsageError, match=message):
        migrate.batch(reading)(batch)


ROW = [1.0] * 32


@pytest.mark.parametrize(
    ("ids", "vectors", "texts", "column", "count"),
    [
        (["a", "b"], [ROW], ["x", "y"], "vector", 1),
        (["a", "b"], np.ones((1, 32)), ["x", "y"], "vector", 1),
        (["a", "b"], pa.array([ROW]), ["x", "y"], "vector", 1),
        (["a"], [ROW] * 2, ["x"], "vector", 2),
        (["a"], [ROW, None], ["x"], "vector", 2),
        ([], [ROW] * 3, [], "vector", 3),
        (["a", "b"], [ROW] * 2, ["x"], "text", 1),
        ([], [], ["x"], "text", 1),
    ],
)
def test_columns_of_different_lengths_are_refused(ids, vectors, texts, column, count, reading):
    message = (
        rf"^the batch: column '{column}' has another number of rows \({count}\) than there are ids \({len(ids)}\); "
    )
    with pytest.raises(InputError, match=message):
        migrate.batch(reading)({"id": ids, "vector": vectors, "text": texts})


@pytest.mark.parametrize(("column", "value"), [("id", "a"), ("text", np.array("x")), ("id", 7), ("vector", None)])
def test_a_column_that_is_a_single_value_is_refused(column, value, reading):
    batch = {"id": ["a"], "vector": [ROW], "text": ["x"], column: value}
    with pytest.raises(InputError, match=f"column '{column}' holds "):
        migrate.batch(reading)(batch)


@pytest.mark.parametrize("name", ["id", "vector", "text"])
@pytest.mark.parametrize("convert", [lambda table: table, record_batch_of, frame_of])
def test_a_column_that_is_there_twice_is_refused(convert, name, reading, table):
    batch = convert(table.append_column("again", table[name]).rename_columns([*table.column_names, name]))
    with pytest.raises(UsageError, match=rf"the batch has 2 columns '{name}', for .*; leave one, or name it with "):
        migrate.batch(reading)(batch)


def test_a_stitch_that_no_engine_can_run_is_refused(old, reading, fitted):
    with pytest.raises(StitchError, match="maps new queries into the old space"):
        migrate.batch(fit(old, direction="query"))
    reader = dataclasses.replace(reading.reader, models={"tfidf:8": load_embedder("tfidf:8")})
    with pytest.raises(StitchError, match="reads texts by tfidf:8"):
        migrate.batch(dataclasses.replace(reading, reader=reader))
    with pytest.raises(StitchError, match="reads texts, but the store has none; fit it again"):
        migrate.batch(dataclasses.replace(reading, fallback=None), texts=None)


@pytest.mark.parametrize("kind", ["ridge", "reading"])
def test_a_finished_store_is_the_one_that_translate_writes(kind, old, table, fitted, reading, tmp_path):
    stitch = fitted if kind == "ridge" else reading
    migrate.translate(old, stitch, tmp_path / "translated")
    translate = migrate.batch(stitch)
    whole = pq.read_table(old / "part-00000.parquet")  # with notes of its columns in the schema
    made = written(tmp_path / "made", translate(whole))
    assert translate.finish(old, made, tmp_path / "same").n_true == 60
    assert contents(tmp_path / "same") == contents(tmp_path / "translated")
    shuffled = translate(table).take(np.random.default_rng(0).permutation(150))
    made = written(tmp_path / "shuffled", shuffled.slice(0, 70), shuffled.slice(70))
    translate.finish(str(old), f"parquet:{made}", tmp_path / "ordered")
    assert contents(tmp_path / "ordered") == contents(tmp_path / "translated")


def test_a_store_of_any_kind_is_finished_under_the_names_of_its_own(source_folder, table, fitted, tmp_path):
    stitch = fit(source_folder)
    translate = migrate.batch(stitch, ids="key", vectors="old", confidence="sure")
    assert repr(translate) == "<BatchFunction ridge: key, old -> key, old, sure>"
    made = written(tmp_path / "made", translate(table.rename_columns(["key", "old", "text"])))
    translate.finish(open_store(source_folder), made / "0.parquet", tmp_path / "new")
    migrate.translate(source_folder, stitch, tmp_path / "translated")
    assert contents(tmp_path / "new") == contents(tmp_path / "translated")


def test_another_store_gets_no_true_vectors(source_folder, old, table, fitted, tmp_path):
    """Nor does the store of the stitch itself, where they were left out."""
    translate = migrate.batch(fitted, any_store=True)
    half = translate(table.slice(0, 75))
    assert not (half["confidence"].to_numpy() == 1).any()
    assert translate.finish(old, written(tmp_path / "all", translate(table)), tmp_path / "new").n_true == 0
    grown = tmp_path / "grown"
    grown.mkdir()
    pq.write_table(table.slice(0, 75), grown / "half.parquet")
    made = written(tmp_path / "made", half)
    assert translate.finish(grown, made, tmp_path / "half").n_true == 0
    migrate.translate(grown, fitted, tmp_path / "translated", any_store=True)
    assert contents(tmp_path / "half") == contents(tmp_path / "translated")
    with pytest.raises(StitchError, match="was fitted on another store"):
        migrate.batch(fitted).finish(grown, made, tmp_path / "other")


@pytest.mark.slow
def test_a_store_without_texts_is_finished_by_the_fallback(bare_folder, source_folder, table, tmp_path):
    fit(source_folder, kind="ridge+text").save(tmp_path / "stitch")
    translate = migrate.batch(tmp_path / "stitch", texts=None)
    assert not translate.fitted.reads_texts
    translate = pickle.loads(pickle.dumps(translate))
    made = written(tmp_path / "made", translate(table.select(["id", "vector"])))
    done = translate.finish(bare_folder, made, tmp_path / "new")
    assert done.fallback is not None
    migrate.translate(bare_folder, tmp_path / "stitch", tmp_path / "translated")
    assert contents(tmp_path / "new") == contents(tmp_path / "translated")


@pytest.fixture
def finish(old, fitted, tmp_path):
    """Finishes a store of what an engine has written, a table or several."""

    def finish(*tables, **options):
        made = written(tmp_path / "made", *tables)
        return migrate.batch(fitted).finish(old, made, tmp_path / "new", **options)

    yield finish
    assert not (tmp_path / "new").exists()


def changed(table, row, column, value):
    values = table[column].to_pylist()
    values[row] = value
    index = table.schema.get_field_index(column)
    return table.set_column(index, column, pa.array(values, table.schema.field(column).type))


def test_vectors_that_are_not_of_the_documents_of_the_store_are_refused(finish, fitted, table):
    done = migrate.batch(fitted)(table)
    with pytest.raises(StoreError, match=f"2 of the 150 documents of .* '{table['id'][0]}'"):
        finish(done.slice(2))


def test_vectors_of_more_documents_are_refused(finish, fitted, table):
    done = migrate.batch(fitted)(table)
    more = changed(done.slice(0, 1), 0, "id", "another")
    with pytest.raises(StoreError, match="151 vectors for the 150 documents"):
        finish(done, more)


def test_a_document_with_two_vectors_is_refused(finish, fitted, table):
    done = migrate.batch(fitted)(table)
    with pytest.raises(StoreError, match=f"duplicate id '{table['id'][3]}'"):
        finish(done, done.slice(3, 1))


def test_the_old_vectors_are_refused_in_the_place_of_the_new(finish, table):
    with pytest.raises(StoreError, match=r"dimension 32, .* 24"):
        finish(table.replace_schema_metadata(None))


def test_vectors_without_confidence_are_refused(finish, fitted, table):
    with pytest.raises(StoreError, match="no column 'confidence' holds numbers"):
        finish(migrate.batch(fitted)(table).drop_columns(["confidence"]))


def test_vectors_of_another_stitch_are_refused(finish, old, table):
    """Even where both have the true vectors of the same documents."""
    other = migrate.batch(fit(old, kind="procrustes"))(table)
    with pytest.raises(StitchError, match=r"not what this stitch makes of .*old"):
        finish(other)


def test_true_vectors_are_held_against_the_sample_one_by_one(finish, fitted, table):
    done = migrate.batch(fitted)(table)
    row = table["id"].to_pylist().index(fitted.sample.ids[31])
    vector = done["vector"][row].as_py()
    with pytest.raises(StitchError, match=f"the vector or confidence of '{fitted.sample.ids[31]}' is not"):
        finish(changed(done, row, "vector", [*vector[1:], vector[0]]))


def predicted_rows(fitted, table):
    """The rows of the documents that are not of the sample."""
    true, _ = fitted.sample.positions(table["id"].to_pylist())
    return [row for row in range(len(table)) if row not in set(true.tolist())]


@pytest.mark.parametrize("value", [None, np.nan, 2.0, -3.0, np.inf])
def test_a_confidence_that_is_no_cosine_is_refused(value, finish, fitted, table):
    row = predicted_rows(fitted, table)[1]
    with pytest.raises(StitchError, match=f"the vector or confidence of '{table['id'][row]}' is not what"):
        finish(changed(migrate.batch(fitted)(table), row, "confidence", value), compared=1)


def swapped(table, row, other):
    """The table with what was made of two documents exchanged, ids aside."""
    order = np.arange(len(table))
    order[[row, other]] = other, row
    return table.take(order).set_column(0, "id", table["id"])


def test_two_vectors_that_were_exchanged_are_refused(finish, fitted, table):
    first, second = predicted_rows(fitted, table)[1:3]
    with pytest.raises(StitchError, match=f"the vector or confidence of '{table['id'][first]}' is not what"):
        finish(swapped(migrate.batch(fitted)(table), first, second))


def test_a_stitch_that_reads_texts_compares_a_few_vectors_unless_told(old, reading, table, tmp_path):
    translate = migrate.batch(reading)
    first, second = predicted_rows(reading, table)[1:3]
    made = written(tmp_path / "made", swapped(translate(table), first, second))
    with pytest.raises(StitchError, match=f"the vector or confidence of '{table['id'][first]}' is not what"):
        translate.finish(old, made, tmp_path / "new", compared=1_000_000)
    translate.finish(old, made, tmp_path / "new")


def test_fewer_vectors_are_compared_where_that_is_asked_for(old, fitted, table, tmp_path):
    translate = migrate.batch(fitted)
    first, second = predicted_rows(fitted, table)[1:3]
    made = written(tmp_path / "made", swapped(translate(table), first, second))
    with pytest.raises(UsageError, match="compared: 0 is too few; give at least 1"):
        translate.finish(old, made, tmp_path / "new", compared=0)
    translate.finish(old, made, tmp_path / "new", compared=1)


def test_a_stitch_without_confidence_makes_none(old, fitted, table, tmp_path):
    unsure = dataclasses.replace(fitted, selection=dataclasses.replace(fitted.selection, confidence=None))
    translate = migrate.batch(unsure)
    done = translate(table)
    translate.finish(old, written(tmp_path / "made", done), tmp_path / "new")
    migrate.translate(old, unsure, tmp_path / "translated")
    assert contents(tmp_path / "new") == contents(tmp_path / "translated")
    row = predicted_rows(fitted, table)[1]
    claimed = written(tmp_path / "claimed", changed(done, row, "confidence", 0.5))
    with pytest.raises(StitchError, match=f"the vector or confidence of '{table['id'][row]}' is not what"):
        translate.finish(old, claimed, tmp_path / "other")


@pytest.mark.parametrize("value", [[np.nan] * 24, [0.0] * 24])
def test_a_new_vector_that_is_none_is_refused(value, finish, fitted, table):
    with pytest.raises(VectorError, match=f"vector for document '{table['id'][5]}'"):
        finish(changed(migrate.batch(fitted)(table), 5, "vector", value))


def test_a_store_is_not_written_over_what_was_made_or_is_there(old, fitted, table, tmp_path):
    translate = migrate.batch(fitted)
    made = written(tmp_path / "made", translate(table))
    for output in (made, made / "new", old):
        with pytest.raises(UsageError):
            translate.finish(old, made, output, force=True)
    translate.finish(old, made, tmp_path / "new")
    with pytest.raises(UsageError, match="exists"):
        translate.finish(old, made, tmp_path / "new")
    translate.finish(old, made, tmp_path / "new", force=True)
    assert contents(made).keys() == {"0.parquet"}


@pytest.mark.slow
def test_audit_and_switch_take_a_finished_store(old, fitted, table, beir, tmp_path):
    translate = migrate.batch(fitted)
    translate.finish(old, written(tmp_path / "made", translate(table)), f"parquet:{tmp_path / 'new'}")
    migrate.reembed(old, "tfidf:24", tmp_path / "full")
    result = run_audit(Audit(tmp_path / "new", tmp_path / "full", judged=beir, source=old).open().inputs)
    kept = migrate.Bounds(0.99, 0.97, 1.0)
    verdict = dataclasses.replace(
        result.verdict, outcome=migrate.Outcome.SAFE, retention=kept, gain_over_stay=None, doubts=()
    )
    examination = dataclasses.replace(result.examination, findings=())
    safe = report_of(dataclasses.replace(result, verdict=verdict, examination=examination))
    current = tmp_path / "current"
    migrate.reembed(old, "tfidf:32", f"parquet:{current}")
    assert migrate.switch(current, tmp_path / "new", safe).proven
    assert open_store(current).info.manifest.model.spec == "tfidf:24"


def test_a_finish_that_broke_off_goes_on_with_the_same_vectors_alone(source_folder, table, tmp_path, monkeypatch):
    monkeypatch.setattr("migrate.translate._BATCH_BYTES", 4 * 32 * 16)
    monkeypatch.setattr("migrate.translate._FEWEST_ROWS", 16)
    monkeypatch.setattr("migrate.steps.translate.job._PART_BYTES", 4 * 24 * 32)
    translate = migrate.batch(fit(source_folder))
    made = written(tmp_path / "made", translate(table))
    again = written(tmp_path / "again", translate(table).take([*range(149, -1, -1)]))
    done = []

    def stop(_stage, rows, _total):
        done.append(rows)
        if rows >= 64:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        translate.finish(source_folder, made, tmp_path / "new", progress=stop)
    assert not (tmp_path / "new").exists()
    with pytest.raises(UsageError, match=r"other values of vectors; .* `restart=True`"):
        translate.finish(source_folder, again, tmp_path / "new")
    with pytest.raises(UsageError, match=r"other values of compared; .* `restart=True`"):
        translate.finish(source_folder, made, tmp_path / "new", compared=1)
    done.clear()
    translate.finish(source_folder, made, tmp_path / "new", progress=lambda _stage, rows, _total: done.append(rows))
    assert min(done) >= 32
    translate.finish(source_folder, again, tmp_path / "other")
    assert contents(tmp_path / "new") == contents(tmp_path / "other")


def test_vectors_of_other_texts_than_those_of_the_store_are_refused(old, reading, table, tmp_path):
    other = changed(table, 0, "text", "another text altogether, of zebras and oranges")
    made = written(tmp_path / "made", migrate.batch(reading, any_store=True)(other))
    with pytest.raises(StitchError, match=f"the vector or confidence of '{table['id'][0]}' is not what"):
        migrate.batch(reading, any_store=True).finish(old, made, tmp_path / "new")
