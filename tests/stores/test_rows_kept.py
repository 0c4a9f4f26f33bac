"""What is kept of each document stays with it, whatever order the rows of a new store have; see `tests/golden` too."""

import csv
import json

import numpy as np
import pytest
import sync_tools as tools
from children import call_in_child
from faiss_tools import digest
from kind_faiss import Faiss
from switch_tools import write_report
from sync_tools import Hashed, some_records, translate_in_parts

import migrate
from migrate.audit.query_set import QuerySet
from migrate.embed import is_reembedded, reembed_store
from migrate.embedders.cache import CachedEmbedder
from migrate.errors import InputError, StoreError
from migrate.steps.reembed.fill import backfill_store
from migrate.steps.switch import rollback, switch
from migrate.steps.sync import Sync
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence
from migrate.stores.content import content_of
from migrate.stores.old_checksums import stored_sources, vector_checksums
from migrate.stores.switching import SwitchableStore
from migrate.vectors import Query, unit_rows

COUNT, SAMPLE, SOURCE_DIM, DIM = 300, 80, 16, 24
COSINE = 0.6
"""What the coarsest code here keeps of a true vector at least; of another document's it is 0, give or take 0.2."""


class OwnTable(Faiss):
    """An index with a CSV of the user's own, whose rows are those that were added."""

    def write_documents(self, folder, documents):
        with (folder / "texts.csv").open("w", encoding="utf-8", newline="") as file:
            rows = ((d.id, d.text, json.dumps(dict(d.metadata)), row) for row, d in enumerate(documents))
            csv.writer(file).writerows([("id", "body", "metadata", "faiss_id"), *rows])


INDEXES = {
    "flat": Faiss("Flat"),
    "lists": Faiss("IVF16,Flat"),
    "lists with a table": OwnTable("IVF16,Flat"),
    "id map of lists": Faiss("IDMap,IVF8,Flat", labels=True),
    "coded lists in an id map": Faiss("IDMap,IVF4,PQ8x4", labels=True),
    "lists after OPQ": Faiss("OPQ8,IVF8,PQ8x4", labels=True),
}


@pytest.fixture(autouse=True)
def _settings(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "DIM", SOURCE_DIM)


@pytest.fixture
def kind_of(kind_of):
    return lambda name: INDEXES[name] if name in INDEXES else kind_of(name)


def truth(text):
    return tools.truth(text, DIM)


def translated(kind, tmp_path):
    """The location of an old store, the new one, and the ids of the sample."""
    old = kind.make(tmp_path / "old", some_records(COUNT))
    store = open_store(old)
    fitted = migrate.fit(store, Hashed(dim=DIM), kind="ridge", sample=SAMPLE)
    output = kind.place(tmp_path / "new")
    migrate.translate(store, fitted, output)
    return old, open_store(output), set(fitted.sample.ids)


def true_ids(store):
    """The documents that have their true vectors, as is noted beside a store."""
    rows = zip(read_all(store.scan()).ids, stored_confidence(store), strict=True)
    return {doc_id for doc_id, value in rows if value == 1}


def check_rows(old, new, true):
    """Each number beside the store is that of the document in its row; `true` documents have their true vectors."""
    found, texts = read_all(new.scan()), {document.id: document.text for document in new.documents()}
    assert true_ids(new) == true
    before = read_all(open_store(old).scan())
    expected = dict(zip(before.ids, vector_checksums(before.vectors), strict=True))
    assert [expected[doc_id] for doc_id in found.ids] == stored_sources(new).tolist()
    rows = np.flatnonzero(stored_confidence(new) == 1)
    vectors, truths = found.vectors[rows], np.array([truth(texts[found.ids[row]]) for row in rows])
    if new.info.exact:
        assert np.array_equal(vectors, truths)
    else:
        assert (np.sum(unit_rows(vectors) * truths, axis=1) > COSINE).all()


@pytest.mark.parametrize("name", [*list(INDEXES)[:-1], pytest.param("lists after OPQ", marks=pytest.mark.slow)])
def test_rows_of_an_index_keep_what_is_known_of_their_documents(name, kind_of, tmp_path):
    old, new, sample = translated(kind_of(name), tmp_path)
    check_rows(old, new, sample)
    assert Sync(open_store(old), new, target=Hashed(dim=DIM)).open().is_current
    # else nothing here would show that rows come to lie elsewhere
    ids = [list(read_all(store.scan()).ids) for store in (open_store(old), new)]
    assert (ids[0] == ids[1]) == (name == "flat")


