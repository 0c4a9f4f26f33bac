"""A further column of vectors in the files of a folder: what becomes of the files, and of runs that were killed."""

from pathlib import Path

import pytest
import sync_tools as tools
from children import call_in_child
from kind_base import place_of
from kinds import kind_class
from pyarrow import parquet
from sync_tools import Hashed, some_records
from test_fields import FIELD, field_at, same, vectors_by_id

import migrate
from migrate.errors import InputError, StoreError, UsageError
from migrate.steps.switch import forget
from migrate.stores import open_store
from migrate.stores.confidence import stored_confidence


@pytest.fixture
def old(tmp_path):
    return kind_class("parquet")().make(tmp_path / "old", some_records())


@pytest.fixture
def stitch(old, tmp_path):
    migrate.fit(old, Hashed(), kind="ridge", sample=40).save(tmp_path / "stitch")
    return tmp_path / "stitch"


def tables(location):
    return {path.name: parquet.read_table(path) for path in sorted(Path(place_of(location)).glob("*.parquet"))}


def names_in(location):
    return sorted(path.name for path in Path(place_of(location)).parent.iterdir())


def rewrite(location, edit):
    """Write the files again as a program does that keeps all columns, with other rows."""
    import pyarrow

    for name, table in tables(location).items():
        rows = [edited for row in table.to_pylist() if (edited := edit(row)) is not None]
        parquet.write_table(pyarrow.Table.from_pylist(rows, table.schema), Path(place_of(location), name))


def with_a_text(row):
    if row["id"] == "doc-009":
        return {**row, "text": "another text", "embedding": tools.old_vector("another text").tolist()}
    return None if row["id"] == "doc-007" else row


def test_all_other_columns_stay_as_they_were_to_the_bit(old, stitch):
    before = tables(old)
    migrate.translate(old, stitch, into=FIELD)
    after = tables(old)
    assert after.keys() == before.keys()
    for name, table in before.items():
        assert after[name].drop_columns([FIELD]).equals(table, check_metadata=True)
        assert after[name].column_names == [*table.column_names, FIELD]
    assert not any(name.startswith(".old") for name in names_in(old))
    forget(field_at(old, "embedding"))
    assert {name: table.drop_columns(["embedding"]) for name, table in after.items()} == tables(old)
    assert not any(name.startswith(".old") for name in names_in(old))


def test_the_same_users_may_read_the_files_as_before(old, stitch):
    folder = Path(place_of(old))
    folder.chmod(0o750)
    for path in folder.iterdir():
        path.chmod(0o640)
    migrate.translate(old, stitch, into=FIELD)
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.parquet")} == {0o640}
    assert folder.stat().st_mode & 0o777 == 0o750


def test_a_store_that_this_tool_wrote_keeps_its_list_of_files_and_is_as_its_manifest_says(old, stitch, tmp_path):
    migrate.translate(old, stitch, tmp_path / "made")
    made = f"parquet:{tmp_path / 'made'}"
    second = migrate.fit(made, Hashed("third", 5), kind="ridge", sample=40)
    before, manifest = vectors_by_id(made), open_store(made).info.manifest
    migrate.translate(made, second, into=FIELD)
    store = open_store(made, verify=True)
    assert store.companions.verify() and store.info.manifest.model == manifest.model
    assert same(vectors_by_id(made), before)
    forget(f"{made}#?vector={open_store(made).columns.vector}")
    assert open_store(made, verify=True).info.manifest.model.spec == "third"


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["recorded:2", "complete:1", "column kept:1", "published:1"])
def test_a_run_that_was_killed_left_the_old_files_or_the_new_ones_and_goes_on(old, stitch, moment, tmp_path):
    before, files = vectors_by_id(old), tables(old)
    call_in_child(tools.translate_into, old, stitch, FIELD, point=moment)
    assert same(vectors_by_id(old), before)
    assert (tables(old) == files) == (moment != "published:1")
    assert call_in_child(tools.translate_into, old, stitch, FIELD) == ()
    migrate.translate(old, stitch, tmp_path / "new")
    assert same(vectors_by_id(field_at(old)), vectors_by_id(tmp_path / "new"))
    assert same(vectors_by_id(old), before)
    assert not any(name.startswith(".old") for name in names_in(old))


