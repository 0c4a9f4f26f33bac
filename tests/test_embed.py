import numpy as np
import pytest

from migrate.embed import embed_corpus, reembed_store
from migrate.embedders import load_embedder
from migrate.errors import DatasetError
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.vectors import Document

SPEC = "tfidf:24"


@pytest.mark.parametrize("store_format", ["faiss", "langchain"])
@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_a_new_store_holds_the_documents_and_their_vectors(corpus, tmp_path, store_format, metric):
    embedder = load_embedder(SPEC)
    done = embed_corpus(lambda: corpus.documents, embedder, tmp_path / "s", store_format=store_format, metric=metric)
    store = open_store(tmp_path / "s")
    everything = read_all(store.scan())
    assert (done.count, done.dim, done.skipped) == (150, 24, ())
    assert (store.info.kind, store.info.metric) == (store_format, metric)
    assert list(everything.ids) == [document.id for document in corpus.documents]
    assert np.array_equal(everything.vectors, embedder.embed_documents(corpus.documents))
    assert [document.text for document in store.documents()] == [document.text for document in corpus.documents]
    assert store.info.manifest.model == embedder.identity
    again = load_embedder(SPEC, state=tmp_path / "s")
    assert np.array_equal(again.embed_queries(corpus.queries), embedder.embed_queries(corpus.queries))


def test_a_full_re_embed_is_of_the_same_kind_and_order_and_progress_counts_all_documents(
    corpus, source_folder, tmp_path
):
    seen = []
    embed_corpus(lambda: corpus.documents, load_embedder(SPEC), tmp_path / "s", progress=lambda *p: seen.append(p))
    assert seen[-1] == ("embed", 150, None)
    source, embedder = open_store(source_folder), load_embedder(SPEC)
    embedder.fit(source.documents())
    reembed_store(source, embedder, tmp_path / "full", progress=lambda *p: seen.append(p))
    assert seen[-1] == ("embed every document", 150, 150)
    full = open_store(tmp_path / "full")
    assert list(full.documents()) == list(source.documents())
    assert full.info.dim == 24 and full.info.manifest.details["made by"] == "full re-embed"
    truth = embedder.embed_documents(list(source.documents()))
    assert np.array_equal(read_all(full.scan()).vectors, truth)


def test_an_empty_corpus_leaves_nothing(tmp_path):
    with pytest.raises(DatasetError, match="no documents to embed"):
        embed_corpus(list, load_embedder("openai:text-embedding-3-small"), tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_two_documents_of_one_id_leave_nothing(tmp_path):
    documents = [Document("a", "green tea"), Document("a", "black tea")]
    with pytest.raises(Exception, match="'a'"):
        embed_corpus(lambda: documents, load_embedder("tfidf:1"), tmp_path / "s")
    assert not (tmp_path / "s").exists()
