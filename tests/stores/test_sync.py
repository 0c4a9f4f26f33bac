"""Bringing translated stores of every kind up to date, by the real things."""

import shutil
from contextlib import closing
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
import sync_tools as tools
from asking import asking
from children import call_in_child
from kind_faiss import Faiss
from sync_tools import Hashed, changed, some_records, sync_billed, sync_in_parts, truth

import migrate
from migrate import sync
from migrate.embed import reembed_store
from migrate.embed.reference import is_reembedded
from migrate.embedders.abilities import VectorTable
from migrate.embedders.cache import CachedEmbedder
from migrate.errors import InputError, LockedError, StoreError, UsageError
from migrate.files import output_lock
from migrate.steps.reembed.fill import backfill_store
from migrate.steps.switch import forget, rollback, switch
from migrate.steps.sync import Sync
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence
from migrate.stores.file_store import as_files
from migrate.stores.old_checksums import SOURCES_NAME, stored_sources, vector_checksums

# Of databases, some of them servers; the quick tests try what is alike of all stores on files
pytestmark = pytest.mark.slow

KINDS = ["faiss", "chroma-server", "milvus", "milvus-server", "sqlite-vec", "pgvector"]
"""`tests/golden` brings stores of the other kinds up to date."""


def translated(old, output, embedder, size=40):
    store = open_store(old)
    fitted = migrate.fit(store, embedder, kind="ridge", sample=size)
    migrate.translate(store, fitted, output)
    return open_store(output)


def by_id(store):
    found = read_all(store.scan())
    return {
        doc_id: (vector, value)
        for doc_id, vector, value in zip(found.ids, found.vectors, stored_confidence(store), strict=True)
    }


def check_synced(old, new, before, records, after):
    """Every document has the old store's fields; its vector is the one it had, or the true one."""
    now, documents = by_id(new), {document.id: document for document in new.documents()}
    assert documents.keys() == after.keys() == now.keys()
    source = {document.id: document for document in open_store(old).documents()}
    same_kind = new.info.kind == open_store(old).info.kind
    for name, (document, vector) in after.items():
        assert documents[name].text == document.text
        assert not same_kind or documents[name] == source[name]
        assert documents[name].metadata["page"] == document.metadata["page"]
        was = records.get(name)
        is_kept = was is not None and was[0].text == document.text
        if is_kept and (np.array_equal(was[1], vector) or before[name][1] == 1):
            assert np.array_equal(now[name][0], before[name][0]), "to the bit"
            assert now[name][1] == before[name][1]
        else:
            assert np.array_equal(now[name][0], truth(document.text)), name
            assert now[name][1] == 1
    found = read_all(open_store(old).scan())
    sources = dict(zip(found.ids, vector_checksums(found.vectors), strict=True))
    ids = read_all(new.scan()).ids
    assert [sources[doc_id] for doc_id in ids] == stored_sources(new).tolist()


CROSS = [("faiss", "chroma"), ("faiss", "sqlite-vec"), ("pgvector", "faiss"), ("langchain", "faiss"),
         ("faiss", "parquet"), ("parquet", "faiss")]  # fmt: skip


