"""Collections that are read and written as one store, by their own clients."""

import json
import logging
import uuid
from dataclasses import replace

import numpy as np
import pytest
import sync_tools as tools
from children import run_command

import migrate
from migrate.cli.main import run
from migrate.cli.next_step import path_beside
from migrate.errors import StitchError, StoreError, UsageError
from migrate.selection import draw_sample
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence
from migrate.stores.joined.store import require_one
from migrate.stores.records import _warn

SIZES = {"alpha": 60, "beta": 90, "gamma": 25}
KINDS = ["Chroma", "Lance", "Qdrant", "Milvus", "SqliteVec", "Folder"]


@pytest.fixture(autouse=True)
def _say_everything():
    _warn.cache_clear()


def records_of(name, count, dim=tools.DIM, **metadata):
    """Records whose ids are the same in all collections."""
    rng = np.random.default_rng(len(name) + count)
    vectors = rng.normal(size=(count, dim)).astype(np.float32)
    made = {}
    for row in range(count):
        document, _ = tools.record(f"doc-{row:03d}", f"the text {row} of {name} is about {name} {row % 7}", row)
        made[document.id] = (
            type(document)(document.id, document.text, {**document.metadata, **metadata}),
            vectors[row],
        )
    return made


def test_ids_of_collections_with_a_hash_in_their_names_stay_apart(tmp_path):
    """`x` has the documents y#0, y#1 ..., and `x#y` 0, 1 ...: all of them would be x#y#0, x#y#1 ..."""
    place = Place("Folder", tmp_path / "all")
    names = {"x": "y#{}", "x#y": "{}", "x%23y": "{}"}
    for number, (name, form) in enumerate(names.items()):
        made = records_of("a" * (number + 1), 30)
        place.add(
            name,
            {
                form.format(row): (replace(one, id=form.format(row)), two)
                for row, (one, two) in enumerate(made.values())
            },
        )
    store = open_store(place.pattern)
    ids = store.ids(range(store.info.count))
    assert len(set(ids)) == 90 and ids[0] == "x#y#0"
    assert {doc_id.partition("#")[0] for doc_id in ids} == {"x", "x%23y", "x%2523y"}
    migrate.reembed(place.pattern, "tfidf:16", tmp_path / "new")
    moved = open_store(str(tmp_path / "new" / "*"))
    assert moved.ids(range(90)) == ids


class Place:
    """A place with collections of a kind."""

    def __init__(self, kind, folder):
        self.maker, self.folder, self.is_folder = tools.installed(kind)(), folder, kind == "Folder"
        self.pattern = self.location("*")

    def add(self, name, records):
        self.maker.make(self.folder / name, records) if self.is_folder else self.maker.make(
            self.folder, records, "l2", name
        )

    def location(self, name, folder=None):
        folder = folder or self.folder
        return f"{folder}/{name}" if self.is_folder else self.maker.location(folder, name) + self.maker.options


@pytest.fixture
def place(request, tmp_path):
    made = Place(request.param, tmp_path / "old")
    for name, count in SIZES.items():
        made.add(name, records_of(name, count))
    return made


@pytest.fixture
def chroma(tmp_path):
    made = Place("Chroma", tmp_path / "old")
    for name, count in SIZES.items():
        made.add(name, records_of(name, count))
    return made


every_kind = pytest.mark.parametrize("place", KINDS, indirect=True)
chroma_alone = pytest.mark.parametrize("place", ["Chroma"], indirect=True)


