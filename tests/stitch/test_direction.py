"""A stitch for queries: fitted on a store, saved, loaded, and refused where it does not belong."""

import json

import numpy as np
import pytest
from stores_tools import make_store

import migrate
from migrate.embedders import load_embedder
from migrate.errors import ManifestError, StitchError, UsageError, VectorError
from migrate.manifest import MANIFEST_NAME
from migrate.stitch.linear import Ridge
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store

pytestmark = pytest.mark.slow

SPECS = ["ridge", "procrustes", "adjoint:procrustes"]


@pytest.fixture(scope="module")
def new_model(corpus):
    embedder = load_embedder("tfidf:24")
    embedder.fit(corpus.documents)
    return embedder


@pytest.fixture(scope="module")
def bridge(source_folder, new_model):
    return migrate.fit(open_store(source_folder), new_model, direction="query", sample=60, seed=5)


@pytest.fixture(scope="module")
def queries(corpus, new_model):
    return new_model.embed_queries(corpus.queries)


def edit_manifest(folder, change):
    path = folder / MANIFEST_NAME
    facts = json.loads(path.read_text())
    del facts["manifest_sha256"]
    change(facts)
    path.write_text(json.dumps(facts))


def test_it_maps_from_the_new_model_to_the_old_store(bridge, queries):
    before = queries.copy()
    mapped = bridge.map_queries(queries)
    assert np.array_equal(queries, before)
    assert bridge.direction == "query"
    assert (queries.shape[1], bridge.dim, mapped.shape) == (24, 32, (150, 32))
    assert mapped.dtype == np.float32 and mapped.flags.c_contiguous
    assert np.allclose(np.linalg.norm(mapped, axis=1), 1, atol=1e-6)
    assert bridge.map_queries(queries.tolist()).tobytes() == mapped.tobytes(), "any rows of numbers will do"


def test_the_manifest_names_the_models_of_the_migration(bridge, source_folder, new_model):
    manifest = bridge.manifest
    assert manifest.model == new_model.identity
    assert manifest.source_model.spec == "tfidf:32"
    assert manifest.counts == {"pairs": 60, "documents": 150}
    assert manifest.details["direction"] == "query"
    assert manifest.details["fingerprint"] == open_store(source_folder).snapshot().fingerprint


@pytest.mark.parametrize("spec", SPECS)
def test_a_loaded_one_maps_to_the_same_bytes(spec, source_folder, new_model, queries, tmp_path):
    fitted = migrate.fit(open_store(source_folder), new_model, direction="query", kind=spec, sample=60)
    fitted.save(tmp_path / "bridge")
    loaded = load_stitch(tmp_path / "bridge")
    assert (loaded.direction, loaded.stitch.spec, loaded.dim) == ("query", spec, 32)
    assert loaded.map_queries(queries).tobytes() == fitted.map_queries(queries).tobytes()
    assert len(loaded.sample.ids) == 0
    loaded.save(tmp_path / "again")
    assert load_stitch(tmp_path / "again").direction == "query"


def test_queries_get_the_length_of_the_old_vectors(source_folder, new_model, queries, corpus, tmp_path):
    old = 7 * np.random.default_rng(0).normal(size=(150, 32)).astype(np.float32)
    store = make_store(tmp_path / "old", corpus.documents, old)
    fitted = migrate.fit(store, new_model, direction="query", kind="ridge", sample=150)
    mean = np.linalg.norm(old.astype(float), axis=1).mean()
    np.testing.assert_allclose(np.linalg.norm(fitted.map_queries(queries), axis=1), mean, rtol=1e-5)


def test_a_stitch_from_before_there_were_directions_is_one_for_documents(source_folder, new_model, tmp_path):
    migrate.fit(open_store(source_folder), new_model, kind="ridge", sample=60).save(tmp_path / "stitch")
    edit_manifest(tmp_path / "stitch", lambda facts: facts["details"].pop("direction"))
    old = load_stitch(tmp_path / "stitch")
    assert old.direction == "document"
    assert migrate.translate(open_store(source_folder), old, tmp_path / "new").n_true == 60


@pytest.mark.parametrize(
    ("part", "fact", "value", "said"),
    [
        ("details", "direction", "sideways", "'sideways' is not a direction, which is one of document, query"),
        ("details", "direction", ["query"], r"'direction' .* is \['query'\]; .* again"),
        ("details", "direction", "document", "fit it again"),
        (None, "model", None, "does not name the model whose queries"),
        ("model", "dim", 23, "fit it again"),
        ("model", "dim", "many", "'model.dim' must be a whole number, .* make it again"),
    ],
)
def test_a_manifest_that_does_not_fit_the_weights_is_refused(part, fact, value, said, bridge, tmp_path):
    bridge.save(tmp_path / "bridge")
    edit_manifest(tmp_path / "bridge", lambda facts: (facts[part] if part else facts).update({fact: value}))
    with pytest.raises((StitchError, ManifestError), match=said) as caught:
        load_stitch(tmp_path / "bridge")
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_stitch_for_documents_maps_no_queries(source_folder, new_model, queries):
    fitted = migrate.fit(open_store(source_folder), new_model, kind="ridge", sample=60)
    with pytest.raises(StitchError, match=r"^queries: .*--direction query$"):
        fitted.map_queries(queries)


@pytest.mark.parametrize("value", [0, np.nan, np.inf])
def test_query_vectors_that_are_bad_are_refused(value, bridge, queries):
    rows = queries[:5].copy()
    rows[3] = value
    with pytest.raises(VectorError, match=r"^my queries: .*vector for row 3 \(1 bad of 5"):
        bridge.map_queries(rows, source="my queries")


def test_query_vectors_of_another_shape_are_refused(bridge, queries):
    with pytest.raises(VectorError, match=r"^my queries: .*\b23, not 24"):
        bridge.map_queries(queries[:5, :23], source="my queries")
    with pytest.raises(VectorError, match=r"^my queries: .*\b1 dimensions"):
        bridge.map_queries(queries[0], source="my queries")


@pytest.mark.parametrize(
    ("direction", "stitch", "part"),
    [
        ("queries", "auto", "unknown direction 'queries'; choose one of document, query"),
        ("document", "adjoint", "'adjoint' does not map a document; choose one such as identity, "),
        ("document", "adjoint:procrustes", "'adjoint:procrustes' does not map"),
        ("query", "adjoint:ols", "unknown stitch"),
        ("query", "ridge", "'ridge' does not map a query; choose one such as "),
    ],
)
def test_a_choice_that_does_not_suit_is_told_before_anything_is_embedded(
    direction, stitch, part, source_folder, monkeypatch
):
    monkeypatch.setattr(Ridge, "reads_texts", True)
    with pytest.raises(UsageError, match=part):
        migrate.fit(open_store(source_folder), load_embedder("file:/no.npz"), direction=direction, kind=stitch)