@pytest.mark.parametrize(("old_kind", "new_kind"), [*((name, name) for name in KINDS), *CROSS], ids=lambda name: name)
def test_a_store_that_changed_is_brought_up_to_date(old_kind, new_kind, kind_of, tmp_path):
    kind, embedder = kind_of(old_kind), Hashed()
    records = some_records()
    old = kind.make(tmp_path / "old", records)
    output = kind_of(new_kind).place(tmp_path / "new")
    if (old_kind, new_kind) == ("langchain", "faiss"):  # else it would be a folder of LangChain's
        output = f"faiss:{output}"
    if new_kind == "sqlite-vec" != old_kind:  # a new database, not a copy of the old one
        output = kind_of(new_kind).named_place(tmp_path / "new")
    new = translated(old, output, embedder)
    before, model = by_id(new), new.info.manifest.model

    assert Sync(open_store(old), new, target=embedder).open().is_current
    after = changed(records)
    kind.change(old, records, after)
    n_vectors = sum(before[name][1] != 1 for name in sorted(records)[100:102])
    del embedder.asked[:]
    plan = Sync(open_store(old), open_store(new.info.location), target=embedder).open()
    is_copy = old_kind == new_kind or (old_kind, new_kind) == ("parquet", "faiss")  # of files, by their folder alone
    metadata = 10 if is_copy else None
    expected = (30, 20 + n_vectors, metadata, 15, 200 - 15 - 20 - n_vectors - (metadata or 0))
    assert astuple(plan.changes.counts) == expected
    assert not embedder.asked, "nothing is embedded before it is agreed to"
    done = plan.run()
    assert astuple(done.counts) == expected and done.written
    wanted = {document.text for name, (document, _) in after.items() if name.startswith("new-")}
    assert wanted <= set(embedder.asked) and len(embedder.asked) == 50 + n_vectors
    new = open_store(new.info.location, verify=True)
    check_synced(old, new, before, records, after)
    manifest = new.info.manifest
    assert manifest.model.spec == model.spec and manifest.store.stitch == "ridge"
    assert manifest.counts["documents"] == 215
    assert manifest.counts["true vectors"] == done.n_true == sum(value == 1 for _, value in by_id(new).values())
    assert manifest.store.synced["added"] == 30
    again = sync(open_store(old), new, target=embedder)
    assert not again.written and astuple(again.counts)[:2] == (0, 0)
    if "://" not in new.info.location:
        assert [name for name in new.strangers() if not name.startswith(".")] == []
        files = as_files(new)
        (new.folder if files is None else files.index_path.parent).joinpath("README").write_text("mine")
        with pytest.raises(UsageError, match=r"other files lie in the folder, .*: README"):
            sync(open_store(old), open_store(new.info.location), target=embedder)


def metadata_alone(records):
    """Other metadata of one document, the same texts and vectors."""
    document, vector = records[min(records)]
    return {**records, document.id: (replace(document, metadata={**document.metadata, "page": 77}), vector)}


@pytest.mark.parametrize(("old_kind", "new_kind"), [("parquet", "faiss"), ("lancedb", "chroma")])
def test_metadata_that_changed_alone_goes_along_between_kinds(old_kind, new_kind, kind_of, tmp_path):
    kind, embedder, records = kind_of(old_kind), Hashed(), some_records()
    old = kind.make(tmp_path / "old", records)
    new = translated(old, kind_of(new_kind).place(tmp_path / "new"), embedder)
    after = metadata_alone(records)
    kind.change(old, records, after)
    del embedder.asked[:]
    done = sync(open_store(old), open_store(new.info.location), target=embedder)
    assert done.written and not embedder.asked
    documents = {document.id: document for document in open_store(new.info.location).documents()}
    assert documents[min(records)].metadata["page"] == 77
    assert not sync(open_store(old), open_store(new.info.location), target=embedder).written


def embedded_texts(bill):
    return bill.read_text().count("\n") if bill.exists() else 0


def paid_by(folder):
    """Where a sync keeps what was embedded, and notes what for."""
    return folder / "cache.sqlite", folder / "bill"


def sync_until(point, old, new, folder):
    """Sync in a process of its own, which dies at a point."""
    call_in_child(sync_in_parts, old, new, *paid_by(folder), point=point)


def content(store):
    found = read_all(store.scan())
    facts = list(found.ids), found.vectors.tobytes(), [repr(document) for document in store.documents()]
    return *facts, stored_confidence(store).tobytes(), stored_sources(store).tobytes()


def stale(kind, tmp_path, name="pair"):
    """An old store that has changed, and the new one that has not."""
    records = some_records()
    old = kind.make(tmp_path / name / "old", records)
    new = translated(old, kind.place(tmp_path / name / "new"), Hashed()).info.location
    kind.change(old, records, changed(records))
    return old, new


