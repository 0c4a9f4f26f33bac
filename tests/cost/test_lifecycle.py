"""Models that their provider switches off, in what `assess` and `check` say."""

import numpy as np
import pytest
from stores_tools import make_store

import migrate
from migrate.cost.assess import model_sentences
from migrate.embedders import find_model
from migrate.manifest import ModelIdentity


@pytest.fixture
def store_of(tmp_path):
    """A store of unit vectors whose manifest names a model."""

    def made(spec, dim, revision=None):
        vectors = np.random.default_rng(0).normal(size=(120, dim)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        store = make_store(tmp_path / "store", [f"d{row}" for row in range(120)], vectors)
        migrate.stamp(store.folder, _Named(ModelIdentity(spec, dim, True, revision=revision)), trust=True)
        return tmp_path / "store"

    return made


class _Named(migrate.Embedder):
    def __init__(self, identity):
        self.named = identity

    @property
    def identity(self):
        return self.named

    def embed(self, texts, role, *, progress=None):
        raise AssertionError("asked for vectors")


@pytest.fixture(autouse=True)
def _day(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795651200")  # 2026-11-25


def test_who_is_on_a_model_that_is_off_cannot_stay(store_of):
    store = store_of("langchain:langchain_cohere:CohereEmbeddings", 768, revision="embed-multilingual-v2.0")
    found = migrate.assess(store, "openai:text-embedding-3-small")
    for told in ("embed-multilingual-v2.0 is off since 2026-04-04", "embed-multilingual-v3.0", "you cannot stay"):
        assert told in found.sentences[0]


def test_who_is_on_a_legacy_model_can_stay_for_a_while(store_of):
    found = migrate.assess(store_of("openai:text-embedding-ada-002", 1536), "openai:text-embedding-3-small")
    assert "text-embedding-ada-002 is legacy" in found.sentences[0]
    assert found.sentences[0].endswith("you can stay until then")


def test_a_target_that_goes_away_is_said_first_and_others_not_at_all(store_of):
    store = store_of("my own", 8)
    gone = migrate.assess(store, "openai:text-embedding-ada-002").sentences
    assert gone[0].startswith("the target: text-embedding-ada-002 is legacy") and "will have to move again" in gone[0]
    assert not [line for line in migrate.assess(store, "openai:text-embedding-3-small").sentences if "legacy" in line]


def test_check_notes_that_the_model_goes_away(store_of):
    ada = store_of("openai:text-embedding-ada-002", 1536)
    assert any("is legacy" in note for note in migrate.check(ada, "openai:text-embedding-ada-002").notes)
    assert not any("legacy" in note for note in migrate.check(ada, "openai:text-embedding-3-small").notes)


def test_models_of_one_family_need_no_migration():
    large, lite, older = map(find_model, ("voyage-4-large", "voyage-4-lite", "voyage-3.5"))
    (sentence,) = model_sentences(large, lite)
    assert sentence.startswith("the target: voyage-4-lite ") and "voyage-4-large" in sentence
    assert not list(model_sentences(large, large))
    assert not any("space" in line for line in model_sentences(older, large))