# Of the indexes the one whose rows, labels and vectors all become others: commands see no more of it than those
@pytest.mark.slow
@pytest.mark.parametrize("name", ["coded lists in an id map", "sqlite-vec", "milvus"])
def test_every_command_finds_each_document_by_its_id(name, kind_of, tmp_path):
    kind, embedder = kind_of(name), Hashed(dim=DIM)
    old, new, sample = translated(kind, tmp_path)
    check_rows(old, new, sample)

    documents = {document.id: document for document in new.documents()}
    asked = [doc_id for doc_id in sorted(documents) if doc_id not in sample][:10] + sorted(sample)[:10]
    queries = [Query(f"q-{doc_id}", " ".join(documents[doc_id].text.split()[::3])) for doc_id in asked]
    query_set = QuerySet(queries, {f"q-{doc_id}": {doc_id: 1} for doc_id in asked}, "made up")
    reembed_store(new, embedder, tmp_path / "reference")
    # `tests/golden` audits stores of most kinds by a pool as well
    for reference in (tmp_path / "reference", *(["pool"] if name in INDEXES else [])):
        report = migrate.audit(new, reference, judged=query_set, target=embedder)
        assert report.verdict.outcome in set(migrate.Outcome)

    plan = Sync(open_store(old), new, target=embedder).open()
    assert plan.is_current and plan.changes.counts.unchanged == COUNT

    cached = CachedEmbedder(embedder, tmp_path / "cache.sqlite")
    cached.embed_documents([documents[doc_id] for doc_id in asked])
    filled = kind.place(tmp_path / "filled")
    done = backfill_store(open_store(new.info.location), cached, filled)
    assert done.n_true == len(sample | set(asked))
    check_rows(old, open_store(filled), sample | set(asked))
    assert Sync(open_store(old), open_store(filled), target=embedder).open().is_current

    if not isinstance(open_store(old), SwitchableStore):
        return
    content = content_of(open_store(filled))
    switch(old, filled, audit=write_report(tmp_path / "report.json", old, filled))
    answers = open_store(old)
    assert content_of(answers) == content
    assert true_ids(answers) == sample | set(asked)
    texts = {document.id: document.text for document in answers.documents()}
    assert texts == {document.id: document.text for document, _ in some_records(COUNT).values()}
    rollback(old)
    check_rows(old, open_store(filled), sample | set(asked))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flat", "sqlite-vec"])
def test_what_lies_beside_a_store_is_the_one_that_was_audited(name, kind_of, tmp_path):
    """Of a forged confidence neither an audit nor a switch believes anything."""
    old, new, _ = translated(kind_of(name), tmp_path)
    report = write_report(tmp_path / "report.json", old, new.info.location)
    told = json.loads(report.read_text())
    for file in ("confidence.npy", "sources.npy"):
        path = new.folder / file
        left = path.read_bytes()
        np.save(path, np.ones_like(np.load(path)))
        with pytest.raises(InputError, match="is of another store, or it changed since"):
            switch(old, new.info.location, audit=report)
        with pytest.raises(StoreError, match=rf"{file}: its BLAKE3 "):
            (stored_confidence if file == "confidence.npy" else stored_sources)(open_store(new.info.location))
        path.write_bytes(left)
    for content in told["stores"].values():
        del content["beside_hashes"]  # as an earlier version has left it
    report.write_text(json.dumps(told))
    assert switch(old, new.info.location, audit=report).proven


@pytest.mark.slow
def test_a_translation_that_was_killed_ends_the_same(tmp_path):
    old = INDEXES["coded lists in an id map"].make(tmp_path / "old", some_records(COUNT))
    migrate.fit(open_store(old), Hashed(dim=DIM), kind="ridge", sample=SAMPLE).save(tmp_path / "stitch")

    def translate(output, point=None):
        given = (old, str(tmp_path / "stitch"), str(tmp_path / output), str(tmp_path / "state"))
        call_in_child(translate_in_parts, *given, point=point)
        return None if point else digest(tmp_path / output)

    undisturbed = translate("undisturbed")
    for point in ("recorded:2", "filled:1", "complete:1"):
        translate(point, point)
        assert translate(point) == undisturbed, point


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flat", "sqlite-vec", "pgvector"])
def test_a_store_that_is_embedded_in_full_takes_the_place_of_the_old_one(name, kind_of, tmp_path, monkeypatch):
    kind, records, embedder = kind_of(name), some_records(COUNT), Hashed(dim=DIM)
    old, location = kind.make(tmp_path / "old", records), kind.place(tmp_path / "new")
    reembed_store(open_store(old), embedder, location)
    new = open_store(location)
    documents = {document.id: document for document in new.documents()}
    assert documents == {document.id: document for document in open_store(old).documents()}
    assert new.info.kind == open_store(old).info.kind and new.info.manifest.model == embedder.identity
    assert (stored_confidence(new) == 1).all()
    found = read_all(new.scan())
    true = np.array([truth(documents[doc_id].text) for doc_id in found.ids])
    assert np.array_equal(found.vectors, true)
    assert is_reembedded(open_store(old), embedder, location)
    assert Sync(open_store(old), new, target=embedder).open().is_current
    assert switch(old, location).all_true
    assert list(read_all(open_store(old).scan()).ids) == list(found.ids)
    rollback(old)

    monkeypatch.setattr(tools, "DIM", DIM)
    first = min(records)
    now = {doc_id: (documents[doc_id], truth(documents[doc_id].text)) for doc_id in records}
    place = kind.location(location, kind.name) if name == "sqlite-vec" else location
    kind.change(place, now, {**now, first: (documents[first], -truth(documents[first].text))})
    with pytest.raises(InputError, match=None if name == "flat" else "it is not what it was"):
        switch(old, location)