POINTS = ["begun:1", "recorded:2", "written:3", "filled:1", "complete:1", "published:1"]
KILLS = [("faiss", point) for point in [*POINTS, "aside:1"]]
KILLS += [("parquet", "recorded:2"), ("parquet", "published:1"), ("sqlite-vec", "complete:1")]
KILLS += [("pgvector", "recorded:2"), ("pgvector", "complete:1")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of a synced store whose sync nobody killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(folder / name))
        old, new = stale(Faiss(), folder)
        patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        sync_billed(old, new, *paid_by(folder))
    return Path(new)


@pytest.mark.parametrize(("name", "point"), KILLS)
def test_a_sync_that_is_killed_is_continued_to_the_same_bytes(
    name, point, kind_of, undisturbed, tmp_path, digest, monkeypatch
):
    old, new = stale(kind_of(name), tmp_path)
    # as `sync_in_parts` has it in the other process
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr("migrate.translate._BATCH_BYTES", 1)
    monkeypatch.setattr("migrate.translate._FEWEST_ROWS", 64)
    before = content(open_store(new))
    sync_until(point, old, new, tmp_path)
    found = content(open_store(new))
    sync_billed(old, new, *paid_by(tmp_path))
    after = content(open_store(new, verify=True))
    assert found in (before, after), "a reader never meets half"
    assert after[0] != before[0]
    if name == "faiss":
        assert digest(Path(new)) == digest(undisturbed)
        assert sorted(path.name for path in Path(new).parent.iterdir()) == ["new", "old"], "nothing is left over"
    assert embedded_texts(tmp_path / "bill") in (50, 51, 52), "nothing is paid for twice"
    assert sync_billed(old, new, *paid_by(tmp_path)) is False, "up to date"


@pytest.fixture
def fresh(tmp_path):
    """An old folder, and the new one that was made of it."""
    old = Faiss().make(tmp_path / "old", some_records())
    return old, translated(old, tmp_path / "new", Hashed()).info.location


@pytest.fixture
def pair(tmp_path):
    """An old folder that has changed, and the new one."""
    return stale(Faiss(), tmp_path)


def test_who_reads_the_folder_all_the_while_finds_one_or_the_other(fresh):
    import faiss

    (old, new), records, counts, sizes = fresh, some_records(), set(), {200}

    def read():
        counts.add(faiss.read_index(f"{new}/index.faiss").ntotal)

    with asking(read) as failures:
        for number in range(3):
            records[f"more-{number}"] = tools.record(f"more-{number}", f"the text {number}", 1)
            Faiss().change(old, None, records)
            sizes.add(len(records))
            assert sync(open_store(old), open_store(new), target=Hashed()).written
    assert not failures
    assert 200 in counts and counts <= sizes


def test_what_was_backfilled_since_stays_and_is_not_paid_for_again(tmp_path):
    kind, records = Faiss(), some_records()
    old = kind.make(tmp_path / "old", records)
    embedder = CachedEmbedder(Hashed(), tmp_path / "cache.sqlite")
    new = translated(old, tmp_path / "first", embedder)
    embedder.embed_documents(list(new.documents())[:120])
    backfill_store(new, embedder, tmp_path / "new")
    before = by_id(open_store(tmp_path / "new"))
    n_true = sum(value == 1 for _, value in before.values())
    assert 120 <= n_true < 200
    after = changed(records)
    kind.change(old, records, after)
    del embedder.embedder.asked[:]
    done = sync(open_store(old), open_store(tmp_path / "new"), target=embedder)
    check_synced(old, open_store(tmp_path / "new"), before, records, after)
    assert done.n_true > n_true
    assert len(embedder.embedder.asked) == done.counts.to_embed


