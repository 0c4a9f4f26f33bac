"""Where a migration hurts: each finding against a closed case or another implementation."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import skew
from sklearn.neighbors import NearestNeighbors
from topics import DOCUMENTS, QRELS, QUERIES, SOURCE, TARGET, audit, halves, make_store, noisy

from migrate.audit.diagnostics import PASS_RATES, hubness_of, table_of_thresholds
from migrate.audit.query_set import QuerySet
from migrate.audit.results import FULL, STAY, TRANSLATED
from migrate.search.runs import Rankings
from migrate.vectors import Query, unit_rows


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hurt")
    known = [replace(one, metadata={"shelf": f"s{row % 3}"}) for row, one in enumerate(DOCUMENTS)]
    reference = make_store(folder / "reference", documents=known)
    translated = make_store(folder / "translated", documents=known, vectors=noisy(1.0))
    source = make_store(folder / "source", SOURCE, known)
    np.save(folder / "translated" / "confidence.npy", np.linspace(0.2, 0.99, len(known)).astype("<f4"))
    return audit(translated, reference, source=source, source_model=SOURCE, slice=["shelf", "absent"])


def test_regressions_are_the_queries_that_fall_furthest_behind(report):
    loss = report.arm(FULL).scores["nDCG@10"] - report.arm(TRANSLATED).scores["nDCG@10"]
    worst = report.examination.diagnostics.regressions
    fallen = [one.scores[FULL] - one.scores[TRANSLATED] for one in worst]
    assert fallen == pytest.approx(sorted(loss, reverse=True)[: len(worst)])
    assert len(worst) == 10
    texts = {query.id: query.text for query in QUERIES}
    bodies = {one.id: one.text for one in DOCUMENTS}
    for one in worst:
        assert one.text == texts[one.query_id]
        assert list(one.hits) == [FULL, TRANSLATED, STAY]
        for hit in one.hits[FULL]:
            assert hit.text == bodies[hit.doc_id]
            assert hit.grade == QRELS[one.query_id].get(hit.doc_id)


def test_slices_hold_every_query_once_and_average_to_the_whole(report):
    full = report.arm(FULL).scores["nDCG@10"]
    kinds = dict.fromkeys(one.by for one in report.examination.diagnostics.slices)
    assert list(kinds) == ["words in the query", "topic", "confidence", "shelf"]
    for by in kinds:
        own = [one for one in report.examination.diagnostics.slices if one.by == by]
        assert sum(one.queries for one in own) == len(QUERIES)
        assert sum(one.queries * one.full for one in own) / len(QUERIES) == pytest.approx(full.mean())
        for one in own:
            assert one.retention.estimate == pytest.approx(one.translated / one.full)


def test_a_slice_by_metadata_is_that_of_the_relevant_document_found_first(report):
    ids = report.data.query_ids
    full, arm = (report.arm(name).scores["nDCG@10"] for name in (FULL, TRANSLATED))
    run = {}
    asked = TARGET.embed_queries(QUERIES).astype(float) @ TARGET.embed_documents(DOCUMENTS).astype(float).T
    for query_id, scores in zip(ids, asked, strict=True):
        relevant = [d for d, grade in QRELS[query_id].items() if grade]
        run[query_id] = max(relevant, key=lambda d: scores[int(d[1:])])
    for one in (one for one in report.examination.diagnostics.slices if one.by == "shelf"):
        rows = [row for row, q in enumerate(ids) if f"s{int(run[q][1:]) % 3}" == one.value]
        assert one.queries == len(rows)
        assert (one.full, one.translated) == pytest.approx((full[rows].mean(), arm[rows].mean()))


def test_long_and_short_queries_are_told_apart(tmp_path):
    """Two parts need sixty queries; half of these have six words."""
    queries = [Query(q.id, q.text + " a b c" * (row % 2)) for row, q in enumerate(QUERIES)]
    translated, reference = make_store(tmp_path / "t", vectors=noisy(1.0)), make_store(tmp_path / "r")
    report = audit(translated, reference, QuerySet(queries, QRELS, "x"))
    own = [one for one in report.examination.diagnostics.slices if one.by == "words in the query"]
    assert [(one.value, one.queries) for one in own] == [("3", 30), ("6", 30)]


def runs(metric, n=400, seed=0):
    """Hits of 40 queries: the score says how likely a hit is relevant, and new scores are a map of the old ones."""
    rng = np.random.default_rng(seed)
    scores = np.sort(rng.uniform(0, 1, (n // 10, 10)), axis=1)[:, ::-1]
    ids = [f"q{row}" for row in range(n // 10)]
    ranked = {q: tuple(f"d{k}" for k in range(10)) for q in ids}
    qrels = {q: {f"d{k}": int(rng.random() < scores[row, k]) for k in range(10)} for row, q in enumerate(ids)}
    given = scores if metric == "ip" else 1 - scores
    new = 0.5 * scores + 0.1 if metric == "ip" else 3 * (1 - scores)
    old_run, new_run = (
        Rankings(ranked, dict(zip(ids, map(tuple, rows.tolist()), strict=True))) for rows in (given, new)
    )
    return old_run, new_run, QuerySet([Query(q, q) for q in ids], qrels, "hits")


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_thresholds_follow_a_map_of_the_scores(metric):
    old, new, questions = runs(metric)
    found = table_of_thresholds(old, new, questions, (metric, metric))
    for one, rate in zip(found.thresholds, PASS_RATES, strict=True):
        mapped = 0.5 * one.old + 0.1 if metric == "ip" else 3 * one.old
        assert one.same_pass_rate == pytest.approx(mapped)
        assert one.pass_rate == pytest.approx(rate, abs=0.01)
        assert one.precision_new == pytest.approx(one.precision_old)
        loosest = one.same_precision
        assert loosest <= mapped + 1e-9 if metric == "ip" else loosest >= mapped - 1e-9
        scores = np.array([s for q in questions.query_ids for s in new.scores[q]])
        relevant = np.array([questions.qrels[q][d] for q in questions.query_ids for d in new.rankings[q]])
        passing = scores >= loosest if metric == "ip" else scores <= loosest
        assert relevant[passing].mean() >= one.precision_old
    assert sum(found.histograms["stay"].counts) == 400


def test_no_threshold_is_as_precise_where_nothing_new_is_relevant_or_judged():
    old, new, questions = runs("ip")
    strange = Rankings({q: tuple(f"x{k}" for k in range(10)) for q in new.rankings}, new.scores)
    found = table_of_thresholds(old, strange, questions, ("ip", "ip"))
    assert all(one.same_precision is None and one.precision_new == 0 for one in found.thresholds)
    found = table_of_thresholds(old, new, replace(questions, qrels=None), ("ip", "ip"))
    assert {(one.precision_old, one.precision_new, one.same_precision) for one in found.thresholds} == {(None,) * 3}


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_hubness_is_the_skewness_of_neighbour_counts(metric):
    vectors = unit_rows(np.random.default_rng(1).normal(size=(300, 40)).astype(np.float32))
    found = hubness_of("x", vectors, metric)
    nearest = NearestNeighbors(n_neighbors=11).fit(vectors).kneighbors(vectors, return_distance=False)
    counts = np.bincount(nearest[:, 1:].ravel(), minlength=300)
    assert found.skewness == pytest.approx(skew(counts), abs=1e-9)
    assert (found.largest, found.orphans) == (counts.max(), pytest.approx((counts == 0).mean()))


def test_where_nothing_is_lost_nothing_hurts(tmp_path):
    one, other = (make_store(tmp_path / name) for name in ("one", "other"))
    found = audit(one, other).examination.diagnostics
    assert found.regressions == ()
    chunks = audit(one, make_store(tmp_path / "r", documents=halves())).examination.diagnostics
    assert chunks.hubness == (), "no documents in common"
