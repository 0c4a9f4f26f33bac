"""A store cut to fewer dimensions of the same model."""

import numpy as np
import pytest
from kinds import kind_class

import migrate
from migrate.embedders import load_embedder
from migrate.errors import InputError, UsageError, VectorError
from migrate.manifest import Manifest, ModelIdentity, read_manifest
from migrate.stores import create_store, open_store
from migrate.stores.base import read_all
from migrate.stores.documents.jsonl import DOCS_NAME
from migrate.stores.file_store import INDEX_NAME, hash_files
from migrate.vectors import Document

MINILM = "packaged:all-MiniLM-L6-v2"
SMALL = ModelIdentity("openai:text-embedding-3-small", 12, normalized=True)


@pytest.fixture(scope="module")
def texts():
    return [Document(f"d{number}", f"what the function number {number} returns") for number in range(12)]


@pytest.fixture(scope="module")
def embedded(texts):
    """Vectors of the packaged model."""
    return load_embedder(MINILM).embed_documents(texts)


def make_store(folder, documents, vectors, model):
    folder.mkdir()
    writer = create_store(folder, format="faiss", dim=vectors.shape[1])
    writer.append(documents, vectors)
    writer.finish()
    if model is not None:
        stamp(folder, model)
    return folder


def stamp(folder, model, made_by="embed"):
    details = {"made by": made_by, **hash_files(folder, INDEX_NAME, [DOCS_NAME])}
    Manifest("store", model=model, details=details).write(folder)


