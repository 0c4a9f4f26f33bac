from collections.abc import Callable
from itertools import permutations

import ir_measures
import numpy as np
import pytest
from ir_measures import RR, Judged, R, nDCG

from migrate.audit.measures import judged, ndcg, ndcg_at_random, overlap, rank_biased_overlap, recall, reciprocal_rank
from migrate.search.runs import Rankings

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
        found = rng.choice(grades, size=len(docs)) if query % 5 else np.zeros(len(docs), int)
        qrels[f"q{query}"] = {f"d{doc}": int(grade) for doc, grade in zip(docs, found, strict=True)}
    return qrels


def make_run(rng, query_ids, *, missing=0.2, n_documents=150):
    """Random rankings, some short, some empty, some missing."""
    lengths = {query_id: int(rng.choice([0, 1, 8, 100])) for query_id in query_ids if rng.random() > missing}
    return Rankings({q: tuple(f"d{d}" for d in rng.permutation(n_documents)[:n]) for q, n in lengths.items()})


def as_scored(run):
    return {q: {doc: float(-rank) for rank, doc in enumerate(docs)} for q, docs in run.rankings.items()}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("grades", [[0, 1], [0, 1, 2, 5], [-1, 0, 1, 3]])
@pytest.mark.parametrize(("measure", "k", "judge"), MEASURES)
def test_measures_are_those_of_ir_measures(measure, k, judge, grades, seed):
    rng = np.random.default_rng(seed)
    qrels = make_qrels(rng, grades=grades)
    run = make_run(rng, qrels)
    ids = list(qrels)
    found = dict(zip(ids, measure(run, qrels, ids, k), strict=True))
    scored = as_scored(run)
    theirs = {metric.query_id: metric.value for metric in ir_measures.iter_calc([judge], qrels, scored)}
    assert len(theirs) == len(ids)
    assert found == pytest.approx(theirs)
    assert np.mean(list(found.values())) == pytest.approx(ir_measures.calc_aggregate([judge], qrels, scored)[judge])
    assert any(found.values())


def test_scores_stand_in_the_order_that_was_asked_for():
    run = Rankings({"x": ("a", "b"), "y": ("a", "b")})
    assert reciprocal_rank(run, {"x": {"a": 1}, "y": {"b": 1}}, ["y", "x", "y"], 10).tolist() == [0.5, 1, 0.5]


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
    assert overlap(run, run, ids, k).tolist() == [float(bool(run.rankings.get(query_id))) for query_id in ids]


@pytest.mark.parametrize("k", [3, 10, 100])
@pytest.mark.parametrize("grades", [[0, 1], [-1, 0, 1, 3]])
def test_the_judged_share_is_that_of_ir_measures(grades, k):
    rng = np.random.default_rng(k)
    qrels = make_qrels(rng, grades=grades)
    run = make_run(rng, qrels)
    answered = Rankings({query_id: docs for query_id, docs in run.rankings.items() if docs})  # theirs divides by none
    theirs = {m.query_id: m.value for m in ir_measures.iter_calc([Judged @ k], qrels, as_scored(answered))}
    ids = list(theirs)
    assert set(ids) >= set(answered.rankings)
    assert judged(run, qrels, ids, k).tolist() == pytest.approx(list(theirs.values()))


def test_zero_and_negative_grades_are_judgements():
    run = Rankings({"a": ("x", "y", "z", "w"), "short": ("x",), "strange": ("x", "y")})
    qrels = {"a": {"x": 1, "y": 0, "z": -2, "elsewhere": 1}, "short": {"x": 1}, "unanswered": {"x": 1}}
    ids = ["a", "short", "unanswered", "strange"]
    assert judged(run, qrels, ids, 4).tolist() == [0.75, 1, 0, 0]
    assert judged(run, qrels, ids, 2).tolist() == [1, 1, 0, 0]


def make_pair(rng, *, n_short, n_long, n_documents):
    pools = (rng.permutation(n_documents)[:n] for n in (n_short, n_long))
    return tuple(tuple(f"d{document}" for document in pool) for pool in pools)


def extrapolated(first, second, p):
    """Agreement goes on beyond the end of the shorter ranking as it was there, and then beyond that of the longer."""
    short, long = sorted((first, second), key=len)
    at_short = len(set(short) & set(long[: len(short)])) / len(short)

    def agreement(d):
        """Of the documents that the short ranking lacks at depth d, the share `at_short` is taken to be common."""
        common = len(set(short[:d]) & set(long[:d]))
        return (common + max(d - len(short), 0) * at_short) / d

    depths = range(1, 3_000)
    agreements = [agreement(min(d, len(long))) for d in depths]
    return (1 - p) * sum(p ** (d - 1) * a for d, a in zip(depths, agreements, strict=True))


@pytest.mark.parametrize("p", [0.3, 0.9, 0.98])
@pytest.mark.parametrize("lengths", [(10, 10), (5, 30), (1, 8), (20, 3)])
def test_rank_biased_overlap_goes_on_as_the_rankings_do(lengths, p):
    rng = np.random.default_rng(sum(lengths))
    for _ in range(5):
        pair = make_pair(rng, n_short=lengths[0], n_long=lengths[1], n_documents=35)
        found = rank_biased_overlap(Rankings({"q": pair[0]}), Rankings({"q": pair[1]}), ["q"], p=p)
        assert found[0] == pytest.approx(extrapolated(*pair, p))


def test_rank_biased_overlap_of_equal_strange_and_empty_rankings():
    run = Rankings({"same": ("x", "y", "z"), "other": ("x", "y"), "turned": ("x", "y")})
    reference = Rankings({"same": ("x", "y", "z"), "other": ("v", "w"), "turned": ("y", "x"), "unanswered": ("x",)})
    found = rank_biased_overlap(run, reference, ["same", "other", "turned", "unanswered"], p=0.9)
    assert found.tolist() == pytest.approx([1, 0, 0.9, 0])
    documents = tuple(f"d{i}" for i in range(50))
    late, early = (*documents[:40], *documents[:39:-1]), (*documents[9::-1], *documents[10:])
    reference = Rankings({"q": documents})
    found = [rank_biased_overlap(Rankings({"q": run}), reference, ["q"])[0] for run in (documents, late, early)]
    assert found[0] > found[1] > 0.99 > found[2] > 0.5, "the first places count most"


@pytest.mark.parametrize("grades", [(1, 0, 0, 2, -1), (1, 1, 1), (0, 0), (3,), (), (1, 0, 0, 0, 0, 0)])
def test_judged_documents_in_random_order_score_the_mean_of_all_orders(grades):
    qrels = {"q": {f"d{place}": grade for place, grade in enumerate(grades)}}
    orders = [Rankings({"q": order}) for order in permutations(qrels["q"])]
    expected = np.mean([ndcg(run, qrels, ["q"], 3)[0] for run in orders])
    assert ndcg_at_random(qrels, ["q", "unjudged"], 3) == pytest.approx([expected, 0])