@every_kind
@pytest.mark.slow
def test_rows_are_those_of_one_collection_after_the_other(place):
    store, singles = open_store(place.pattern), {name: open_store(place.location(name)) for name in SIZES}
    ids = [f"{name}#{doc_id}" for name, one in singles.items() for doc_id in read_all(one.scan()).ids]
    vectors = np.concatenate([read_all(one.scan()).vectors for one in singles.values()])
    assert (store.info.count, store.info.dim, list(store.collections())) == (175, tools.DIM, list(SIZES))
    for size in (16_384, 50, 7):
        batches = [(len(batch), list(batch.ids), batch.vectors.copy()) for batch in store.scan(batch_size=size)]
        assert [length for length, *_ in batches[:-1]] == [size] * (len(batches) - 1)
        assert [doc_id for _, own, _ in batches for doc_id in own] == ids
        assert np.array_equal(np.concatenate([own for *_, own in batches]), vectors)
    rows = np.array([174, 0, 59, 60, 3, 149, 150])
    assert [list(batch.ids) for batch in store.scan(55, 65)] == [ids[55:65]]
    assert store.get(rows).ids == store.ids(rows) == [ids[row] for row in rows]
    assert np.array_equal(store.get(rows).vectors, vectors[rows])
    documents = list(store.documents(rows))
    assert [document.id for document in documents] == [ids[row] for row in rows]
    own = {f"{name}#{it.id}": it for name, one in singles.items() for it in one.documents()}
    assert [document.text for document in documents] == [own[document.id].text for document in documents]
    assert [document.metadata for document in documents] == [own[document.id].metadata for document in documents]
    assert store.snapshot() == open_store(place.pattern).snapshot()
    store.check_unchanged(store.snapshot())


@every_kind
@pytest.mark.slow
def test_a_translation_makes_the_same_collections_and_opens_as_one_store(place, tmp_path):
    old = open_store(place.pattern)
    fitted = migrate.fit(old, "tfidf:6", kind="ridge", sample=100)
    done = migrate.translate(old, fitted, tmp_path / "new")
    assert (done.count, done.target_dim) == (175, 6)
    new = open_store(tmp_path / "new")
    assert new.info.manifest.model.spec == "tfidf:6"
    assert list(new.documents()) == list(old.documents())
    expected = fitted.translate(read_all(old.scan()), None, source="old").vectors
    assert np.allclose(read_all(new.scan()).vectors, expected, atol=1e-6)
    for name in SIZES:
        folder = tmp_path / "new"
        one, before = open_store(place.location(name, folder)), open_store(place.location(name))
        assert (one.info.count, one.info.dim) == (SIZES[name], 6)
        assert list(one.documents()) == list(before.documents())
    assert np.count_nonzero(stored_confidence(new) == 1) == done.n_true >= 100


@pytest.mark.parametrize("pattern", ["*", "*t*"])
def test_new_folders_have_the_old_names_and_true_vectors_stay_with_their_documents(pattern, tmp_path):
    place = Place("Folder", tmp_path / "old")
    for count, name in enumerate(["tickets", "Übersicht", "a+b t(1)", "Zeta", "10 tons", "9t", "tick%41ts"], 20):
        place.add(name, records_of(name, count))
    old = open_store(place.location(pattern))
    fitted = migrate.fit(old, "tfidf:6", kind="ridge", sample=60)
    migrate.translate(old, fitted, tmp_path / "new")
    new = open_store(tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir() if path.is_dir()} == {*old.members}
    assert new.ids(range(new.info.count)) == old.ids(range(old.info.count))
    is_true = np.flatnonzero(stored_confidence(new) == 1)
    batch = new.get(is_true)
    _, rows = fitted.sample.positions(batch.ids)
    assert len(rows) == len(batch) == 60
    assert np.allclose(batch.vectors, fitted.sample.vectors[rows], atol=1e-6)
    assert not migrate.sync(old, tmp_path / "new").written


