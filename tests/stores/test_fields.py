"""New vectors in a further field of the same records: translated, audited, synced, switched to; by the real things."""

import shutil

import numpy as np
import pytest
import sync_tools as tools
from children import call_in_child, run_command
from switch_tools import write_report
from sync_tools import Hashed, record, some_records, sync_billed, truth

import migrate
from migrate.cli.next_step import _is_forgotten_beside
from migrate.embedders.cache import CachedEmbedder
from migrate.errors import InputError, StoreError, UsageError
from migrate.files import state_folder
from migrate.live.searcher import LiveSearcher
from migrate.steps.reembed.fill import backfill_store
from migrate.steps.switch import forget, rollback, switch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence
from migrate.stores.database import DatabaseStore
from migrate.stores.faiss.search import open_search
from migrate.stores.fields import field_place
from migrate.stores.registry import find_exchange
from migrate.stores.switching import FORGOTTEN

DATABASES = ["Pgvector", "Lance", "Qdrant", "QdrantServer"]
KINDS = [*DATABASES, "Parquet"]
FIELD = "embedding_new"


@pytest.fixture
def qdrant_server(tmp_path):
    """Collections of a server, which processes of their own can ask."""
    from qdrant_client import QdrantClient
    from qdrant_server import serving

    with serving(tmp_path / "qdrant server") as url:
        client = QdrantClient(url, check_compatibility=False)
        yield tools.QdrantServer(client, f"qdrant:{url}")
        client.close()


@pytest.fixture(params=KINDS)
def kind(request):
    is_server = request.param == "QdrantServer"
    kind = request.getfixturevalue("qdrant_server") if is_server else tools.installed(request.param)()
    if isinstance(kind, tools.Qdrant):
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
    return f"{location}{'&' if '?' in location.rpartition('#')[2] else '?'}vector={field}"


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


@pytest.mark.filterwarnings("ignore")
def test_the_command_says_before_it_begins_that_programs_of_lancedb_must_name_their_column(tmp_path):
    old = tools.installed("Lance")().make(tmp_path / "old", some_records())
    for dim in (tools.TARGET_DIM, tools.DIM):
        migrate.fit(old, Hashed(f"of {dim}", dim), kind="ridge", sample=40).save(tmp_path / f"stitch-{dim}")
        typed = ["translate", old, tmp_path / f"stitch-{dim}", "--into", f"new_{dim}"]
        code, printed = run_command(list(map(str, typed)), tmp_path)
        assert code == 0 and f"?vector=new_{dim}: 200 vectors" in printed
        assert ("must name the column 'vector'" in printed) == (dim == tools.DIM)