def test_a_full_re_embed_is_synced_too_and_is_known_again(tmp_path):
    kind, records = Faiss(), some_records()
    old, embedder = kind.make(tmp_path / "old", records), Hashed()
    reembed_store(open_store(old), embedder, tmp_path / "full")
    after = changed(records)
    kind.change(old, records, after)
    done = sync(open_store(old), open_store(tmp_path / "full"), target=embedder)
    assert astuple(done.counts) == (30, 20, 10, 15, 155), "another old vector is nothing to a true one"
    new = open_store(tmp_path / "full")
    found = read_all(new.scan())
    expected = np.array([truth(after[name][0].text) for name in found.ids])
    assert np.array_equal(found.vectors, expected)
    assert (done.n_true, done.remarks) == (215, ())
    assert new.info.manifest.store.made_by == "full re-embed"
    assert is_reembedded(open_store(old), embedder, tmp_path / "full")


def test_a_store_from_before_checksums_is_compared_by_texts_and_says_so(pair):
    old, new = pair
    (Path(new) / SOURCES_NAME).unlink()
    done = sync(open_store(old), open_store(new), target=Hashed())
    assert astuple(done.counts) == (30, 20, 10, 15, 155), "the two other vectors are not noticed"
    assert "count as unchanged" in done.remarks[0]
    assert stored_sources(open_store(new)) is not None
    assert not sync(open_store(old), open_store(new), target=Hashed()).written


def test_what_is_not_compared_goes_along_where_the_old_store_was_written_to(kind_of, tmp_path):
    kind, embedder = kind_of("sqlite-vec"), Hashed()
    old = kind.make(tmp_path / "old", some_records())
    new = translated(old, tmp_path / "new", embedder)
    del embedder.asked[:]
    with closing(kind.connect(old)) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
        connection.execute("INSERT INTO customers VALUES ('ann')")
    before = by_id(new)
    done = sync(open_store(old), open_store(new.info.location), target=embedder)
    assert done.written and astuple(done.counts) == (0, 0, 0, 0, 200)
    assert not embedder.asked
    after = by_id(open_store(new.info.location))
    assert all(np.array_equal(after[name][0], before[name][0]) for name in before)
    with closing(kind.connect(f"sqlite-vec:{tmp_path}/new/my.db#items")) as connection:
        assert list(connection.execute("SELECT name FROM customers")) == [("ann",)]
    assert not sync(open_store(old), open_store(new.info.location), target=embedder).written


def test_a_table_that_was_asked_for_with_an_index_and_a_column_keeps_them(kind_of, tmp_path):
    kind, records = Faiss(), some_records()
    target = kind_of("pgvector").place(tmp_path)
    old = kind.make(tmp_path / "old", records)
    fitted = migrate.fit(open_store(old), Hashed(), kind="ridge", sample=40)
    migrate.translate(open_store(old), fitted, f"{target}.vectors?index=ivfflat&lists=7")
    kind.change(old, records, changed(records))
    assert sync(open_store(old), open_store(target), target=Hashed()).written
    store = open_store(target)
    (index,) = store.rows.table.vector_indexes
    assert (index.method, index.options, store.rows.table.column) == ("ivfflat", {"lists": "7"}, "vectors")


def test_an_index_that_was_asked_for_by_name_keeps_its_kind(kind_of, tmp_path):
    kind, records = kind_of("parquet"), some_records()
    old = kind.make(tmp_path / "old", records)
    fitted = migrate.fit(open_store(old), Hashed(), kind="ridge", sample=40)
    migrate.translate(open_store(old), fitted, f"faiss:{tmp_path}/new#?index=IVF4,SQ8")
    kind.change(old, records, changed(records))
    assert sync(open_store(old), open_store(tmp_path / "new"), target=Hashed()).written
    store = open_store(tmp_path / "new")
    assert store.info.details["factory"] == "IVF4,SQ8"
    assert store.info.count == len(changed(records))