@pytest.mark.slow
@pytest.mark.parametrize("place", ["Chroma", "SqliteVec", "Folder"], indirect=True)
@pytest.mark.parametrize("point", ["recorded:1", "complete:1", "published:1"])
def test_a_translation_that_was_killed_goes_on(place, tmp_path, point):
    migrate.fit(place.pattern, "tfidf:4", kind="ridge", sample=60).save(tmp_path / "stitch")
    words = ["translate", place.pattern, str(tmp_path / "stitch"), "-o", str(tmp_path / "new"), "--quiet"]
    run_command(words, tmp_path, point)
    assert (tmp_path / "new").exists() == (point == "published:1")
    assert run(words) == 0
    new = open_store(tmp_path / "new")
    assert list(new.documents()) == list(open_store(place.pattern).documents())
    assert not list(tmp_path.glob(".new*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "output"), [("Folder", "chroma:{}#*"), ("Chroma", "lancedb:{}#*"), ("Lance", "sqlite-vec:{}#*")]
)
def test_all_go_into_another_kind_under_their_names(kind, output, tmp_path):
    place, target = Place(kind, tmp_path / "old"), output.format(tmp_path / "new")
    for name, count in SIZES.items():
        place.add(name, records_of(name, count))
    old = open_store(place.pattern)
    migrate.translate(old, migrate.fit(old, "tfidf:4", kind="ridge", sample=60), target)
    for new in (open_store(tmp_path / "new"), open_store(target)):
        assert [(name, one.info.count) for name, one in new.members.items()] == list(SIZES.items())
        texts = {document.id: document.text for document in old.documents()}
        assert {document.id: document.text for document in new.documents()} == texts


def test_what_is_of_another_dimension_or_model_is_left_out_by_name(chroma, caplog):
    chroma.add("another", records_of("another", 10, dim=4))
    config = {"embedding_config": json.dumps({"engine": "openai", "model": "ada"})}
    chroma.add("delta", records_of("delta", 70, **config))
    other = {"embedding_config": json.dumps({"engine": "", "model": "mini"})}
    chroma.add("epsilon", records_of("epsilon", 20, **other))
    with caplog.at_level(logging.WARNING):
        store = open_store(chroma.pattern)
    assert list(store.members) == ["alpha", "beta", "delta", "gamma"]  # what says nothing of its model goes with any
    reasons = {name: other.reason for name, other in store.left_out.items()}
    assert reasons == {
        "another": "of 4 dimensions, and most are of 8 dimensions",
        "epsilon": "of mini, and most are of openai:ada",
    }
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"{chroma.pattern}: {name} is left out: {reason}" for name, reason in reasons.items()]
    table = {row["name"]: row["left_out"] for row in migrate.inspect(chroma.pattern)["collections"]}
    assert table == {**dict.fromkeys(["alpha", "beta", "delta", "gamma"]), **reasons}


def test_halves_of_two_kinds_are_no_store(tmp_path):
    place = Place("Chroma", tmp_path / "old")
    place.add("one", records_of("one", 20))
    place.add("two", records_of("two", 20, dim=4))
    with pytest.raises(StoreError, match="one is of 8 dimensions and two is of 4 dimensions; write a pattern that"):
        open_store(place.pattern)
    assert open_store(place.location("o*")).info.count == 20


def test_empty_collections_are_copied_and_named(chroma, tmp_path):
    with chroma.maker.opened(chroma.pattern) as client:
        client.create_collection(
            "never-filled", metadata={"hnsw:space": "cosine", "of": "ann"}, embedding_function=None
        )
    store = open_store(chroma.pattern)
    assert "empty, and copied as such: never-filled" in store.info.notes
    migrate.translate(store, migrate.fit(store, "tfidf:4", kind="ridge", sample=60), tmp_path / "new")
    with chroma.maker.opened(chroma.maker.location(tmp_path / "new", "*")) as client:
        assert sorted(it.name for it in client.list_collections()) == [*sorted(SIZES), "never-filled"]
        copy = client.get_collection("never-filled", embedding_function=None)
        assert (copy.count(), copy.metadata["of"]) == (0, "ann")
        assert copy._model.configuration_json["hnsw"]["space"] == "cosine"
        copy.add(["x"], embeddings=[[1.0, 0, 0, 0]])


@pytest.mark.parametrize("pattern", ["*", "a*", "*a", "*mm*", "alpha*"])
def test_a_star_stands_for_any_characters(chroma, pattern):
    meant = {"*": list(SIZES), "a*": ["alpha"], "*a": list(SIZES), "*mm*": ["gamma"], "alpha*": ["alpha"]}
    assert list(open_store(chroma.location(pattern)).members) == meant[pattern]


