import json

import numpy as np
import pytest

from migrate.documents import Document
from migrate.embedders import load_embedder
from migrate.errors import StoreError, VectorError
from migrate.sample import draw_sample, embed_pairs
from migrate.stores import create_store, open_store


@pytest.fixture
def store(source_folder):
    return open_store(source_folder)


def make_store(folder, texts, vectors=None):
    folder.mkdir()
    vectors = np.eye(len(texts), 8, dtype=np.float32) + 1 if vectors is None else vectors
    writer = create_store(folder, format="faiss", dim=8, metric="ip")
    writer.append([Document(f"d{i}", text) for i, text in enumerate(texts)], vectors)
    writer.finish()
    return open_store(folder)


def test_a_sample_holds_distinct_rows_with_their_own_documents(store):
    sample = draw_sample(store, 40, seed=1)
    assert len(set(sample.rows.tolist())) == len(sample.documents) == 40
    assert [d.id for d in sample.documents] == list(store.take(sample.rows).ids)


def test_the_seed_decides_the_sample(store):
    first, again, other = (draw_sample(store, 40, seed=seed).rows.tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_every_document_is_equally_likely(store):
    counts = np.zeros(store.info.count)
    for seed in range(300):
        counts[draw_sample(store, 30, seed=seed).rows] += 1
    # 300 draws of 30 in 150: 60 each, standard deviation 6.9
    assert counts.min() > 60 - 5 * 6.9 and counts.max() < 60 + 5 * 6.9


def test_a_small_store_is_taken_whole(store):
    assert draw_sample(store, 10_000).rows.tolist() == list(range(store.info.count))


def test_blank_documents_are_passed_over_and_replaced(tmp_path):
    store = make_store(tmp_path / "s", ["one", " ", "three", "\n", "five"])
    sample = draw_sample(store, 3, seed=0)
    assert [document.id for document in sample.documents] == ["d0", "d2", "d4"]


def test_a_store_of_blanks_is_refused(tmp_path):
    store = make_store(tmp_path / "s", [" ", ""])
    with pytest.raises(StoreError, match="expected documents with texts"):
        draw_sample(store, 3)


def test_pairs_stand_side_by_side(store, corpus):
    embedder = load_embedder("tfidf:16")
    embedder.fit(corpus.documents)
    sample = draw_sample(store, 20, seed=4)
    pairs = embed_pairs(store, embedder, sample)
    assert pairs.ids == tuple(document.id for document in sample.documents)
    assert np.array_equal(pairs.source, store.take(sample.rows).vectors)
    assert np.array_equal(pairs.target[3:4], embedder.embed_documents(sample.documents[3:4]))


def test_a_bad_old_vector_is_named(tmp_path):
    vectors = np.ones((3, 8), dtype=np.float32)
    vectors[1] = 0
    store = make_store(tmp_path / "s", ["a", "b", "c"], vectors)
    embedder = load_embedder("tfidf:1")
    with pytest.raises(VectorError, match="zero vector for document 'd1'"):
        embed_pairs(store, embedder, draw_sample(store, 3))


def test_docs_without_text_field_give_no_texts(tmp_path):
    store = make_store(tmp_path / "s", ["a", "b"])
    lines = [json.dumps({"id": f"d{i}"}) for i in range(2)]
    (store.folder / "docs.jsonl").write_text("\n".join(lines))
    assert not open_store(store.folder).info.has_texts