def test_checksums_that_are_damaged_are_named_with_a_way_out(pair):
    old, new = pair
    (Path(new) / SOURCES_NAME).write_bytes(b"not numbers")
    with pytest.raises(StoreError, match=r"sources\.npy: the file is damaged; remove it"):
        sync(open_store(old), open_store(new), target=Hashed())


def test_wrong_stores_are_refused_before_anything_is_embedded(pair, tmp_path):
    old, new = pair
    embedder, kind = Hashed(), Faiss()

    def refused(one, other, error, words, model=embedder):
        with pytest.raises(error, match=words):
            sync(open_store(one), open_store(other), target=model)

    refused(new, old, StoreError, "not made by translate from ")
    refused(new, new, UsageError, "the old store itself")
    refused(old, new, StoreError, "the model as named 'other'; name that model", Hashed("other"))
    other = kind.make(tmp_path / "other", {f"x{n}": tools.record(f"x{n}", f"another corpus {n}", n) for n in range(90)})
    refused(other, new, InputError, "the store has 0 of the 200 documents of")
    same_ids = {name: tools.record(name, f"other words {name}", 1) for name in some_records()}
    refused(kind.make(tmp_path / "same", same_ids), new, InputError, "the store has 0 of the 200 documents of")
    bare = tmp_path / "bare"
    kind.make(bare, changed(some_records()))
    (bare / "docs.jsonl").unlink()
    refused(str(bare), new, StoreError, "the store has no texts, and .* has")
    (Path(new) / "README").write_text("mine")
    refused(old, new, UsageError, "other files lie in the folder, .*: README")
    (Path(new) / "README").unlink()
    empty = changed(some_records())
    empty["new-3"] = tools.record("new-3", "  ", 1)
    kind.change(old, None, empty)
    refused(old, new, InputError, "1 new or changed documents .*'new-3'")
    assert not embedder.asked
    kind.change(old, None, some_records(40))
    refused(old, new, InputError, "the store has .* of the .* documents of")
    assert sync(open_store(old), open_store(new), target=embedder, any_store=True).count == 40


def test_a_store_that_was_switched_is_not_synced_until_it_is_back(fresh):
    old, new = fresh
    switch(old, new, unproven=True)
    for one, other in ((old, new), (new, old)):
        with pytest.raises((UsageError, StoreError), match=r"answers in the place of|without a manifest"):
            sync(open_store(one), open_store(other), target=Hashed())
    rollback(old)
    Faiss().change(old, None, changed(some_records()))
    assert sync(open_store(old), open_store(new), target=Hashed()).written


def test_a_translated_store_is_not_switched_for_what_it_was_made_from(fresh):
    old, new = fresh
    with pytest.raises(UsageError, match=r"this was made from .*old, and so is the new store"):
        switch(new, old, unproven=True)
    assert open_store(new).info.dim == tools.TARGET_DIM
    switch(old, new, unproven=True)
    assert open_store(old).info.dim == tools.TARGET_DIM


def test_a_folder_that_another_run_writes_is_not_switched_meanwhile(fresh):
    old, new = fresh
    with output_lock(Path(new)), pytest.raises(LockedError, match=r"another run is writing .*new; wait for it"):
        switch(old, new, unproven=True)
    switch(old, new, unproven=True)
    for undo in (rollback, forget):
        with output_lock(Path(new)), pytest.raises(LockedError):
            undo(old)
    rollback(old)
    assert open_store(old).info.dim == tools.DIM


def test_a_store_that_is_a_mount_point_is_refused_before_anything_is_embedded(pair, tmp_path, mount):
    old, new = pair
    volume, embedder = tmp_path / "volume", Hashed()
    mount(volume)
    shutil.copytree(new, volume, dirs_exist_ok=True)
    with pytest.raises(UsageError, match="volume: this is a mount point"):
        sync(open_store(old), open_store(volume), target=embedder)
    assert not embedder.asked