def test_no_match_lists_what_is_there(chroma, tmp_path):
    with pytest.raises(StoreError, match=r"no collection matches 'x\*'; there are alpha, beta, gamma: write"):
        open_store(chroma.location("x*"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"no store matches '\*'; there are none: write a pattern that some match"):
        open_store(f"{tmp_path}/empty/*")


def test_a_collection_that_comes_meanwhile_is_noticed(chroma):
    store = open_store(chroma.pattern)
    before = store.snapshot()
    chroma.add("late", records_of("late", 5))
    with pytest.raises(StoreError, match=r"changed while it was read \(collection late came or went\); nothing was"):
        store.check_unchanged(before)


def test_a_change_in_one_is_noticed_and_named(chroma):
    store = open_store(chroma.pattern)
    before = store.snapshot()
    with chroma.maker.opened(chroma.pattern) as client:
        client.get_collection("beta", embedding_function=None).delete(["doc-007"])
    with pytest.raises(StoreError, match=r"#beta: the store changed .*0 documents were added and 1 deleted"):
        store.check_unchanged(before)


def test_a_stitch_of_all_is_refused_for_another_choice_of_collections(chroma, tmp_path):
    fitted = migrate.fit(chroma.pattern, "tfidf:4", kind="ridge", sample=60)
    with pytest.raises(StitchError, match="fitted on another store"):
        migrate.translate(chroma.location("a*"), fitted, tmp_path / "new")


def test_a_small_collection_has_its_share_of_the_sample(tmp_path):
    place = Place("Chroma", tmp_path / "old")
    for name, count in {"large": 900, "small": 20, "tiny": 3}.items():
        place.add(name, records_of(name, count))
    sample = draw_sample(open_store(place.pattern), 240)
    names = [document.id.partition("#")[0] for document in sample.documents]
    assert (len(names), names.count("small"), names.count("tiny")) == (240, 20, 3)


def test_commands_for_one_store_say_so(chroma, tmp_path, capsys):
    store = open_store(chroma.pattern)
    with pytest.raises(UsageError, match=r"takes one collection, and these are 3; name one, such as chroma:.*#alpha"):
        require_one(store)
    assert require_one(open_store(chroma.location("beta"))).info.count == 90
    fitted = migrate.fit(store, "tfidf:4", kind="ridge", sample=60)
    with pytest.raises(UsageError, match=r"of kind chroma gets no second field of vectors; translate to a new store"):
        migrate.translate(store, fitted, into="new")
    with pytest.raises(UsageError, match=r"new collections have the names of the old ones, .*write chroma:FOLDER#\*"):
        migrate.translate(store, fitted, f"chroma:{tmp_path}/new#x*")
    with pytest.raises(UsageError, match="is one store; name the new one after the #"):
        migrate.translate(chroma.location("beta"), fitted, f"chroma:{tmp_path}/new#*", any_store=True)
    assert not (tmp_path / "new").exists()


def test_a_table_of_texts_is_of_one_table_alone(tmp_path):
    maker = tools.installed("SqliteVec")()
    with maker.opened(f"sqlite-vec:{tmp_path}/my.db") as database:
        for name in ("notes", "mails"):
            database.execute(f"CREATE VIRTUAL TABLE vec_{name} USING vec0(embedding float[4])")
            database.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, body TEXT)")
            for row in range(1, 4):
                content = np.full(4, row, np.float32).tobytes()
                database.execute(f"INSERT INTO vec_{name}(rowid, embedding) VALUES (?, ?)", (row, content))
                database.execute(f"INSERT INTO {name} VALUES (?, ?)", (row, f"{name} {row}"))
    with pytest.raises(UsageError, match=r"notes\.body cannot be the texts of 2 tables; say \?text=\*\.body"):
        open_store(f"sqlite-vec:{tmp_path}/my.db#vec_*?text=notes.body")
    store = open_store(f"sqlite-vec:{tmp_path}/my.db#vec_*?text=*.body")
    assert [it.text for it in store.documents()] == [
        f"{name} {row}" for name in ("mails", "notes") for row in (1, 2, 3)
    ]


