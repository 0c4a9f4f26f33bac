from functools import partial

import numpy as np
import pytest
from rank_bm25 import BM25Okapi

from migrate.embedders import load_embedder
from migrate.errors import UsageError, VectorError
from migrate.selection import QueryLog, query_log_rows
from migrate.selection import query_log as module
from migrate.stores import create_store, open_store
from migrate.vectors import Document, Query

WORDS = [f"w{number}" for number in range(40)]


@pytest.fixture
def texts():
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, size=rng.integers(3, 12))) for _ in range(90)]


@pytest.fixture
def queries():
    rng = np.random.default_rng(1)
    return [Query("same id", " ".join(rng.choice(WORDS, size=2))) for _ in range(12)]


class Directions:
    """A model of queries: a direction for each text, and no documents."""

    def __init__(self, dim):
        self.dim = dim

    def embed_queries(self, texts, *, progress):
        rows = [np.random.default_rng(list(text.text.encode())).normal(size=self.dim) for text in texts]
        return np.array(rows, dtype=np.float32)

    def cache_scope(self, role):
        return f"directions {self.dim} {role}"

    @property
    def identity(self):
        return load_embedder("tfidf:4").identity


def make_store(folder, texts, metric="ip", with_texts=True):
    folder.mkdir()
    vectors = np.random.default_rng(2).normal(size=(len(texts), 6)).astype(np.float32)
    writer = create_store(folder, format="faiss", dim=6, metric=metric)
    # ids in another order than rows, so that nothing can take the one for the other
    writer.append([Document(f"d{len(texts) - row:03}", text) for row, text in enumerate(texts)], vectors)
    writer.finish()
    if not with_texts:
        (folder / "docs.jsonl").unlink()
    return open_store(folder), vectors


@pytest.fixture
def stored(texts, tmp_path):
    return make_store(tmp_path / "s", texts)


@pytest.fixture
def store(stored):
    return stored[0]


def by_vectors(vectors, query, metric):
    wide, query = vectors.astype(float), query.astype(float)
    scores = wide @ query if metric == "ip" else -np.square(wide - query).sum(axis=1)
    return np.argsort(-scores, kind="stable").tolist()


def by_words(texts, query):
    index = BM25Okapi([text.split() for text in texts])
    scores = index.get_scores(query.text.split())
    shares = [bool(set(text.split()) & set(query.text.split())) for text in texts]
    return [row for row in np.argsort(-scores, kind="stable").tolist() if shares[row]]


def interleaved(rankings, depth):
    """The definition, spelled out: rank after rank, ranking after ranking, what was not there before."""
    rows = []
    for rank in range(depth):
        for ranking in rankings:
            if rank < len(ranking) and ranking[rank] not in rows:
                rows.append(ranking[rank])
    return rows


@pytest.mark.parametrize("depth", [1, 3, 100])
def test_without_a_model_rows_come_rank_by_rank_as_bm25_finds_them(depth, texts, queries, store):
    expected = interleaved([by_words(texts, query) for query in queries], depth)
    rows = query_log_rows(store, QueryLog(queries), depth=depth)
    assert rows.tolist() == expected and rows.dtype == np.int64


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_without_texts_rows_come_rank_by_rank_as_exact_search_finds_them(metric, texts, queries, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_QUERY_BLOCK", 5)  # 12 queries in three blocks
    store, vectors = make_store(tmp_path / "s", texts, metric, with_texts=False)
    monkeypatch.setattr(store, "scan", partial(store.scan, batch_size=7))  # 90 rows in 13 batches
    model = Directions(6)
    asked = model.embed_queries(queries, progress=None)
    expected = interleaved([by_vectors(vectors, query, metric) for query in asked], 4)
    assert query_log_rows(store, QueryLog(queries, model), depth=4).tolist() == expected


def test_with_a_model_and_texts_both_rankings_take_turns(texts, queries, stored):
    (store, vectors), model, rankings = stored, Directions(6), []
    for query, asked in zip(queries, model.embed_queries(queries, progress=None), strict=True):
        rankings += [by_vectors(vectors, asked, "ip"), by_words(texts, query)]
    assert query_log_rows(store, QueryLog(queries, model), depth=3).tolist() == interleaved(rankings, 3)


def test_a_larger_store_is_searched_for_words_in_a_random_part(queries, store, monkeypatch):
    monkeypatch.setattr(module, "BM25_POOL", 30)
    first, again, other = (set(query_log_rows(store, QueryLog(queries), seed=seed).tolist()) for seed in (0, 0, 1))
    assert first == again != other
    assert max(len(first), len(other)) <= 30 < len(first | other)


def test_the_most_frequent_queries_of_a_long_log_count(texts, queries, store, monkeypatch):
    monkeypatch.setattr(module, "MOST_QUERIES", 4)
    expected = interleaved([by_words(texts, query) for query in queries[:4]], 100)
    assert query_log_rows(store, QueryLog(queries)).tolist() == expected


def test_a_log_that_finds_nothing_gives_no_rows(store):
    assert query_log_rows(store, QueryLog([Query("q", "zebra")])).tolist() == []


def test_an_empty_log_and_a_model_of_another_dimension_are_refused(queries, store):
    with pytest.raises(UsageError, match="the query log has no queries"):
        query_log_rows(store, QueryLog([]))
    with pytest.raises(VectorError, match=r"the store has 6 dimensions, and .* gives 7"):
        query_log_rows(store, QueryLog(queries, Directions(7)))


def test_the_digest_of_a_log_tells_queries_and_models_apart(queries):
    with_models = [QueryLog(queries, Directions(dim)) for dim in (6, 7)]
    logs = [QueryLog(queries), QueryLog(queries[:-1]), *with_models]
    assert len({log.digest() for log in logs}) == 4
    assert QueryLog(list(queries)).digest() == logs[0].digest()
