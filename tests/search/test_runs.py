from itertools import pairwise

import numpy as np
import pytest

from migrate.search.runs import DEPTH, Rankings, TopK, rank, search, without_self
from migrate.vectors import Batch

both_metrics = pytest.mark.parametrize("metric", ["ip", "l2"])


def make(n, dim=7, n_queries=9):
    rng = np.random.default_rng(0)
    vectors, queries = (rng.normal(size=(rows, dim)).astype(np.float32) for rows in (n, n_queries))
    ids = [f"d{row:05}" for row in rng.permutation(n)]
    return ids, vectors, queries, [f"q{query}" for query in range(n_queries)]


def cut(ids, vectors, edges):
    return [Batch(ids[a:b], vectors[a:b].copy()) for a, b in pairwise([0, *edges, len(ids)])]


def brute_force(ids, vectors, queries, query_ids, metric, depth, key=lambda doc_id: doc_id):
    """Every score in float64, one at a time; the best chunk stands for its document."""
    rankings = {}
    for query_id, query in zip(query_ids, queries.astype(float), strict=True):
        best = {}
        for doc_id, vector in zip(ids, vectors.astype(float), strict=True):
            score = sum(query * vector) if metric == "ip" else -sum((query - vector) ** 2)
            best[key(doc_id)] = max(score, best.get(key(doc_id), -np.inf))
        # Equal vectors have equal scores here; rounding makes the two forms of the distance differ by less.
        rankings[query_id] = tuple(sorted(best, key=lambda doc_id: (-round(best[doc_id], 9), doc_id))[:depth])
    return rankings


@both_metrics
@pytest.mark.parametrize(
    ("n", "depth", "edges"),
    [
        (400, 10, []),
        (400, 100, [1, 2, 5, 133, 134, 300]),
        (400, 1, [7]),
        (1, DEPTH, []),  # fewer documents than the depth, and about as many
        (5, DEPTH, [2]),
        (99, DEPTH, [49]),
        (100, DEPTH, [50]),
        (101, DEPTH, [50]),
    ],
)
def test_search_ranks_as_every_score_taken_one_by_one(metric, n, depth, edges):
    ids, vectors, queries, query_ids = make(n)
    found = search(cut(ids, vectors, edges), query_ids, queries, metric=metric, depth=depth)
    assert found.rankings == brute_force(ids, vectors, queries, query_ids, metric, depth)
    assert {len(docs) for docs in found.rankings.values()} == {min(n, depth)}


def test_what_is_not_asked_for_is_a_hundred_documents():
    ids, vectors, queries, query_ids = make(101)
    found = search([Batch(ids, vectors)], query_ids, queries, metric="ip")
    assert {len(docs) for docs in found.rankings.values()} == {100}
    assert search([], ["q"], np.ones((1, 3), np.float32), metric="ip").rankings == {"q": ()}


@both_metrics
@pytest.mark.parametrize("scale", [1e-3, 300.0])
def test_the_length_of_vectors_loses_no_document_and_no_argument_is_changed(metric, scale):
    ids, vectors, queries, query_ids = make(300)
    vectors *= np.float32(scale) * np.random.default_rng(1).uniform(0.01, 1, size=(300, 1)).astype(np.float32)
    before = vectors.copy(), queries.copy()
    batches = [Batch(ids[:100], vectors[:100]), Batch(ids[100:], vectors[100:])]
    found = search(batches, query_ids, queries, metric=metric, depth=10)
    assert np.array_equal(vectors, before[0]) and np.array_equal(queries, before[1])
    assert found.rankings == brute_force(ids, vectors, queries, query_ids, metric, 10)


@both_metrics
def test_documents_closer_together_than_float32_can_tell_are_ranked(metric):
    """Differences of 1e-7 around a common mean: a float32 product orders these by its rounding."""
    rng = np.random.default_rng(2)
    wide = (rng.normal(size=64) + 1e-6 * rng.normal(size=(300, 64))).astype(np.float32).astype(float)
    queries = rng.normal(size=(5, 64)).astype(np.float32)
    ids = [f"d{row:03}" for row in range(300)]
    found = search(cut(ids, wide.astype(np.float32), [57]), list("abcde"), queries, metric=metric, depth=10)
    for query_id, query in zip("abcde", queries.astype(float), strict=True):
        exact = wide @ query if metric == "ip" else -np.square(wide - query).sum(axis=1)
        assert found.rankings[query_id] == tuple(ids[row] for row in np.argsort(-exact)[:10])