@pytest.fixture(params=["ChromaServer", "Pgvector"])
def on_server(request):
    """The location of tables or collections on a server, called a prefix of their own and what stands in SIZES."""
    prefix = f"t{uuid.uuid4().hex[:8]}_"
    if request.param == "Pgvector":
        maker = tools.installed("Pgvector")()
        locations = [maker.create(f"{prefix}{name}", records_of(name, count)) for name, count in SIZES.items()]
        return locations[0].partition("#")[0], prefix
    pytest.importorskip("chromadb")
    from chroma_tools import server

    client, url = server()
    for name, count in SIZES.items():
        tools.ChromaServer(client, url).create(client, f"{prefix}{name}", records_of(name, count))
    return url, prefix


@pytest.mark.slow
def test_new_collections_on_a_server_have_names_by_the_pattern(on_server, tmp_path):
    url, prefix = on_server
    old, target = f"{url}#{prefix}*", f"{url}#{prefix}*_new"
    source = open_store(old)
    fitted = migrate.fit(source, "tfidf:4", kind="ridge", sample=60)
    migrate.translate(source, fitted, target)
    new = open_store(target)
    assert [(name, one.info.count) for name, one in new.members.items()] == [
        (f"{prefix}{name}_new", count) for name, count in SIZES.items()
    ]
    assert list(new.documents()) == list(source.documents())
    assert new.info.manifest.model.spec == "tfidf:4"
    confidence = stored_confidence(new)
    assert np.count_nonzero(confidence == 1) == new.info.manifest.counts["true vectors"] >= 60
    for name, count in SIZES.items():
        single = open_store(f"{url}#{prefix}{name}_new")
        rows = new.collections()[f"{prefix}{name}_new"]
        assert single.info.manifest.counts["documents"] == count
        assert np.array_equal(stored_confidence(single), confidence[rows])
        assert np.array_equal(read_all(single.scan()).vectors, new.get(rows).vectors)
    again = open_store(old)
    assert list(again.members) == list(source.members) and len(again.left_out) == 3
    with pytest.raises(UsageError, match=r"_new exists; choose another output"):
        migrate.translate(source, fitted, target)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["recorded:1", "complete:1", "one published:1", "one published:2", "published:1"])
def test_a_run_that_was_killed_publishes_the_others(on_server, tmp_path, point):
    url, prefix = on_server
    old, target = f"{url}#{prefix}*", f"{url}#{prefix}*_new"
    migrate.fit(old, "tfidf:4", kind="ridge", sample=60).save(tmp_path / "stitch")
    words = ["translate", old, str(tmp_path / "stitch"), "-o", target, "--quiet"]
    run_command(words, tmp_path, point)
    assert run(words) == 0
    new = open_store(target)
    assert sorted(new.members) == sorted(f"{prefix}{name}_new" for name in SIZES)
    assert list(new.documents()) == list(open_store(old).documents())
    assert not list((tmp_path / "state").rglob("*.work"))
    everything = open_store(f"{url}#{prefix}*")
    assert len(everything.members) + len(everything.left_out) == 6  # nothing is left of the run that was killed


def drop_on_server(url, name):
    """Drop a table or collection as another program does."""
    if url.startswith("pgvector:"):
        from postgres import connect

        with connect() as connection:
            connection.execute(f"DROP TABLE {name}")
    else:
        from chroma_tools import server

        server()[0].delete_collection(name)


@pytest.mark.slow
def test_what_the_source_no_longer_has_goes_from_the_server_and_nothing_else(on_server):
    url, prefix = on_server
    old, target = f"{url}#{prefix}*", f"{url}#{prefix}*_new"
    source = open_store(old)
    fitted = migrate.fit(source, "tfidf:4", kind="ridge", sample=60)
    migrate.translate(source, fitted, target)
    drop_on_server(url, f"{prefix}gamma")
    synced = migrate.sync(old, target)
    assert (synced.counts.deleted, synced.counts.added, synced.count) == (25, 0, 150)
    remaining = [f"{prefix}{name}{ending}" for name in ("alpha", "beta") for ending in ("", "_new")]
    everything = open_store(old)
    assert sorted([*everything.members, *everything.left_out]) == remaining
    assert not migrate.sync(old, target).written
    drop_on_server(url, f"{prefix}beta")
    other = migrate.fit(old, "tfidf:4", kind="ridge", sample=40)
    migrate.translate(f"{url}#{prefix}alpha", other, f"{url}#{prefix}x_new", any_store=True)
    migrate.translate(old, other, target, force=True)
    everything = open_store(old)
    assert sorted([*everything.members, *everything.left_out]) == [
        f"{prefix}alpha",
        f"{prefix}alpha_new",
        f"{prefix}x_new",
    ]