MOMENTS = ["recorded:2", "complete:1", "field noted:1", "batch written:1", "batch written:3", "field kept:1"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", DATABASES, indirect=True)
@pytest.mark.parametrize("moment", MOMENTS)
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
    with pytest.raises(UsageError, match=r"there is a .* already, of a run whose work folder is gone, or made"):
        migrate.translate(old, stitch, into=FIELD)
    migrate.translate(old, stitch, into=FIELD, force=True)
    migrate.translate(old, stitch, tmp_path / "new")
    assert same(vectors_by_id(field_at(old)), vectors_by_id(tmp_path / "new"))


@pytest.mark.slow
def test_a_field_of_somebody_else_is_not_written_over(tmp_path):
    import lancedb

    kind = tools.installed("Lance")()
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


@pytest.mark.slow
def test_a_field_of_another_dimension_under_the_name_of_a_complete_one_is_not_switched_to(tmp_path):
    import lancedb

    old = tools.installed("Lance")().make(tmp_path / "old", some_records())
    migrate.fit(old, Hashed(), kind="ridge", sample=40).save(tmp_path / "stitch")
    migrate.translate(old, tmp_path / "stitch", into=FIELD)
    place, name = str(old).removeprefix("lancedb:").split("#")
    table = lancedb.connect(place).open_table(name)
    table.drop_columns([FIELD])
    table.add_columns({FIELD: "arrow_cast(make_array(1.5, 1.5, 1.5), 'FixedSizeList(3, Float32)')"})
    with pytest.raises(StoreError, match="has 3 dimensions, and was made with 6: it is another one"):
        switch(old, field_at(old), unproven=True)


def make_anew(kind, location, dim):
    """Drop the field, and make another of its name with vectors of somebody else."""
    driver = open_store(location).driver
    if isinstance(kind, tools.Pgvector):
        import psycopg

        with psycopg.connect(driver.address.place, autocommit=True) as connection:
            table = driver.table.path[1]
            connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{FIELD}"')
            connection.execute(f'ALTER TABLE "{table}" ADD COLUMN "{FIELD}" vector({dim})')
            connection.execute(f'UPDATE "{table}" SET "{FIELD}" = %s', [str([1.5] * dim)])
        return
    import lancedb

    table = lancedb.connect(driver.address.place).open_table(driver.address.name)
    table.drop_columns([FIELD])
    values = f"arrow_cast(make_array({', '.join(['1.5'] * dim)}), 'FixedSizeList({dim}, Float32)')"
    table.add_columns({FIELD: values})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Pgvector", "Lance"], indirect=True)
@pytest.mark.parametrize(("dim", "words"), [(tools.TARGET_DIM, "none of the vectors"), (3, "3 dimensions and not 6")])
def test_a_field_that_somebody_made_anew_is_not_replaced_by_force(kind, old, stitch, dim, words):
    migrate.translate(old, stitch, into=FIELD)
    migrate.translate(old, stitch, into=FIELD, force=True)
    open_store(field_at(old)).put_vectors(["doc-003"], np.ones((1, tools.TARGET_DIM), np.float32))
    migrate.translate(old, stitch, into=FIELD, force=True)  # with other vectors too it is still that field
    make_anew(kind, field_at(old), dim)
    theirs = vectors_by_id(field_at(old))
    with pytest.raises(UsageError, match=f"{words}.* made it anew; choose another name"):
        migrate.translate(old, stitch, into=FIELD, force=True)
    assert same(vectors_by_id(field_at(old)), theirs)


@pytest.mark.parametrize("name", ["_rowid", "_distance", "1st", "a b"])
def test_a_name_that_is_none_for_a_field_is_refused(old, stitch, name):
    with pytest.raises(UsageError, match="is no name for a field; begin with a letter"):
        migrate.translate(old, stitch, into=name)


def later(records):
    """The records, one of them deleted, one with another text and vector, one more."""
    after = {name: records[name] for name in records if name != "doc-007"}
    after["doc-009"] = record("doc-009", "another text", 9)
    return after | {"doc-new": record("doc-new", "what is new", 1)}


@pytest.mark.parametrize("kind", DATABASES, indirect=True)
def test_what_comes_and_goes_before_the_vectors_are_written_is_told_and_is_for_sync(kind, old, stitch):
    records = some_records()
    call_in_child(tools.translate_into, old, stitch, FIELD, point="batch written:2")
    kind.change(old, records, later(records))
    (remark,) = call_in_child(tools.translate_into, old, stitch, FIELD)
    assert "1 documents were added, 1 changed and 1 deleted" in remark and "sync" in remark
    before = vectors_by_id(field_at(old))
    assert before.keys() == records.keys() - {"doc-007"}
    done = migrate.sync(old, field_at(old), target=Hashed())
    assert (done.counts.added, done.counts.changed, done.counts.deleted, done.remarks) == (1, 1, 0, ())
    now = vectors_by_id(field_at(old))
    assert now.keys() == later(records).keys()
    for name in ("doc-009", "doc-new"):
        np.testing.assert_allclose(now[name], truth(later(records)[name][0].text), atol=1e-6)
    assert same({name: now[name] for name in before if name != "doc-009"},
                {name: before[name] for name in before if name != "doc-009"})  # fmt: skip
    assert not migrate.sync(old, field_at(old), target=Hashed()).written


def test_a_change_before_all_vectors_are_made_is_refused(kind, old, stitch):
    records = some_records()
    call_in_child(tools.translate_into, old, stitch, FIELD, point="recorded:2")
    kind.change(old, records, later(records))
    with pytest.raises(InputError, match="another store"):
        migrate.translate(old, stitch, into=FIELD)
    with pytest.raises(StoreError):
        open_store(field_at(old))


@pytest.mark.slow
@pytest.mark.parametrize("kind", DATABASES, indirect=True)
@pytest.mark.parametrize("moment", ["recorded:2", "complete:1", "batch written:1", "field kept:1"])
def test_a_sync_that_was_killed_goes_on_and_pays_once(kind, old, stitch, moment, tmp_path):
    records = some_records()
    migrate.translate(old, stitch, into=FIELD)
    kind.change(old, records, tools.changed(records))
    call_in_child(sync_billed, old, field_at(old), tmp_path / "cache.sqlite", tmp_path / "bill", point=moment)
    call_in_child(sync_billed, old, field_at(old), tmp_path / "cache.sqlite", tmp_path / "bill")
    paid = (tmp_path / "bill").read_text().split()
    # elsewhere whole records are replaced, those with other metadata too
    assert len(paid) == len(set(paid)) == (52 if isinstance(kind, tools.Pgvector) else 62)
    now = vectors_by_id(field_at(old))
    assert now.keys() == vectors_by_id(old).keys()
    np.testing.assert_allclose(now["new-3"], truth("what is new, 3"), atol=1e-6)


def test_a_backfill_puts_true_vectors_into_the_field(old, stitch, tmp_path):
    migrate.translate(old, stitch, into=FIELD)
    before, field = vectors_by_id(field_at(old)), open_store(field_at(old))
    model, chosen = CachedEmbedder(Hashed(), tmp_path / "cache.sqlite"), list(field.documents(np.arange(100)))
    model.embed(chosen, "document")
    done = backfill_store(field, model, field_at(old))
    assert done.n_before == 40 and done.n_true >= 100
    now = vectors_by_id(field_at(old))
    for document in chosen:
        np.testing.assert_allclose(now[document.id], truth(document.text), atol=1e-6)
    left = [name for name in now if name not in {document.id for document in chosen}]
    assert same({name: now[name] for name in left}, {name: before[name] for name in left})
    assert (stored_confidence(open_store(field_at(old))) == 1).sum() == done.n_true
    assert not migrate.sync(old, field_at(old), target=Hashed()).written


def test_a_live_searcher_answers_from_the_field_and_true_vectors_go_into_it(old, stitch, tmp_path):
    before = vectors_by_id(old)
    migrate.translate(old, stitch, into=FIELD)
    field = open_store(field_at(old))
    document = next(field.documents(np.array([3])))
    with LiveSearcher(field_at(old), Hashed(), cache=tmp_path / "cache.sqlite") as searcher:
        assert set(searcher.search(document.text, 3).ids) < before.keys()
    if not isinstance(field, DatabaseStore):  # of files true vectors are written by `backfill`
        return
    assert field.put_vectors([document.id], np.array([truth(document.text)])) == 1
    np.testing.assert_allclose(vectors_by_id(field_at(old))[document.id], truth(document.text), atol=1e-6)
    assert same(vectors_by_id(old), before)


def test_a_switch_says_what_to_change_and_forget_drops_the_old_field(old, stitch, tmp_path):
    migrate.translate(old, stitch, into=FIELD)
    new = vectors_by_id(field_at(old))
    with pytest.raises(InputError, match="no report"):
        switch(old, field_at(old))
    assert switch(old, field_at(old), write_report(tmp_path / "safe.json", old, field_at(old))).proven
    rollback(old)
    done = switch(old, field_at(old), unproven=True)
    assert FIELD in done.change and done.model == "hashed"
    assert same(vectors_by_id(done.aside), vectors_by_id(old))
    assert not _is_forgotten_beside(open_store(field_at(old)))
    assert switch(old, field_at(old), unproven=True).already
    with pytest.raises(UsageError, match=r"was switched to, .* get theirs by `rollback`, `sync` and `switch` again"):
        migrate.sync(old, field_at(old), target=Hashed())
    with pytest.raises(UsageError, match="switched"):
        migrate.translate(old, stitch, into=FIELD, force=True)
    assert rollback(old).new == done.new
    switch(old, field_at(old), unproven=True)
    forget(old)
    assert same(vectors_by_id(old), new) and same(vectors_by_id(field_at(old)), new)
    assert open_store(old).info.manifest.model.spec == "hashed"
    assert _is_forgotten_beside(open_store(old)) and _is_forgotten_beside(open_store(field_at(old)))
    with pytest.raises(UsageError, match="added beside is gone"):
        backfill_store(open_store(old), CachedEmbedder(Hashed(), tmp_path / "cache.sqlite"), old)
    with pytest.raises(UsageError, match="nothing was switched"):
        forget(old)


@pytest.mark.parametrize("kind", DATABASES, indirect=True)
def test_a_store_that_was_written_to_since_the_audit_is_not_switched(kind, old, stitch, tmp_path):
    records = some_records()
    migrate.translate(old, stitch, into=FIELD)
    report = write_report(tmp_path / "safe.json", old, field_at(old))
    kind.change(old, records, later(records))
    with pytest.raises(InputError, match="other vectors"):
        switch(old, field_at(old), report)


@pytest.mark.slow
def test_a_forget_that_was_killed_is_finished(kind, old, stitch):
    migrate.translate(old, stitch, into=FIELD)
    new = vectors_by_id(field_at(old))
    switch(old, field_at(old), unproven=True)
    call_in_child(forget, old, point="column exchanged:1" if isinstance(kind, tools.Parquet) else "field dropped:1")
    with pytest.raises(UsageError, match="forget"):
        rollback(old)
    forget(old)
    assert same(vectors_by_id(old), new)


@pytest.mark.slow
def test_a_column_that_something_depends_on_is_not_forgotten_and_can_be_rolled_back(tmp_path):
    import psycopg

    kind = tools.installed("Pgvector")()
    old = kind.make(tmp_path / "old", some_records())
    fitted = migrate.fit(old, Hashed(), kind="ridge", sample=40)
    migrate.translate(old, fitted, into=FIELD)
    before, driver = vectors_by_id(old), open_store(old).driver
    switch(old, field_at(old), unproven=True)
    place, table = driver.address.place, driver.table.path[1]
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute(f'CREATE VIEW reading AS SELECT "{driver.vector}" FROM "{table}"')
        connection.execute("CREATE VIEW reading_further AS SELECT * FROM reading")
        try:
            with pytest.raises(UsageError, match=r"view reading depends .*; view reading_further .* nothing was"):
                forget(old)
            code, printed = run_command(["forget", old, "--dry-run"], tmp_path)
            assert code == 2 and "view reading depends" in printed
            assert same(vectors_by_id(old), before)
            rollback(old)
            switch(old, field_at(old), unproven=True)
            rollback(old)
            connection.execute(f'CREATE VIEW reading_new AS SELECT "{FIELD}" FROM "{table}"')
            with pytest.raises(UsageError, match=r"view reading_new depends .* nothing was changed"):
                migrate.translate(old, fitted, into=FIELD, force=True)
            switch(old, field_at(old), unproven=True)
        finally:
            connection.execute("DROP VIEW IF EXISTS reading, reading_further, reading_new")
    exchange = find_exchange(old)
    exchange._note({**exchange.record(), "goal": FORGOTTEN})  # as an earlier version left it, which the server refused
    rollback(old)
    switch(old, field_at(old), unproven=True)
    forget(old)
    assert driver.vector not in open_store(old).driver.field_names()


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
        migrate.translate(tools.Folder().make(tmp_path / "faiss", some_records()), stitch, into=FIELD, any_store=True)


def test_a_field_is_replaced_by_force_alone(old, stitch, tmp_path):
    migrate.translate(old, stitch, into=FIELD)
    with pytest.raises(UsageError, match="exists"):
        migrate.translate(old, stitch, into=FIELD)
    migrate.fit(old, Hashed("other", 5), kind="ridge", sample=40).save(tmp_path / "other")
    migrate.translate(old, tmp_path / "other", into=FIELD, force=True)
    assert open_store(field_at(old)).info.dim == 5


def test_a_field_of_others_is_left_alone(old, stitch):
    with pytest.raises(UsageError, match="not made by this tool"):
        migrate.translate(old, stitch, into=field_place(open_store(old)).vector, force=True)


def test_a_vector_of_qdrant_without_a_name_gets_another_beside_it_and_stays(qdrant_server, tmp_path):
    old = qdrant_server.make(tmp_path, some_records())
    before, fitted = vectors_by_id(old), migrate.fit(old, Hashed(), kind="ridge", sample=40)
    migrate.translate(old, fitted, into=FIELD)
    assert same(vectors_by_id(old), before) and len(vectors_by_id(field_at(old))) == len(before)
    switch(old, field_at(old), unproven=True)
    with pytest.raises(UsageError, match="has no name, so the old one stays"):
        forget(old)
    rollback(old)
    assert same(vectors_by_id(old), before)
