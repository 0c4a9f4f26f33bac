import json
import shutil
from dataclasses import replace

import pytest

from migrate.cost.unread import count_unread, count_unread_of_store
from migrate.embedders import load_embedder
from migrate.embedders.abilities import loaded_profile
from migrate.embedders.sentence_transformers import SentenceTransformersEmbedder
from migrate.embedders.weights import packaged_model_path
from migrate.stores import open_store
from migrate.vectors import Document

pytestmark = pytest.mark.slow

MINILM = "packaged:all-MiniLM-L6-v2"


@pytest.fixture
def copied_model(tmp_path):
    return shutil.copytree(packaged_model_path(), tmp_path / "model")


@pytest.fixture(scope="module")
def long(corpus):
    whole = " ".join(document.text for document in corpus.documents)
    return [Document("long", whole), Document("cjk", "漢字かな、" * 300)]


def test_a_model_without_a_tokenizer_file_is_loaded_for_its_tokenizer(copied_model, long):
    (copied_model / "tokenizer.json").unlink()
    embedder = load_embedder(f"sentence-transformers:{copied_model}")
    target = loaded_profile(embedder)
    assert target.counter.exact and target.max_tokens == 256
    assert target.count(long).tolist() == load_embedder(MINILM).profile.count(long).tolist()


def test_a_model_that_names_no_length_reads_what_its_tokenizer_and_network_do(copied_model):
    (copied_model / "sentence_bert_config.json").write_text("{}")
    for name, key, value in (
        ("tokenizer_config.json", "model_max_length", 300),
        ("config.json", "max_position_embeddings", 512),
        ("tokenizer_config.json", "model_max_length", 10**30),
    ):
        path = copied_model / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
        own = SentenceTransformersEmbedder(str(copied_model)).model.max_seq_length
        assert load_embedder(f"sentence-transformers:{copied_model}").profile.max_tokens == own
    assert own == 512


def test_what_is_never_read_is_a_share_of_all_tokens():
    texts = [Document("a", "tea " * 510), Document("b", "tea " * 254), Document("c", "  "), Document("d", "tea " * 510)]
    unread = count_unread(texts, load_embedder(MINILM).profile)
    assert (unread.limit, unread.texts, unread.over) == (256, 3, 2)
    assert unread.share == pytest.approx(2 * 256 / (512 * 2 + 256))
    assert count_unread(texts, load_embedder("tfidf:8").profile) is None


def test_a_large_store_is_judged_by_a_part_of_it(source_folder, bare_folder, monkeypatch):
    store, target = open_store(source_folder), replace(load_embedder(MINILM).profile, max_tokens=40)
    whole = count_unread_of_store(store, target)
    assert whole.texts == 150 and whole.store is None and "about" not in whole.sentence("documents")
    monkeypatch.setattr("migrate.cost.unread.MOST_COUNTED", 60)
    part = count_unread_of_store(store, target)
    assert (part.texts, part.store) == (60, 150) and part == count_unread_of_store(store, target)
    assert part.over / part.texts == pytest.approx(whole.over / whole.texts, abs=0.2)
    assert f"about {100 * part.over / 60:.1f} % of 150 documents are" in part.sentence("documents")
    assert count_unread_of_store(open_store(bare_folder), target) is None