@pytest.mark.slow
def test_copies_of_empty_tables_are_no_sources():
    maker, prefix = tools.installed("Pgvector")(), f"t{uuid.uuid4().hex[:8]}_"
    sizes = {"empty": 0, "full": 40}
    for name in sizes:
        location = maker.create(f"{prefix}{name}", records_of(name, 40))
    maker.put(f"{prefix}empty", {}, [], gone=list(records_of("empty", 40)))
    url = location.partition("#")[0]
    old, target = f"{url}#{prefix}*", f"{url}#{prefix}*_new"
    fitted = migrate.fit(old, "tfidf:4", kind="ridge", sample=30)
    for _ in range(2):
        migrate.translate(old, fitted, target, force=True)
        source = open_store(old)
        assert list(source.members) == [f"{prefix}{name}" for name in sizes]
        assert list(source.left_out) == list(open_store(target).members) == [f"{prefix}{name}_new" for name in sizes]


def add_empty(place, name):
    """Add a collection, and delete all of its records."""
    records = records_of(name, 5)
    place.add(name, records)
    if type(place.maker).__name__ == "Lance":
        import lancedb

        lancedb.connect(str(place.folder)).open_table(name).delete("true")
    else:
        with place.maker.opened(place.location(name)) as client:
            client.get_collection(name, embedding_function=None).delete(list(records))


@pytest.mark.parametrize("place", ["Chroma", "Lance"], indirect=True)
@pytest.mark.parametrize("target", ["", "qdrant", "lancedb"])
def test_an_empty_collection_is_copied_and_stands_in_the_way_of_no_sync(place, target, tmp_path):
    add_empty(place, "none")
    old, new = open_store(place.pattern), tmp_path / "new"
    location = f"{target}:{new}#*" if target else str(new)
    migrate.translate(old, migrate.fit(old, "tfidf:4", kind="ridge", sample=60), location)
    assert [(name, one.info.count) for name, one in open_store(location).members.items()] == [
        *SIZES.items(),
        ("none", 0),
    ]
    assert not migrate.sync(place.pattern, location).written
    (new / "mine").write_text("")
    with pytest.raises(UsageError, match="which is replaced as a whole: mine; move the store"):
        migrate.sync(place.pattern, location)


def test_what_lies_beside_folders_and_in_them_is_not_replaced(tmp_path):
    place = Place("Folder", tmp_path / "old")
    for name, count in SIZES.items():
        place.add(name, records_of(name, count))
    migrate.translate(place.pattern, migrate.fit(place.pattern, "tfidf:4", kind="ridge", sample=60), tmp_path / "new")
    assert open_store(tmp_path / "new").strangers() == []
    (tmp_path / "new" / "mine").mkdir()
    (tmp_path / "new" / "beta" / "notes").write_text("")
    with pytest.raises(UsageError, match="which is replaced as a whole: mine, beta/notes; move the store"):
        migrate.sync(place.pattern, tmp_path / "new")


@pytest.mark.slow
def test_empty_tables_become_no_folder_until_they_hold_something(tmp_path):
    maker, prefix = tools.installed("Pgvector")(), f"t{uuid.uuid4().hex[:8]}_"
    for name in ("empty", "full"):
        location = maker.create(f"{prefix}{name}", records_of(name, 40))
    maker.put(f"{prefix}empty", {}, [], gone=list(records_of("empty", 40)))
    old = f"{location.partition('#')[0]}#{prefix}*"
    done = migrate.translate(old, migrate.fit(old, "tfidf:4", kind="ridge", sample=30), tmp_path / "new")
    assert f"empty, and not written: {prefix}empty" in done.remarks
    assert list(open_store(tmp_path / "new").members) == [f"{prefix}full"]
    maker.create(f"{prefix}empty", records_of("empty", 20))
    assert migrate.sync(old, tmp_path / "new").counts.added == 20
    assert list(open_store(tmp_path / "new").members) == [f"{prefix}empty", f"{prefix}full"]
    assert not list(tmp_path.glob("new?*"))


