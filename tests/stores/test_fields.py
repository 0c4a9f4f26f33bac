"""New vectors in a further field of the same records: translated, asked, dropped; by the real things."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import sync_tools as tools
from children import call_in_child, run_command
from kind_base import place_of
from kind_faiss import Faiss
from kinds import kind_class
from sync_tools import Hashed, record, some_records, truth

import migrate
from migrate.databases.driver import open_field
from migrate.databases.store import DatabaseStore
from migrate.errors import InputError, StoreError, UsageError
from migrate.files import state_folder
from migrate.live.searcher import LiveSearcher
from migrate.steps.switch import forget, switch
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence
from migrate.stores.faiss.search import open_search
from migrate.stores.parquet.kind import LocalParquetStore

DATABASES = ["pgvector", "lancedb", "qdrant", "qdrant-server"]
KINDS = [*DATABASES, "parquet"]
FIELD = "embedding_new"


@pytest.fixture(params=KINDS)
def kind(request, kind_of):
    kind = kind_of(request.param)
    if request.param in ("qdrant", "qdrant-server"):
        kind.vector = "old"
    return kind


@pytest.fixture
def old(kind, tmp_path):
    return kind.make(tmp_path / "old", some_records())


@pytest.fixture
def stitch(old, tmp_path):
    migrate.fit(old, Hashed(), kind="ridge", sample=40).save(tmp_path / "stitch")
    return tmp_path / "stitch"


def field_at(location, field=FIELD):
    location = without_vector(location).rstrip("?&")
    return f"{location}{'&' if '?' in location.rpartition('#')[2] else '?'}vector={field}"


def main_vector(location):
    store = open_store(location)
    return store.columns.vector if isinstance(store, LocalParquetStore) else store.rows.vector


def without_vector(location):
    """The location without the field that is asked for where none is added."""
    return re.sub(r"vector=\w+&?", "", location)


def vectors_by_id(location):
    found = read_all(open_store(location).scan())
    return dict(zip(found.ids, found.vectors, strict=True))


def same(first, second):
    return first.keys() == second.keys() and all((first[name] == second[name]).all() for name in first)


def test_the_field_has_the_vectors_of_a_translation_and_the_old_one_is_as_it_was(old, stitch, tmp_path):
    before, documents = vectors_by_id(old), list(open_store(old).documents())
    done = migrate.translate(old, stitch, into=FIELD)
    assert (done.count, done.target_dim, done.remarks) == (len(before), tools.TARGET_DIM, ())
    migrate.translate(old, stitch, tmp_path / "new")
    assert same(vectors_by_id(old), before)
    assert same(vectors_by_id(done.path), vectors_by_id(tmp_path / "new"))
    assert list(open_store(old).documents()) == documents == list(open_store(field_at(old)).documents())
    field = open_store(field_at(old))
    assert field.info.manifest.model.spec == "hashed"
    assert (stored_confidence(field) == 1).sum() == done.n_true == 40
    assert open_store(old).info.manifest is None


def test_the_field_is_searched_by_the_new_model(old, stitch):
    migrate.translate(old, stitch, into=FIELD)
    expected = vectors_by_id(field_at(old))
    query = truth("a query")
    (hits,) = open_search(open_store(field_at(old))).search(np.array([query]), 5)
    nearest = sorted(float(((vector - query) ** 2).sum()) for vector in expected.values())[:5]
    np.testing.assert_allclose(hits.scores, nearest, rtol=1e-5)
    assert hits.ids[0] == min(expected, key=lambda name: float(((expected[name] - query) ** 2).sum()))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_command_says_before_it_begins_that_programs_of_lancedb_must_name_their_column(tmp_path):
    old = kind_class("lancedb")().make(tmp_path / "old", some_records())
    for dim in (tools.TARGET_DIM, tools.DIM):
        migrate.fit(old, Hashed(f"of {dim}", dim), kind="ridge", sample=40).save(tmp_path / f"stitch-{dim}")
        typed = ["translate", old, tmp_path / f"stitch-{dim}", "--into", f"new_{dim}"]
        code, printed = run_command(list(map(str, typed)), tmp_path)
        assert code == 0 and f"?vector=new_{dim}: 200 vectors" in printed
        assert ("must name the column 'vector'" in printed) == (dim == tools.DIM)


MOMENTS = ["recorded:2", "complete:1", "field noted:1", "batch written:1", "batch written:3", "field kept:1"]
KILLS = [("pgvector", moment) for moment in MOMENTS]
# what differs from database to database is how a batch is written
KILLS += [(kind, "batch written:3") for kind in DATABASES if kind != "pgvector"]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "moment"), KILLS, indirect=["kind"])
def test_a_run_that_was_killed_goes_on(old, stitch, moment, tmp_path):
    before = vectors_by_id(old)
    call_in_child(tools.translate_into, old, stitch, FIELD, point=moment)
    assert same(vectors_by_id(old), before)
    if moment != "field kept:1":
        with pytest.raises(StoreError, match=r"being written|no .*vector"):
            open_store(field_at(old))
    assert call_in_child(tools.translate_into, old, stitch, FIELD) == ()
    migrate.translate(old, stitch, tmp_path / "new")
    assert same(vectors_by_id(field_at(old)), vectors_by_id(tmp_path / "new"))
    assert same(vectors_by_id(old), before)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DATABASES, indirect=True)
def test_a_field_whose_unfinished_work_is_gone_is_replaced_only_if_asked(old, stitch, tmp_path):
    call_in_child(tools.translate_into, old, stitch, FIELD, point="batch written:1")
    (work,) = (state_folder() / "outputs").glob(f".*{FIELD}*work")
    shutil.rmtree(work)  # from here on the field may be anybody's
    with pytest.raises(UsageError, match="work folder is gone"):
        migrate.translate(old, stitch, into=FIELD)
    migrate.translate(old, stitch, into=FIELD, force=True)
    migrate.translate(old, stitch, tmp_path / "new")
    assert same(vectors_by_id(field_at(old)), vectors_by_id(tmp_path / "new"))


@pytest.mark.slow
def test_a_field_of_somebody_else_is_not_written_over(tmp_path):
    import lancedb

    kind = kind_class("lancedb")()
    old = kind.make(tmp_path / "old", some_records())
    migrate.fit(old, Hashed(), kind="ridge", sample=40).save(tmp_path / "stitch")
    call_in_child(tools.translate_into, old, tmp_path / "stitch", FIELD, point="field noted:1")
    place, name = str(old).removeprefix("lancedb:").split("#")
    table = lancedb.connect(place).open_table(name)
    theirs = (
        f"arrow_cast(make_array({', '.join(['1.5'] * tools.TARGET_DIM)}), 'FixedSizeList({tools.TARGET_DIM}, Float32)')"
    )
    table.add_columns({FIELD: theirs})
    refusal = call_in_child(tools.refusal_to_translate_into, old, tmp_path / "stitch", FIELD)
    assert "made by somebody else since; choose another name" in refusal
    rows = lancedb.connect(place).open_table(name).to_arrow()[FIELD].to_pylist()
    assert rows == [[1.5] * tools.TARGET_DIM] * len(some_records())


@pytest.mark.parametrize("kind", ["parquet"], indirect=True)  # whose names pass the same check
@pytest.mark.parametrize("name", ["_rowid", "_distance", "1st", "a b"])
def test_a_name_that_is_none_for_a_field_is_refused(old, stitch, name):
    with pytest.raises(UsageError, match="is no name for a field; begin with a letter"):
        migrate.translate(old, stitch, into=name)


def later(records):
    """The records, one of them deleted, one with another text and vector, one more."""
    after = {name: records[name] for name in records if name != "doc-007"}
    after["doc-009"] = record("doc-009", "another text", 9)
    return after | {"doc-new": record("doc-new", "what is new", 1)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DATABASES, indirect=True)
def test_what_comes_and_goes_before_the_vectors_are_written_is_told_and_another_run_brings_it(
    kind, old, stitch, tmp_path
):
    records = some_records()
    call_in_child(tools.translate_into, old, stitch, FIELD, point="batch written:2")
    kind.change(old, records, later(records))
    (remark,) = call_in_child(tools.translate_into, old, stitch, FIELD)
    assert "1 documents were added, 1 changed and 1 deleted" in remark and "`translate --into`" in remark
    before = vectors_by_id(field_at(old))
    assert before.keys() == records.keys() - {"doc-007"}
    with pytest.raises(UsageError, match=r"`translate --into` again, with --force"):
        migrate.sync(old, field_at(old), target=Hashed())
    done = migrate.translate(old, stitch, into=FIELD, force=True, any_store=True)
    migrate.translate(old, stitch, tmp_path / "new", any_store=True)
    now = vectors_by_id(field_at(old))
    assert done.remarks == () and now.keys() == later(records).keys()
    assert same(now, vectors_by_id(tmp_path / "new"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", DATABASES, indirect=True)
def test_a_field_is_replaced_where_it_is_and_a_run_that_was_killed_goes_on_by_force_alone(old, stitch, tmp_path):
    migrate.translate(old, stitch, into=FIELD)
    migrate.fit(old, Hashed("other"), kind="ridge", sample=100).save(tmp_path / "other")
    call_in_child(tools.translate_into, old, tmp_path / "other", FIELD, True, point="batch written:2")
    field = open_field(open_store(old).rows, FIELD)  # programs find a vector in each record meanwhile
    assert sum(len(page.ids) for page in field.pages()) == len(some_records())
    assert "add `force=True`" in call_in_child(tools.refusal_to_translate_into, old, tmp_path / "other", FIELD)
    call_in_child(tools.translate_into, old, tmp_path / "other", FIELD, True)
    migrate.translate(old, tmp_path / "other", tmp_path / "new")
    assert same(vectors_by_id(field_at(old)), vectors_by_id(tmp_path / "new"))
    assert open_store(field_at(old)).info.manifest.model.spec == "other"


def test_a_change_before_all_vectors_are_made_is_refused(kind, old, stitch):
    records = some_records()
    call_in_child(tools.translate_into, old, stitch, FIELD, point="recorded:2")
    kind.change(old, records, later(records))
    with pytest.raises(InputError, match="another store"):
        migrate.translate(old, stitch, into=FIELD)
    with pytest.raises(StoreError):
        open_store(field_at(old))


def test_a_live_searcher_answers_from_the_field_and_true_vectors_go_into_it(old, stitch, tmp_path):
    before = vectors_by_id(old)
    migrate.translate(old, stitch, into=FIELD)
    field = open_store(field_at(old))
    document = next(field.documents(np.array([3])))
    with LiveSearcher(field_at(old), Hashed(), cache=tmp_path / "cache.sqlite") as searcher:
        assert set(searcher.search(document.text, 3).ids) < before.keys()
    if not isinstance(field, DatabaseStore):  # of files true vectors are written by `backfill`
        return
    assert field.records.put([document.id], np.array([truth(document.text)])) == 1
    np.testing.assert_allclose(vectors_by_id(field_at(old))[document.id], truth(document.text), atol=1e-6)
    assert same(vectors_by_id(old), before)


def test_a_field_is_not_switched_to_and_the_error_says_what_to_do(old, stitch):
    migrate.translate(old, stitch, into=FIELD)
    with pytest.raises(UsageError, match=rf"let your programs ask '{FIELD}'; `forget` drops"):
        switch(old, field_at(old), unproven=True)


def test_forget_drops_the_old_field_and_the_new_one_stays(old, stitch):
    main = main_vector(old)
    migrate.translate(old, stitch, into=FIELD)
    new = vectors_by_id(field_at(old))
    with pytest.raises(UsageError, match="nothing was switched"):
        forget(old)
    assert forget(field_at(old, main)).field.endswith(f"vector={main}")
    plain = without_vector(old)
    assert same(vectors_by_id(plain), new) and same(vectors_by_id(field_at(plain)), new)
    assert open_store(plain).info.manifest.model.spec == "hashed"
    with pytest.raises(UsageError, match="there is no such field, or none any more"):
        forget(field_at(old, main))


def test_forget_drops_the_new_field_and_the_old_one_stays(old, stitch):
    before, documents = vectors_by_id(old), list(open_store(old).documents())
    migrate.translate(old, stitch, into=FIELD)
    forget(field_at(old))
    assert same(vectors_by_id(old), before) and list(open_store(old).documents()) == documents
    with pytest.raises(StoreError):
        open_store(field_at(old))
    assert migrate.translate(old, stitch, into=FIELD).count == len(before)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DATABASES, indirect=True)
def test_forget_drops_a_field_that_is_half_written(old, stitch):
    before = vectors_by_id(old)
    call_in_child(tools.translate_into, old, stitch, FIELD, point="batch written:2")
    forget(field_at(old))
    assert FIELD not in open_store(old).rows.fields.names() and same(vectors_by_id(old), before)


def test_a_field_that_stands_beside_none_is_not_dropped(old):
    with pytest.raises(UsageError, match="nothing was switched here"):
        forget(field_at(old, main_vector(old)))
    assert len(vectors_by_id(old)) == len(some_records())


@pytest.mark.slow
def test_a_forget_that_was_killed_is_finished(kind, old, stitch):
    main = main_vector(old)
    migrate.translate(old, stitch, into=FIELD)
    new = vectors_by_id(field_at(old))
    point = "column exchanged:1" if isinstance(open_store(old), LocalParquetStore) else "field dropped:1"
    call_in_child(forget, field_at(old, main), point=point)
    with pytest.raises(UsageError, match="none any more"):
        forget(field_at(old, main))
    assert same(vectors_by_id(without_vector(old)), new)
    if isinstance(open_store(old), LocalParquetStore):
        place = Path(place_of(old))
        assert not [path for path in place.parent.iterdir() if path.name.endswith(".dropping")]


@pytest.mark.slow
def test_a_column_that_something_depends_on_is_not_dropped(tmp_path):
    import psycopg

    old = kind_class("pgvector")().make(tmp_path / "old", some_records())
    fitted = migrate.fit(old, Hashed(), kind="ridge", sample=40)
    other = migrate.fit(old, Hashed("other", 5), kind="ridge", sample=40)
    migrate.translate(old, fitted, into=FIELD)
    before, rows = vectors_by_id(old), open_store(old).rows
    main = field_at(old, rows.vector)
    place, table = rows.driver.address.place, rows.table.path[1]
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute(f'CREATE VIEW reading AS SELECT "{rows.vector}" FROM "{table}"')
        connection.execute("CREATE VIEW reading_further AS SELECT * FROM reading")
        try:
            with pytest.raises(UsageError, match=r"view reading .*; view reading_further "):
                forget(main)
            code, printed = run_command(["forget", main, "--dry-run"], tmp_path)
            assert code == 2 and "view reading depends" in printed
            assert same(vectors_by_id(old), before)
            connection.execute(f'CREATE VIEW reading_new AS SELECT "{FIELD}" FROM "{table}"')
            with pytest.raises(UsageError, match=r"view reading_new depends .* nothing was changed"):
                migrate.translate(old, other, into=FIELD, force=True)
            assert len(vectors_by_id(field_at(old))) == len(before)
            migrate.translate(old, fitted, into=FIELD, force=True)  # of the same dimension: no column is dropped
        finally:
            connection.execute("DROP VIEW IF EXISTS reading, reading_further, reading_new")
    forget(main)
    assert rows.vector not in open_store(field_at(old)).rows.fields.names()


def test_the_manifest_of_a_field_says_which_stitch_made_it(old, stitch):
    main = main_vector(old)
    migrate.translate(old, stitch, into=FIELD)
    manifest = open_store(field_at(old)).info.manifest
    assert (manifest.store.stitch, manifest.store.added_beside) == ("ridge", main)
    assert load_stitch(stitch).manifest.stitch.files.items() <= manifest.inputs.items()
    assert manifest.inputs["source rows"] == open_store(old).snapshot().rows_sha256


def test_a_field_of_an_earlier_version_is_refused_by_the_commit_that_reads_it(kind, old, stitch):
    migrate.translate(old, stitch, into=FIELD)
    if old.startswith("pgvector:"):
        rows = open_store(old).rows
        schema, table = rows.table.path
        rows.session.write_files(schema, f"{table}.{FIELD}", {"field.json": b"{}"})
    else:
        store = open_store(field_at(old))
        (store.folder / "field.json").write_text("{}")
    with pytest.raises(StoreError, match=rf"field\.json .*{FIELD}.*0a3df1b0"):
        open_store(old)


def test_names_and_kinds_that_cannot_be_are_refused(old, stitch, tmp_path):
    for name in ("", "two words", "x" * 64):
        with pytest.raises(UsageError, match="no name for a field"):
            migrate.translate(old, stitch, into=name)
    with pytest.raises(UsageError, match="nothing says where"):
        migrate.translate(old, stitch)
    with pytest.raises(UsageError, match="exclude each other"):
        migrate.translate(old, stitch, tmp_path / "new", into=FIELD)
    migrate.translate(old, stitch, tmp_path / "new")
    with pytest.raises(UsageError, match="gets no second field"):
        migrate.translate(Faiss().make(tmp_path / "faiss", some_records()), stitch, into=FIELD, any_store=True)


def test_a_field_is_replaced_by_force_alone(old, stitch, tmp_path):
    migrate.translate(old, stitch, into=FIELD)
    with pytest.raises(UsageError, match="exists"):
        migrate.translate(old, stitch, into=FIELD)
    migrate.fit(old, Hashed("other", 5), kind="ridge", sample=40).save(tmp_path / "other")
    migrate.translate(old, tmp_path / "other", into=FIELD, force=True)
    assert open_store(field_at(old)).info.dim == 5


def test_a_field_of_others_is_left_alone(old, stitch):
    with pytest.raises(UsageError, match="not made by this tool"):
        migrate.translate(old, stitch, into=main_vector(old), force=True)


def test_a_vector_of_qdrant_without_a_name_gets_another_beside_it_and_stays(kind_of, tmp_path):
    old = kind_of("qdrant-server").make(tmp_path, some_records())
    before, fitted = vectors_by_id(old), migrate.fit(old, Hashed(), kind="ridge", sample=40)
    migrate.translate(old, fitted, into=FIELD)
    assert same(vectors_by_id(old), before) and len(vectors_by_id(field_at(old))) == len(before)
    with pytest.raises(UsageError, match="has no name, so the old one stays"):
        forget(field_at(old, ""))
    assert same(vectors_by_id(old), before)
    forget(field_at(old))
    assert same(vectors_by_id(old), before)
