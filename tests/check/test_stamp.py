import json

import numpy as np
import pytest

from migrate.check import Cause, check_store, stamp_store
from migrate.embedders import load_embedder
from migrate.embedders.base import WrappedEmbedder
from migrate.errors import StoreError
from migrate.stores import open_store
from migrate.vectors import Document

COLOURS = ("red", "green", "blue", "black", "white")
TEXTS = [f"{colour} {thing}" for colour in COLOURS for thing in ("boat", "car", "house", "tree")]


class CountingEmbedder(WrappedEmbedder):
    embedded = 0

    def around(self, embedder):
        return CountingEmbedder(embedder)

    def embed(self, texts, role, **options):
        self.embedded += len(texts)
        return self.embedder.embed(texts, role, **options)


@pytest.fixture
def model():
    embedder = load_embedder("tfidf:6")
    embedder.fit([Document(str(row), text) for row, text in enumerate(TEXTS)])
    return CountingEmbedder(embedder)


@pytest.fixture
def store(make_store, model):
    documents = [Document(str(row), text) for row, text in enumerate(TEXTS)]
    return make_store(TEXTS, model.embedder.embed_documents(documents))


def test_a_stamped_store_answers_at_once(store, model, digest):
    before = digest(store.folder)
    done = stamp_store(store, model)
    assert done.path == store.folder / "lead-migrate.json" and done.checked.compatible
    assert {name: hashed for name, hashed in digest(store.folder).items() if name != done.path.name} == before
    model.embedded = 0
    found = check_store(open_store(store.folder), model)
    assert found.compatible and found.basis == "manifest" and model.embedded == 0
    assert check_store(open_store(store.folder), model, manifest="compare").basis == "sample" and model.embedded > 0


def test_the_stamp_says_what_it_rests_on(store, model):
    facts = json.loads(stamp_store(store, model, sample=10).path.read_text())
    assert facts["details"]["checked"] == {"basis": "sample", "sampled": 10, "agreeing": 10}
    assert facts["model"]["spec"] == "tfidf:6" and set(facts["details"]["documents_hashes"]) == {"docs.jsonl"}
    facts = json.loads(stamp_store(store, model, trust=True, force=True).path.read_text())
    assert facts["details"]["checked"] is None


def test_what_is_not_compatible_is_not_stamped_and_no_trust_stretches_to_another_dimension(make_store, model, digest):
    random = np.random.default_rng(0).normal(size=(len(TEXTS), 7))
    store = make_store(TEXTS, random[:, :6])
    before = digest(store.folder)
    done = stamp_store(store, model)
    assert done.path is None and not done.checked.compatible and digest(store.folder) == before
    done = stamp_store(make_store(TEXTS, random, name="longer"), model, trust=True)
    assert done.path is None and done.checked.cause is Cause.DIMENSION


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"spec": "tfidf:7"}, "the model"), ({"query_prefix": "q: "}, "query prefix"), ({"revision": "0"}, "revision")],
)
def test_a_manifest_of_another_model_is_told_at_once(store, model, edit_manifest, changes, words):
    stamp_store(store, model)
    found = check_store(edit_manifest(store.folder, **changes), model)
    assert (found.cause, found.basis) == (Cause.MANIFEST, "manifest") and words in found.sentence


def test_a_manifest_that_contradicts_the_vectors_does_not_hide_them(store, model, edit_manifest):
    stamp_store(store, model)
    found = check_store(edit_manifest(store.folder, spec="tfidf:7"), model, manifest="compare")
    assert found.cause is Cause.MANIFEST and "stamp the store again" in found.sentence
    assert {finding.name: finding.ok for finding in found.findings} == {
        "dimension": True, "manifest": False, "unchanged": True, "vectors": True, "norms": True,
    }  # fmt: skip


def test_an_index_that_changed_since_is_not_believed(store, model):
    stamp_store(store, model)
    index = store.folder / "index.faiss"
    content = bytearray(index.read_bytes())
    content[-24:] = (-np.frombuffer(content[-24:], "<f4")).tobytes()
    index.write_bytes(content)
    found = check_store(open_store(store.folder), model)
    assert found.cause is Cause.MIXED and found.basis == "sample"


def test_a_manifest_without_a_hash_of_the_index_is_not_trusted(store, model):
    path = stamp_store(store, model).path
    facts = json.loads(path.read_text())
    del facts["manifest_sha256"], facts["details"]["index_hash"]
    path.write_text(json.dumps(facts))
    assert open_store(store.folder).companions.verify() == ("docs.jsonl",)
    assert check_store(open_store(store.folder), model).basis == "sample"


def test_texts_that_changed_since_are_not_believed(store, model):
    stamp_store(store, model)
    docs = store.folder / "docs.jsonl"
    docs.write_text(docs.read_text() + "\n")
    found = check_store(open_store(store.folder), model)
    assert found.cause is Cause.CHANGED and "docs.jsonl" in found.sentence
    docs.write_text(docs.read_text().replace("boat", "ship"))
    assert check_store(open_store(store.folder), model).cause is not Cause.COMPATIBLE


def test_a_bare_index_is_stamped_beside_it_and_checked_by_its_manifest(make_store, model, store):
    bare = make_store(TEXTS, store.get(np.arange(len(TEXTS))).vectors, name="bare", bare=True)
    opened = open_store(bare.folder / "index.faiss")
    assert stamp_store(opened, model).path == bare.folder / "lead-migrate.json"
    found = check_store(open_store(bare.folder / "index.faiss"), model)
    assert found.compatible and found.basis == "manifest"


def test_a_store_that_changes_while_it_is_checked_is_not_stamped(store, model):
    def replace_index(*_):
        (store.folder / "index.faiss").write_bytes((store.folder / "index.faiss").read_bytes())

    with pytest.raises(StoreError, match="changed while it was read"):
        stamp_store(store, model, progress=replace_index)
    assert not (store.folder / "lead-migrate.json").exists()