def test_metadata_of_any_shape_is_compared(kind_of, tmp_path):
    """LangChain keeps what Python has: keys without an order, sets, NaN."""
    kind, records = kind_of("langchain"), some_records()
    names = sorted(records)[:3]

    def give(name, metadata):
        document, vector = records[name]
        records[name] = replace(document, metadata=metadata), vector

    give(names[0], {1: "a", "b": 2, None: 3, "page": 1})
    give(names[1], {"a": {1: 1, "b": 2, (1, 2): 3}, "page": 1})
    give(names[2], {"a": {8, 0, 16}, "b": float("nan"), "page": 1})
    old = kind.make(tmp_path / "old", records)
    new = translated(old, tmp_path / "new", Hashed())
    give(names[2], {"a": {16, 8, 0}, "b": float("nan"), "page": 1})
    kind.make(tmp_path / "old", records)
    assert sync(open_store(old), new, target=Hashed()).counts.metadata == 0
    give(names[1], {"a": {1: 1.0, "b": 2, (1, 2): 3}})
    kind.make(tmp_path / "old", records)
    done = sync(open_store(old), open_store(new.info.location), target=Hashed())
    assert astuple(done.counts) == (0, 0, 1, 0, 199)


def test_deletions_need_no_texts_and_no_model(tmp_path):
    """Of an index without documents, ids are its own."""
    import faiss

    folder, vectors = tmp_path / "old", np.random.default_rng(3).normal(size=(90, tools.DIM)).astype(np.float32)
    folder.mkdir()

    def write(ids):
        index = faiss.IndexIDMap2(faiss.IndexFlatL2(tools.DIM))
        index.add_with_ids(vectors[ids], np.array(ids))
        faiss.write_index(index, str(folder / "index.faiss"))

    write(range(80))

    class ById(Hashed, VectorTable):
        finds_by_id = True

        def embed(self, texts, role, *, progress=None):
            return super().embed([replace(text, text=f"text {text.id}") for text in texts], role)

    translated(str(folder), tmp_path / "new", ById())
    write(range(10, 80))
    done = sync(open_store(folder), open_store(tmp_path / "new"), target=Hashed())
    assert astuple(done.counts) == (0, 0, 0, 10, 70)
    write(range(10, 90))
    with pytest.raises(InputError, match=r"10 documents .* holds no texts"):
        sync(open_store(folder), open_store(tmp_path / "new"), target=Hashed())
    assert sync(open_store(folder), open_store(tmp_path / "new"), target=ById()).counts.added == 10


def test_a_vector_that_changes_on_a_server_is_noticed_at_the_end(kind_of, tmp_path):
    kind, records, embedder = kind_of("qdrant-server"), some_records(), Hashed()
    old = kind.make(tmp_path, records)
    store = open_store(old)
    fitted = migrate.fit(store, embedder, kind="ridge", sample=40)
    names = sorted(records)
    document, vector = records[names[1]]  # of another row than those that a snapshot has
    touched = {**records, names[1]: (document, vector + 1)}

    def change(stage, done, total):
        if stage == "translate" and done == total:
            kind.change(old, records, touched)

    with pytest.raises(StoreError, match=f"changed while it was read .the vector of '{names[1]}'.; nothing was"):
        migrate.translate(store, fitted, kind.place(tmp_path), progress=change)
    assert [found.name for found in kind.server.get_collections().collections] == [open_store(old).driver.name]


def test_confidence_and_checksums_are_in_the_order_of_the_new_store(kind_of, tmp_path):
    """A database has its documents in the order of their ids, whatever the order of the old store."""
    kind, embedder = Faiss(), Hashed()
    kind_of("sqlite-vec")
    old = kind.make(tmp_path / "old", some_records())
    plain = by_id(translated(old, tmp_path / "plain", embedder))
    table = by_id(translated(old, f"sqlite-vec:{tmp_path / 'table'}#items", embedder))
    assert list(plain) != list(table)
    assert {name: value for name, (_, value) in plain.items()} == {name: value for name, (_, value) in table.items()}