@pytest.mark.slow
def test_what_a_program_wrote_after_a_run_was_killed_is_not_replaced(old, stitch):
    call_in_child(tools.translate_into, old, stitch, FIELD, point="complete:1")
    rewrite(old, with_a_text)
    theirs = tables(old)
    with pytest.raises((InputError, StoreError), match=r"another s|changed since"):
        migrate.translate(old, stitch, into=FIELD)
    assert tables(old) == theirs


def test_rows_that_were_changed_get_their_vectors_by_another_run(old, stitch, tmp_path):
    migrate.translate(old, stitch, into=FIELD)
    before = vectors_by_id(field_at(old))
    rewrite(old, with_a_text)
    with pytest.raises(UsageError, match=r"`translate --into` .*--force and --any-store"):
        migrate.sync(old, field_at(old), target=Hashed())
    migrate.translate(old, stitch, into=FIELD, force=True, any_store=True)
    migrate.translate(old, stitch, tmp_path / "new", any_store=True)
    now = vectors_by_id(field_at(old))
    assert same(now, vectors_by_id(tmp_path / "new")) and now.keys() == before.keys() - {"doc-007"}


def test_what_lies_beside_the_column_is_found_by_ids_whatever_the_order_of_the_rows(old, stitch):
    migrate.translate(old, stitch, into=FIELD)
    store = open_store(field_at(old))
    expected = dict(zip(store.ids(range(store.info.count)), stored_confidence(store).tolist(), strict=True))
    for name, table in tables(old).items():
        parquet.write_table(table.sort_by([("id", "descending")]), Path(place_of(old), name))
    store = open_store(field_at(old))
    assert dict(zip(store.ids(range(store.info.count)), stored_confidence(store).tolist(), strict=True)) == expected


def test_a_row_without_the_new_vector_is_told_with_what_helps(old, stitch):
    migrate.translate(old, stitch, into=FIELD)
    rewrite(old, lambda row: {**row, FIELD: None} if row["id"] == "doc-009" else row)
    with pytest.raises(StoreError, match=f"no vector .* {FIELD}; `translate --into` it again, with --force"):
        vectors_by_id(field_at(old))
    migrate.translate(old, stitch, into=FIELD, force=True)
    assert len(vectors_by_id(field_at(old))) == len(some_records())


def test_a_file_alone_and_a_folder_with_other_files_are_refused(old, stitch):
    folder = Path(place_of(old))
    with pytest.raises(UsageError, match="move the file into a folder of its own"):
        migrate.translate(f"parquet:{folder}/part-0.parquet", stitch, into=FIELD, any_store=True)
    (folder / "README.md").write_text("mine")
    with pytest.raises(UsageError, match=r"replaced as a whole: README\.md"):
        migrate.translate(old, stitch, into=FIELD)
    assert (folder / "README.md").read_text() == "mine" and not any(
        FIELD in t.column_names for t in tables(old).values()
    )


@pytest.mark.slow
def test_a_forget_that_was_killed_is_finished_where_further_columns_stand_beside(old, stitch):
    for column in (FIELD, "third"):
        migrate.translate(old, stitch, into=column)
    call_in_child(forget, field_at(old, "embedding"), point="column exchanged:1")
    assert not any("embedding" in table.column_names for table in tables(old).values())
    with pytest.raises(StoreError, match=r"there are embedding_new, third"):
        open_store(old)
    assert open_store(field_at(old)).info.manifest.model.spec == "hashed"


def test_a_file_of_the_folder_alone_goes_on_meaning_the_old_column(old, stitch):
    folder = place_of(old)
    before = vectors_by_id(f"parquet:{folder}/part-0.parquet")
    documents = list(open_store(f"parquet:{folder}/part-0.parquet").documents())
    migrate.translate(old, stitch, into=FIELD)
    store = open_store(f"parquet:{folder}/part-0.parquet")
    assert same(vectors_by_id(store.info.location), before) and list(store.documents()) == documents