def random_vectors(count, *, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((count, 12), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["parquet", "lancedb", "sqlite", "qdrant"])
def test_vectors_are_those_that_the_model_gives_with_as_many_dimensions(name, texts, embedded, tmp_path):
    kind = kind_class(name)()
    documents = [Document(text.id, text.text, {"page": row}) for row, text in enumerate(texts)]
    records = {d.id: (d, vector) for d, vector in zip(documents, embedded, strict=True)}
    location = kind.make(tmp_path / "old", records, metric="ip")
    migrate.stamp(location, MINILM, trust=True)
    before = kind.read(location)
    place = kind.place(tmp_path / "new")
    done = migrate.translate(location, output=place, to_dimensions=64)
    new = open_store(done.path)
    found = dict(zip(new.ids(range(12)), read_all(new.scan()).vectors, strict=True))
    short = load_embedder(f"{MINILM},dimensions=64")
    expected = short.embed_documents(texts)
    for text, vector in zip(texts, expected, strict=True):
        assert found[text.id] == pytest.approx(vector, abs=1e-6)
    assert (done.source_dim, done.target_dim, done.n_true) == (384, 64, 12)
    assert new.info.recorded_model == short.identity
    assert migrate.check(done.path, short).compatible
    assert sorted(text.text for text in new.documents()) == sorted(text.text for text in texts)
    assert str(kind.read(location)) == str(before)


def test_the_manifest_names_an_apis_model_as_its_embedder_with_dimensions_does(tmp_path):
    documents = [Document(str(number), "x") for number in range(8)]
    made = make_store(tmp_path / "old", documents, random_vectors(8), SMALL)
    migrate.translate(made, output=tmp_path / "new", to_dimensions=5)
    manifest = read_manifest(tmp_path / "new", "store")
    assert manifest.model == load_embedder("openai:text-embedding-3-small,dimensions=5").identity
    assert (manifest.source_model, manifest.counts["true vectors"]) == (SMALL, 8)
    unlisted = ModelIdentity("openai:my-own", 12, normalized=True)
    made = make_store(tmp_path / "own", documents, random_vectors(8), unlisted)
    migrate.translate(made, output=tmp_path / "new-own", to_dimensions=5)
    assert read_manifest(tmp_path / "new-own", "store").model.dimensions == 5


@pytest.mark.slow
def test_a_field_of_the_same_records_can_have_them(texts, embedded, tmp_path):
    pytest.importorskip("lancedb")
    kind = kind_class("lancedb")()
    records = {text.id: (text, vector) for text, vector in zip(texts, embedded, strict=True)}
    location = kind.make(tmp_path / "old", records, metric="ip")
    migrate.stamp(location, MINILM, trust=True)
    done = migrate.translate(location, into="short", to_dimensions=32)
    assert open_store(done.path).info.dim == 32


@pytest.mark.slow
def test_a_sync_embeds_what_is_new_with_as_many_dimensions(texts, embedded, tmp_path):
    kind = kind_class("lancedb")()
    records = {text.id: (text, vector) for text, vector in zip(texts, embedded, strict=True)}
    location = kind.make(tmp_path / "old", dict(list(records.items())[:10]), metric="ip")
    migrate.stamp(location, MINILM, trust=True)
    new = migrate.translate(location, output=kind.place(tmp_path / "new"), to_dimensions=32).path
    kind.change(location, dict(list(records.items())[:10]), records)
    synced = migrate.sync(location, new)
    assert (synced.counts.added, synced.n_true) == (2, 12)
    assert migrate.check(new, f"{MINILM},dimensions=32", sample="all").compatible


@pytest.mark.slow
def test_no_cut_store_takes_the_place_of_the_old_one_without_an_audit(texts, embedded, tmp_path):
    model = load_embedder(MINILM).identity
    old = make_store(tmp_path / "old", texts, embedded, model)
    migrate.translate(old, output=tmp_path / "new", to_dimensions=32)
    with pytest.raises(InputError, match="no report of an audit"):
        migrate.switch(old, tmp_path / "new")


def test_translated_vectors_stay_translated(tmp_path):
    documents = [Document(str(number), "x") for number in range(4)]
    made = make_store(tmp_path / "old", documents, random_vectors(4), None)
    stamp(made, SMALL, "translate")
    np.save(made / "confidence.npy", np.array([1, 0.5, 0.5, 1], "<f4"))
    done = migrate.translate(made, output=tmp_path / "new", to_dimensions=5)
    assert done.n_true == 2
    assert np.load(tmp_path / "new" / "confidence.npy").tolist() == [1, 0.5, 0.5, 1]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"to_dimensions": 12}, UsageError, "are not fewer; give a number from 1 to 11"),
        ({"to_dimensions": 900}, UsageError, "are not fewer"),
        ({"to_dimensions": 0}, UsageError, "leaves nothing"),
        ({"to_dimensions": 5, "stitch": "my-stitch"}, UsageError, "goes without `stitch=`"),
        ({"to_dimensions": 5, "reembed": "10%"}, UsageError, "goes without"),
        ({}, UsageError, "name a stitch"),
    ],
)
def test_what_makes_no_sense_is_refused(options, error, message, tmp_path):
    made = make_store(tmp_path / "old", [Document("a", "x"), Document("b", "y")], random_vectors(2), SMALL)
    with pytest.raises(error, match=message):
        migrate.translate(made, output=tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("model", [None, ModelIdentity("tfidf:12", 12, normalized=True)])
def test_a_store_whose_queries_nothing_would_embed_is_refused(model, tmp_path):
    made = make_store(tmp_path / "old", [Document("a", "x"), Document("b", "y")], random_vectors(2), model)
    with pytest.raises(UsageError, match=r"stamp|takes no dimensions"):
        migrate.translate(made, output=tmp_path / "new", to_dimensions=5)


def test_lengths_that_count_are_not_scaled_away(tmp_path):
    documents = [Document(str(number), "x") for number in range(600)]
    vectors = random_vectors(600)
    made = make_store(tmp_path / "long", documents, 2 * vectors, SMALL)
    with pytest.raises(VectorError, match="which counts in the metric ip"):
        migrate.translate(made, output=tmp_path / "new", to_dimensions=5)
    # a single one among unit vectors, which no sample need hold
    drawn = np.random.default_rng(0).permutation(600)[:256]
    odd = int(np.setdiff1d(np.arange(600), drawn)[0])
    vectors[odd] *= 2
    made = make_store(tmp_path / "odd", documents, vectors, SMALL)
    with pytest.raises(VectorError, match=f"the vector of '{odd}' is 2 long"):
        migrate.translate(made, output=tmp_path / "new", to_dimensions=5)
    assert not (tmp_path / "new").exists()


def test_a_vector_of_which_the_cut_leaves_nothing_is_named(tmp_path):
    vectors = random_vectors(2)
    vectors[1] = 0
    vectors[1, 11] = 1
    made = make_store(tmp_path / "old", [Document("a", "x"), Document("b", "y")], vectors, SMALL)
    with pytest.raises(VectorError, match="cut to 5 dimensions: zero vector for document 'b'"):
        migrate.translate(made, output=tmp_path / "new", to_dimensions=5)


@pytest.mark.parametrize(("dimensions", "fact"), [(512, "was trained for 512"), (100, "is known to be used with 512")])
def test_the_registry_says_what_the_model_was_trained_for(dimensions, fact, tmp_path):
    model = load_embedder("openai:text-embedding-3-small").identity
    vectors = np.eye(2, 1536, dtype=np.float32)
    made = make_store(tmp_path / "old", [Document("a", "x"), Document("b", "y")], vectors, model)
    done = migrate.translate(made, output=tmp_path / "new", to_dimensions=dimensions)
    assert any(fact in remark for remark in done.remarks)