def test_a_plan_says_what_it_would_cost_and_leaves_out_what_is_done(pair, tmp_path):
    old, new = pair
    sync_until("recorded:3", old, new, tmp_path)
    left = list(Sync(open_store(old), open_store(new), target=Hashed()).open().models[0].documents())
    assert 0 < len(left) < 50
    assert (
        len(list(Sync(open_store(old), open_store(new), target=Hashed(), restart=True).open().models[0].documents()))
        >= 50
    )


def test_every_bit_of_a_vector_counts():
    rows = np.random.default_rng(1).normal(size=(300, 9)).astype(np.float32)
    rows[1::3] = np.sign(rows[1::3])
    checksums = vector_checksums(rows)
    assert checksums.dtype == np.uint64 and len(set(checksums.tolist())) == len({row.tobytes() for row in rows})
    assert np.array_equal(vector_checksums(rows[7:8]), checksums[7:8]), "a row's is its own"
    words = rows.view(np.uint32)
    for bit in range(32):
        for column in (0, 5, 8):
            other = words.copy()
            other[:, column] ^= np.uint32(1 << bit)
            assert (vector_checksums(other.view(np.float32)) != checksums).all()
    signs = np.sign(np.random.default_rng(2).normal(size=(20_000, 32))).astype(np.float32)
    assert len(set(vector_checksums(signs).tolist())) == len({row.tobytes() for row in signs})
    flipped = rows.copy()
    flipped[:, [1, 3]] *= -1
    assert (vector_checksums(flipped) != checksums).all()


@pytest.mark.parametrize("name", ["lancedb", "sqlite-vec", "qdrant", "chroma"])
def test_a_re_embed_that_is_synced_proves_itself_unless_somebody_changed_its_vectors(name, kind_of, tmp_path):
    kind, records, embedder = kind_of(name), some_records(), Hashed(dim=tools.DIM)
    old = kind.make(tmp_path / "old", records)
    location = kind.place(tmp_path / "full")
    reembed_store(open_store(old), embedder, location)
    ids = sorted(records)[:4]

    def sync_without(doc_id):
        before = dict(records)
        del records[doc_id]
        kind.change(old, before, records)
        assert sync(open_store(old), open_store(location), target=embedder).written

    sync_without(ids[0])
    assert switch(old, location).all_true
    rollback(old)
    by_hand = {doc_id: (records[doc_id][0], np.ones(tools.DIM, np.float32)) for doc_id in ids[1:]}
    with kind.opened(kind.location(tmp_path / "full", kind.name)) as client:
        kind.put(client, kind.name, {**records, **by_hand}, ids[1:])
    sync_without(ids[1])
    with pytest.raises(InputError, match="it is not what it was when all of it was embedded"):
        switch(old, location)


@pytest.mark.parametrize("name", ["faiss", "lancedb", "sqlite-vec"])
def test_a_re_embed_that_was_killed_at_its_end_is_known_by_a_switch_after_the_same_command(name, kind_of, tmp_path):
    kind = kind_of(name)
    old, new = kind.make(tmp_path / "old", some_records()), kind.place(tmp_path / "full")
    call_in_child(tools.reembed_hashed, old, new, point="published")
    tools.reembed_hashed(old, new)
    assert switch(old, new).all_true


@pytest.mark.parametrize("name", ["qdrant", "sqlite-vec"])
def test_a_name_with_a_hash_is_synced_whole(name, kind_of, tmp_path):
    kind, records = kind_of(name), some_records()
    old = kind.make(tmp_path / "old", records, name="x#y")
    output = kind.location(tmp_path / "new", "x#y")
    new = translated(old, output, Hashed())
    assert not [path.name for path in tmp_path.iterdir() if "#" in path.name]
    after = changed(records)
    kind.change(old, records, after)
    done = sync(open_store(old), open_store(new.info.location), target=Hashed())
    assert done.written and set(read_all(open_store(new.info.location).scan()).ids) == set(after)
    assert open_store(output).info.count == len(after)
