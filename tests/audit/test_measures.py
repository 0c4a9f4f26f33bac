from collections.abc import Callable

import ir_measures
import numpy as np
import pytest
from ir_measures import RR, R, nDCG

from migrate.audit.measures import ndcg, overlap, recall, reciprocal_rank
from migrate.search.runs import Run

MEASURES: list[tuple[Callable, int, object]] = [
    (ndcg, 10, nDCG @ 10),
    (ndcg, 3, nDCG @ 3),
    (recall, 100, R @ 100),
    (recall, 5, R @ 5),
    (reciprocal_rank, 10, RR @ 10),
    (reciprocal_rank, 2, RR @ 2),
]


def make_qrels(rng, *, grades, n_queries=30, n_documents=150):
    """Random judgements; every fifth query has grades of zero only."""
    qrels = {}
    for query in range(n_queries):
        docs = rng.choice(n_documents, size=rng.integers(1, 70), replace=False)
        judged = rng.choice(grades, size=len(docs)) if query % 5 else np.zeros(len(docs), int)
        qrels[f"q{query}"] = {f"d{doc}": int(grade) for doc, grade in zip(docs, judged, strict=True)}
    return qrels


def make_run(rng, query_ids, *, missing=0.2, n_documents=150):
    """Random rankings, some short, some empty, some missing."""
    lengths = {query_id: int(rng.choice([0, 1, 8, 100])) for query_id in query_ids if rng.random() > missing}
    return Run({q: tuple(f"d{d}" for d in rng.permutation(n_documents)[:n]) for q, n in lengths.items()})


def as_scored(run):
    return {q: {doc: float(-rank) for rank, doc in enumerate(docs)} for q, docs in run.rankings.items()}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("grades", [[0, 1], [0, 1, 2, 5], [-1, 0, 1, 3]])
@pytest.mark.parametrize(("measure", "k", "judge"), MEASURES)
def test_measures_are_those_of_ir_measures(measure, k, judge, grades, seed):
    rng = np.random.default_rng(seed)
    qrels = make_qrels(rng, grades=grades)
    run = make_run(rng, qrels)
    ids = list(qrels)
    found = dict(zip(ids, measure(run, qrels, ids, k), strict=True))
    scored = as_scored(run)
    judged = {metric.query_id: metric.value for metric in ir_measures.iter_calc([judge], qrels, scored)}
    assert len(judged) == len(ids)
    assert found == pytest.approx(judged)
    assert np.mean(list(found.values())) == pytest.approx(ir_measures.calc_aggregate([judge], qrels, scored)[judge])
    assert any(found.values())


@pytest.mark.parametrize(("measure", "k"), [(ndcg, 10), (recall, 100), (reciprocal_rank, 10)])
def test_all_grades_below_one_are_alike(measure, k):
    """TREC goes down to -2, where pytrec_eval corrupts its memory: it cannot be the judge here."""
    rng = np.random.default_rng(0)
    qrels = make_qrels(rng, grades=[-2, -1, 0, 1, 3])
    run = make_run(rng, qrels)
    clipped = {query_id: {doc: max(grade, 0) for doc, grade in docs.items()} for query_id, docs in qrels.items()}
    assert measure(run, qrels, list(qrels), k).tolist() == measure(run, clipped, list(qrels), k).tolist()


@pytest.mark.parametrize(("measure", "k"), [(ndcg, 10), (recall, 100), (reciprocal_rank, 10)])
def test_a_query_that_is_not_answered_scores_nothing_and_counts(measure, k):
    qrels = {"q1": {"a": 1}, "q2": {"a": 1}}
    assert measure(Run({"q1": ("a",)}), qrels, ["q2", "q1"], k).tolist() == [0, 1]


@pytest.mark.parametrize(("measure", "k"), [(ndcg, 10), (recall, 100), (reciprocal_rank, 10)])
def test_a_query_without_relevant_documents_scores_nothing(measure, k):
    run = Run(dict.fromkeys(["none", "zero", "negative"], ("a", "b")))
    qrels = {"zero": {"a": 0}, "negative": {"a": -1, "b": -2}}
    assert measure(run, qrels, ["none", "zero", "negative"], k).tolist() == [0, 0, 0]


def test_scores_stand_in_the_order_that_was_asked_for():
    qrels = {"x": {"a": 1}, "y": {"b": 1}}
    run = Run({"x": ("a", "b"), "y": ("a", "b")})
    assert reciprocal_rank(run, qrels, ["y", "x", "y"], 10).tolist() == [0.5, 1, 0.5]


@pytest.mark.parametrize("k", [1, 10, 100])
@pytest.mark.parametrize("seed", range(3))
def test_overlap_is_the_share_of_the_references_documents(k, seed):
    rng = np.random.default_rng(seed)
    ids = [f"q{query}" for query in range(40)]
    run, reference = make_run(rng, ids), make_run(rng, ids)
    expected = []
    for query_id in ids:
        wanted, got = (list(r.rankings.get(query_id, ()))[:k] for r in (reference, run))
        expected.append(sum(doc in got for doc in wanted) / len(wanted) if wanted else 0)
    assert overlap(run, reference, ids, k).tolist() == pytest.approx(expected)


def test_a_run_overlaps_itself_where_it_answers():
    run = Run({"a": ("x", "y"), "b": ()})
    assert overlap(run, run, ["a", "b", "c"], 10).tolist() == [1, 0, 0]