@pytest.mark.slow
def test_a_new_name_has_the_quotes_of_no_old_one(tmp_path):
    from postgres import connect

    maker, prefix = tools.installed("Pgvector")(), f"t{uuid.uuid4().hex[:8]}_"
    location = maker.create(f"{prefix}one", records_of("one", 40))
    maker.create(f"{prefix}two", records_of("two", 30))
    with connect() as connection:
        connection.execute(f'ALTER TABLE {prefix}two RENAME TO "{prefix}Über et"')
    url = location.partition("#")[0]
    old, target = f"{url}#{prefix}*", f"{url}#{prefix}*_new"
    fitted = migrate.fit(old, "tfidf:4", kind="ridge", sample=30)
    ids = {*open_store(old).ids(range(70))}
    assert {"Über et#doc-000", "one#doc-000"} < ids
    migrate.translate(old, fitted, target)
    migrate.translate(old, fitted, tmp_path / "new")
    assert {*open_store(target).members} == {f'"{prefix}Über et_new"', f"{prefix}one_new"}
    assert {*open_store(tmp_path / "new").members} == {f"{prefix}Über et", f"{prefix}one"}
    for new in (target, tmp_path / "new"):
        assert {*open_store(new).ids(range(70))} == ids
        assert not migrate.sync(old, new).written


def test_inspect_lists_no_other_stores_where_none_matches(tmp_path, capsys):
    place = Place("Folder", tmp_path / "old")
    place.add("alpha", records_of("alpha", 20))
    place.add("beta", records_of("beta", 20))
    assert run(["inspect", place.location("nope*")]) == 4
    assert "no store matches 'nope*'; there are alpha, beta: write a pattern" in capsys.readouterr().err


def test_options_of_a_location_are_no_part_of_a_suggested_name(tmp_path):
    maker = tools.installed("SqliteVec")()
    maker.make(tmp_path, records_of("alpha", 20), "l2", "alpha")
    location = f"{maker.location(tmp_path, 'al*')}?text=content"
    name = path_beside(open_store(location), "translated").name
    assert name.endswith("-al-translated") and "content" not in name


def test_a_way_back_from_a_switch_of_many_can_be_typed(chroma, tmp_path):
    migrate.reembed(chroma.pattern, "tfidf:4", tmp_path / "new")
    migrate.switch(chroma.pattern, tmp_path / "new", unproven=True)
    with pytest.raises(UsageError) as refused:
        migrate.switch(chroma.pattern, tmp_path / "other", unproven=True)
    assert f"`rollback '{chroma.pattern}'`" in str(refused.value)


def test_an_audit_refuses_a_source_that_lacks_collections(chroma, tmp_path):
    migrate.translate(chroma.pattern, migrate.fit(chroma.pattern, "tfidf:4", kind="ridge", sample=60), tmp_path / "new")
    with pytest.raises(StoreError, match=r"lacks 175 of the 175 documents of .*new, such as 'alpha#doc-000'; name the"):
        migrate.audit(tmp_path / "new", source=chroma.location("a*"), queries="synthetic")
    migrate.translate(chroma.location("*a"), migrate.fit(chroma.location("*a"), "tfidf:4", kind="ridge", sample=60),
                      tmp_path / "new", force=True)  # fmt: skip
    with chroma.maker.opened(chroma.pattern) as client:
        client.delete_collection("gamma")
    with pytest.raises(StoreError, match=r"lacks 25 of the 175 documents of .*new, such as 'gamm#doc-000'; name the"):
        migrate.audit(tmp_path / "new", source=chroma.location("*a"), queries="synthetic")