@both_metrics
@pytest.mark.parametrize("dim", [1, 7, 385])
def test_equal_vectors_tie_by_doc_id_wherever_they_stand(metric, dim):
    ids, vectors, queries, query_ids = make(300, dim)
    twins = [0, 1, 9, 63, 100, 101, 250, 299]
    vectors[twins] = queries[0] * 3  # at the top of the first query by inner product
    vectors[[20, 21, 22]] = vectors[23]
    names = sorted(ids[row] for row in twins)
    for edges in ([], [1], [10, 101], [1, 2, 64, 100, 101, 249, 298]):
        found = search(cut(ids, vectors, edges), query_ids, queries, metric=metric, depth=300)
        for ranking in found.rankings.values():
            places = [ranking.index(name) for name in names]
            assert places == list(range(places[0], places[0] + len(twins))), "side by side, in the order of their ids"


@both_metrics
def test_ties_at_the_cut_keep_the_least_doc_ids(metric):
    vectors = np.tile(np.arange(1, 6, dtype=np.float32), (50, 1))
    ids = [f"d{row:02}" for row in np.random.default_rng(5).permutation(50)]
    for edges in ([], [3, 4, 30], list(range(1, 50))):
        found = search(cut(ids, vectors, edges), ["q"], vectors[:1].copy(), metric=metric, depth=10)
        assert found.rankings["q"] == tuple(f"d{row:02}" for row in range(10))


@both_metrics
@pytest.mark.parametrize("edges", [[], [1, 50, 77, 200]])
def test_a_document_ranks_by_its_best_chunk(metric, edges):
    ids, vectors, queries, query_ids = make(300)
    parent = {doc_id: f"p{int(doc_id[1:]) // 7:02}" for doc_id in ids}
    batches = cut([parent[doc_id] for doc_id in ids], vectors, edges)
    found = search(batches, query_ids, queries, metric=metric, depth=12)
    assert found.rankings == brute_force(ids, vectors, queries, query_ids, metric, 12, parent.__getitem__)


def test_many_good_chunks_of_one_document_do_not_crowd_out_the_others():
    vectors = np.concatenate([np.full((500, 1), 9), np.arange(8)[:, None]]).astype(np.float32)
    documents = [*["big"] * 500, *(f"small{row}" for row in range(8))]
    found = search(cut(documents, vectors, [250]), ["q"], vectors[:1], metric="ip", depth=5)
    assert found.rankings["q"] == ("big", "small7", "small6", "small5", "small4")


def test_what_was_found_so_far_can_be_asked_for():
    ids, vectors, queries, query_ids = make(60)
    top = TopK(query_ids, queries, metric="ip", depth=5)
    for start, end in ((0, 20), (20, 60)):
        top.add(ids[start:end], vectors[start:end])
        assert top.run().rankings == brute_force(ids[:end], vectors[:end], queries, query_ids, "ip", 5)


@pytest.mark.parametrize("seed", range(3))
def test_rank_keeps_the_best_score_of_each_document_and_breaks_ties_by_id(seed):
    rng = np.random.default_rng(seed)
    scored = [(f"d{rng.integers(40)}", float(rng.integers(-3, 4))) for _ in range(120)]
    best = {doc: max(score for other, score in scored if other == doc) for doc, _ in scored}
    by_id = sorted(best)  # a stable sort by score leaves equal scores in the order of ids
    expected = [(doc, best[doc]) for doc in sorted(by_id, key=lambda doc: -best[doc])]
    assert rank(scored, depth=12) == expected[:12]
    assert rank(reversed(scored), depth=999) == expected


def test_a_query_never_finds_itself_and_one_that_was_not_asked_finds_nothing():
    run = without_self(Rankings({"a": ("b", "a", "c"), "b": ("a", "c"), "c": ("c",)}))
    assert run.rankings == {"a": ("b", "c"), "b": ("a", "c"), "c": ()}
    assert (run.top("a", 1), run.top("d", 2)) == (("b",), ())
