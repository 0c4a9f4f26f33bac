"""New vectors in a further field of the same records: translated, asked, dropped; by the real things."""

import re
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import sync_tools as tools
from children import call_in_child
from dying import interrupt_at
from kind_base import place_of
from kind_faiss import Faiss
from kind_parquet import Parquet
from kinds import kind_class
from sync_tools import Hashed, record, some_records, truth

import migrate
from migrate.cli.main import run
from migrate.databases.driver import open_field
from migrate.databases.store import DatabaseStore
from migrate.errors import InputError, StoreError, UsageError
from migrate.live.searcher import LiveSearcher
from migrate.steps.switch import forget, switch
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence
from migrate.stores.faiss.search import open_search
from migrate.stores.parquet.kind import LocalParquetStore

# Of databases, some of them servers; the quick tests try what is alike of all stores on files
pytestmark = pytest.mark.slow

DATABASES = ["pgvector", "lancedb", "qdrant", "qdrant-server"]
KINDS = [*DATABASES, "parquet"]
FIELD = "embedding_new"
COUNT, SAMPLE = 120, 40
RECORDS = some_records(COUNT)
BY_ID = dict(sorted(RECORDS.items()))
"""As databases are read; files are read as they were written."""


@pytest.fixture(scope="module", autouse=True)
def _own_folders(tmp_path_factory):
    """The caches and notes of all tests: what lies beside a field of a server outlives the test that added it."""
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        yield


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Kinds by name; a server ends with the module."""
    with ExitStack() as ends:
        yield cache(lambda name: kind_class(name).started(ends, tmp_path_factory.mktemp(name)))


@pytest.fixture(scope="module", params=KINDS)
def kind(request, started):
    kind = started(request.param)
    if request.param in ("qdrant", "qdrant-server"):
        kind.vector = "old"
    return kind


def make(kind, folder):
    return kind.make(folder, BY_ID if isinstance(kind, Parquet) else RECORDS)


@pytest.fixture
def old(kind, tmp_path):
    return make(kind, tmp_path / "old")


@pytest.fixture(scope="module")
def origin(kind, tmp_path_factory):
    return make(kind, tmp_path_factory.mktemp("origin") / "old")


@pytest.fixture(scope="module")
def stitch_to(origin, tmp_path_factory):
    """Stitches to models, each fitted once: they fit any store of the kind that has the records."""
    folder = tmp_path_factory.mktemp("stitches")

    def fitted(name="hashed", dim=tools.TARGET_DIM, sample=SAMPLE):
        migrate.fit(origin, Hashed(name, dim), kind="ridge", sample=sample).save(folder / name)
        return folder / name

    return cache(fitted)


@pytest.fixture(scope="module")
def stitch(stitch_to):
    return stitch_to()


@pytest.fixture(scope="module")
def flat(tmp_path_factory):
    """The same records in a store that gets no second field, and that takes no time."""
    return Faiss().make(tmp_path_factory.mktemp("flat") / "old", BY_ID)


@pytest.fixture(scope="module")
def translated_to(flat, tmp_path_factory):
    """The vectors of that store, translated to a model."""
    folder = tmp_path_factory.mktemp("translated")

    def vectors(name="hashed", sample=SAMPLE):
        stitch = migrate.fit(flat, Hashed(name), kind="ridge", sample=sample)
        return vectors_by_id(migrate.translate(flat, stitch, folder / name).path)

    return cache(vectors)


@pytest.fixture(scope="module")
def translated(translated_to):
    return translated_to()


@dataclass
class Added:
    old: str
    before: dict
    documents: list
    done: object

    @property
    def field(self):
        return field_at(self.old)


@pytest.fixture(scope="module")
def added(origin, stitch):
    """A store that has the field; no test changes it."""
    before, documents = vectors_by_id(origin), list(open_store(origin).documents())
    return Added(origin, before, documents, migrate.translate(origin, stitch, into=FIELD))


@pytest.fixture
def in_parts(old, monkeypatch):
    """Few rows at a time are translated, and written."""
    tools.translate_few_at_once(old, monkeypatch.setattr)


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


def interrupted(moment, *arguments, **options):
    """Translate until somebody types Ctrl-C at a moment."""
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(moment, patch)
        with pytest.raises(KeyboardInterrupt):
            migrate.translate(*arguments, into=FIELD, **options)


def test_the_field_has_the_vectors_of_a_translation_and_the_old_one_is_as_it_was(added, translated):
    assert (added.done.count, added.done.target_dim, added.done.remarks) == (COUNT, tools.TARGET_DIM, ())
    assert same(vectors_by_id(added.old), added.before)
    assert same(vectors_by_id(added.done.path), translated)
    assert list(open_store(added.old).documents()) == added.documents == list(open_store(added.field).documents())
    field = open_store(added.field)
    assert field.info.manifest.model.spec == "hashed"
    assert (stored_confidence(field) == 1).sum() == added.done.n_true == SAMPLE
    assert open_store(added.old).info.manifest is None


def test_the_manifest_of_a_field_says_which_stitch_made_it(added, stitch):
    manifest = open_store(added.field).info.manifest
    assert (manifest.store.stitch, manifest.store.added_beside) == ("ridge", main_vector(added.old))
    assert load_stitch(stitch).manifest.stitch.files.items() <= manifest.inputs.items()
    assert manifest.inputs["source rows"] == open_store(added.old).snapshot().rows_sha256


def test_the_field_is_searched_by_the_new_model(added, translated):
    query = truth("a query")
    (hits,) = open_search(open_store(added.field)).search(np.array([query]), 5)
    nearest = sorted(float(((vector - query) ** 2).sum()) for vector in translated.values())[:5]
    np.testing.assert_allclose(hits.scores, nearest, rtol=1e-5)
    assert hits.ids[0] == min(translated, key=lambda name: float(((translated[name] - query) ** 2).sum()))


def test_a_live_searcher_answers_from_the_field(added, tmp_path):
    document = next(open_store(added.field).documents(np.array([3])))
    with LiveSearcher(added.field, Hashed(), cache=tmp_path / "cache.sqlite") as searcher:
        assert set(searcher.search(document.text, 3).ids) < added.before.keys()


def test_a_field_is_not_switched_to_and_the_error_says_what_to_do(added):
    with pytest.raises(UsageError, match=f"'{FIELD}'; `forget`"):
        switch(added.old, added.field, unproven=True)


def test_a_field_of_others_is_left_alone(added, stitch):
    main = main_vector(added.old)
    with pytest.raises(UsageError, match=f"'{main}'.*not made by this tool"):
        migrate.translate(added.old, stitch, into=main, force=True)


@pytest.mark.parametrize("kind", ["parquet"], indirect=True)  # whose names and options pass the same checks
@pytest.mark.parametrize("name", ["", "two words", "x" * 64, "_rowid", "_distance", "1st", "a b"])
def test_a_name_that_is_none_for_a_field_is_refused(added, stitch, name):
    with pytest.raises(UsageError, match=rf"{name!r} is no name"):
        migrate.translate(added.old, stitch, into=name)


@pytest.mark.parametrize("kind", ["parquet"], indirect=True)
def test_the_new_vectors_go_to_one_place(added, flat, stitch, tmp_path):
    with pytest.raises(UsageError, match=r"`output=`.*`into=`|new field"):
        migrate.translate(added.old, stitch)
    with pytest.raises(UsageError, match="`output=` and `into=`"):
        migrate.translate(added.old, stitch, tmp_path / "new", into=FIELD)
    assert not (tmp_path / "new").exists()
    with pytest.raises(UsageError, match="no second field"):
        migrate.translate(flat, stitch, into=FIELD)


def test_a_field_is_replaced_by_force_alone_and_forget_drops_it(old, stitch, stitch_to):
    before, documents = vectors_by_id(old), list(open_store(old).documents())
    migrate.translate(old, stitch, into=FIELD)
    with pytest.raises(UsageError, match=f"{FIELD} exists"):
        migrate.translate(old, stitch_to("short", 5), into=FIELD)
    migrate.translate(old, stitch_to("short", 5), into=FIELD, force=True)
    field = open_store(field_at(old))
    assert field.info.dim == 5
    if isinstance(field, DatabaseStore):  # of files true vectors are written by `backfill`
        document = next(field.documents(np.array([3])))
        true = truth(document.text, 5)
        assert field.records.put([document.id], np.array([true])) == 1
        del field  # which has the folder to itself from when it writes
        np.testing.assert_allclose(vectors_by_id(field_at(old))[document.id], true, atol=1e-6)
    assert same(vectors_by_id(old), before)
    forget(field_at(old))
    assert same(vectors_by_id(old), before) and list(open_store(old).documents()) == documents
    with pytest.raises(StoreError):
        open_store(field_at(old))
    assert migrate.translate(old, stitch, into=FIELD).count == len(before)


def test_forget_drops_the_old_field_and_the_new_one_stays(old, stitch, translated):
    main = main_vector(old)
    with pytest.raises(UsageError, match="nothing was switched"):  # as there is no other
        forget(field_at(old, main))
    migrate.translate(old, stitch, into=FIELD)
    with pytest.raises(UsageError, match="nothing was switched"):
        forget(old)
    assert forget(field_at(old, main)).field.endswith(f"vector={main}")
    plain = without_vector(old)
    assert same(vectors_by_id(plain), translated) and same(vectors_by_id(field_at(plain)), translated)
    assert open_store(plain).info.manifest.model.spec == "hashed"
    with pytest.raises(UsageError, match=f"vector={main}: .*no such field"):
        forget(field_at(old, main))


@pytest.mark.parametrize("kind", ["pgvector", "qdrant-server", "parquet"], indirect=True)  # in a table and in folders
def test_a_field_of_an_earlier_version_is_refused_by_the_commit_that_reads_it(old, stitch):
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


# A run notes which rows it has read before it asks what the field is to be
@pytest.mark.parametrize("kind", ["pgvector", "parquet"], indirect=True)
def test_a_change_before_all_vectors_are_made_is_refused(kind, old, stitch, in_parts):
    interrupted("recorded:2", old, stitch)
    kind.change(old, RECORDS, later(RECORDS))
    with pytest.raises(InputError, match="another store"):
        migrate.translate(old, stitch, into=FIELD)
    with pytest.raises(StoreError):
        open_store(field_at(old))


def later(records):
    """The records, one of them deleted, one with another text and vector, one more."""
    after = {name: records[name] for name in records if name != "doc-007"}
    after["doc-009"] = record("doc-009", "another text", 9)
    return after | {"doc-new": record("doc-new", "what is new", 1)}


def test_a_vector_of_qdrant_without_a_name_gets_another_beside_it_and_stays(kind_of, tmp_path):
    old = kind_of("qdrant-server").make(tmp_path, RECORDS)
    before, fitted = vectors_by_id(old), migrate.fit(old, Hashed(), kind="ridge", sample=SAMPLE)
    migrate.translate(old, fitted, into=FIELD)
    assert same(vectors_by_id(old), before) and len(vectors_by_id(field_at(old))) == len(before)
    with pytest.raises(UsageError, match="has no name"):
        forget(field_at(old, ""))
    assert same(vectors_by_id(old), before)
    forget(field_at(old))
    assert same(vectors_by_id(old), before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["lancedb"], indirect=True)
def test_the_command_says_before_it_begins_that_programs_of_lancedb_must_name_their_column(
    old, stitch, stitch_to, capsys
):
    for place, is_told in ((stitch, False), (stitch_to("as long", tools.DIM), True)):
        field = f"new_{is_told}"
        assert run(["translate", old, str(place), "--into", field]) == 0
        output = capsys.readouterr()
        assert f"?vector={field}: {COUNT} vectors" in output.out
        assert ("must name the column 'vector'" in output.out + output.err) == is_told


MOMENTS = ["recorded:2", "complete:1", "field noted:1", "batch written:1", "batch written:3", "field kept:1"]
KILLS = [("pgvector", moment) for moment in MOMENTS]
# what differs from database to database is how a batch is written
KILLS += [(kind, "batch written:3") for kind in DATABASES if kind != "pgvector"]


@pytest.mark.parametrize(("kind", "moment"), KILLS, indirect=["kind"])
def test_a_run_that_was_killed_goes_on(old, stitch, translated, moment, in_parts):
    before = vectors_by_id(old)
    call_in_child(tools.translate_into, old, stitch, FIELD, point=moment)
    assert same(vectors_by_id(old), before)
    if moment != "field kept:1":
        with pytest.raises(StoreError, match=FIELD):
            open_store(field_at(old))
    assert migrate.translate(old, stitch, into=FIELD).remarks == ()
    assert same(vectors_by_id(field_at(old)), translated)
    assert same(vectors_by_id(old), before)


@pytest.mark.parametrize("kind", ["pgvector"], indirect=True)  # no database has a part in it
def test_a_field_whose_unfinished_work_is_gone_is_replaced_only_if_asked(
    old, stitch, translated, in_parts, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    interrupted("batch written:1", old, stitch)
    (work,) = (tmp_path / "state").rglob(f".*{FIELD}*work")
    shutil.rmtree(work)  # from here on the field may be anybody's
    with pytest.raises(UsageError, match="work folder"):
        migrate.translate(old, stitch, into=FIELD)
    migrate.translate(old, stitch, into=FIELD, force=True)
    assert same(vectors_by_id(field_at(old)), translated)


@pytest.mark.parametrize("kind", ["lancedb"], indirect=True)
def test_a_field_of_somebody_else_is_not_written_over(old, stitch, in_parts):
    import lancedb

    interrupted("field noted:1", old, stitch)
    place, name = str(old).removeprefix("lancedb:").split("#")
    table = lancedb.connect(place).open_table(name)
    theirs = f"make_array({', '.join(['1.5'] * tools.TARGET_DIM)})"
    table.add_columns({FIELD: f"arrow_cast({theirs}, 'FixedSizeList({tools.TARGET_DIM}, Float32)')"})
    with pytest.raises(UsageError, match=rf"{FIELD}.* somebody else"):
        migrate.translate(old, stitch, into=FIELD)
    rows = lancedb.connect(place).open_table(name).to_arrow()[FIELD].to_pylist()
    assert rows == [[1.5] * tools.TARGET_DIM] * COUNT


@pytest.mark.parametrize("kind", DATABASES, indirect=True)
def test_what_comes_and_goes_before_the_vectors_are_written_is_told_and_another_run_brings_it(
    kind, old, stitch, in_parts, tmp_path
):
    interrupted("batch written:2", old, stitch)
    kind.change(old, RECORDS, later(RECORDS))
    (remark,) = migrate.translate(old, stitch, into=FIELD).remarks
    assert re.findall(r"\d+", remark)[:3] == ["1", "1", "1"] and "`translate --into`" in remark
    assert vectors_by_id(field_at(old)).keys() == RECORDS.keys() - {"doc-007"}
    with pytest.raises(UsageError, match="`translate --into` again, with --force"):
        migrate.sync(old, field_at(old), target=Hashed())
    done = migrate.translate(old, stitch, into=FIELD, force=True, any_store=True)
    now = vectors_by_id(field_at(old))
    assert done.remarks == () and now.keys() == later(RECORDS).keys()
    assert same(now, vectors_by_id(migrate.translate(old, stitch, tmp_path / "new", any_store=True).path))


@pytest.mark.parametrize("kind", DATABASES, indirect=True)
def test_a_field_is_replaced_where_it_is_and_a_run_that_was_killed_goes_on_by_force_alone(
    old, stitch, stitch_to, translated_to, in_parts
):
    other = stitch_to("other", sample=100)
    migrate.translate(old, stitch, into=FIELD)
    call_in_child(tools.translate_into, old, other, FIELD, True, point="batch written:2")
    field = open_field(open_store(old).rows, FIELD)  # programs find a vector in each record meanwhile
    assert sum(len(page.ids) for page in field.pages()) == COUNT
    with pytest.raises(UsageError, match="`force=True`"):
        migrate.translate(old, other, into=FIELD)
    migrate.translate(old, other, into=FIELD, force=True)
    assert same(vectors_by_id(field_at(old)), translated_to("other", 100))
    assert open_store(field_at(old)).info.manifest.model.spec == "other"


@pytest.mark.parametrize("kind", DATABASES, indirect=True)
def test_forget_drops_a_field_that_is_half_written(old, stitch, in_parts):
    before = vectors_by_id(old)
    interrupted("batch written:2", old, stitch)
    forget(field_at(old))
    assert FIELD not in open_store(old).rows.fields.names() and same(vectors_by_id(old), before)


def test_a_forget_that_was_killed_is_finished(old, stitch, translated):
    main = main_vector(old)
    migrate.translate(old, stitch, into=FIELD)
    point = "column exchanged:1" if isinstance(open_store(old), LocalParquetStore) else "field dropped:1"
    call_in_child(forget, field_at(old, main), point=point)
    with pytest.raises(UsageError, match=f"vector={main}: .*none any more"):
        forget(field_at(old, main))
    assert same(vectors_by_id(without_vector(old)), translated)
    if isinstance(open_store(old), LocalParquetStore):
        place = Path(place_of(old))
        assert not [path for path in place.parent.iterdir() if path.name.endswith(".dropping")]


@pytest.mark.parametrize("kind", ["pgvector"], indirect=True)
def test_a_column_that_something_depends_on_is_not_dropped(old, stitch, stitch_to, capsys):
    import psycopg

    migrate.translate(old, stitch, into=FIELD)
    before, rows = vectors_by_id(old), open_store(old).rows
    main = field_at(old, rows.vector)
    place, table = rows.driver.address.place, rows.table.path[1]
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute(f'CREATE VIEW reading AS SELECT "{rows.vector}" FROM "{table}"')
        connection.execute("CREATE VIEW reading_further AS SELECT * FROM reading")
        try:
            with pytest.raises(UsageError, match=r"view reading .*; view reading_further "):
                forget(main)
            assert run(["forget", main, "--dry-run"]) == 2 and "view reading " in capsys.readouterr().err
            assert same(vectors_by_id(old), before)
            connection.execute(f'CREATE VIEW reading_new AS SELECT "{FIELD}" FROM "{table}"')
            with pytest.raises(UsageError, match=r"view reading_new .* nothing was changed"):
                migrate.translate(old, stitch_to("short", 5), into=FIELD, force=True)
            assert len(vectors_by_id(field_at(old))) == len(before)
            migrate.translate(old, stitch, into=FIELD, force=True)  # as long: no column is dropped
        finally:
            connection.execute("DROP VIEW IF EXISTS reading, reading_further, reading_new")
    forget(main)
    assert rows.vector not in open_store(field_at(old)).rows.fields.names()
