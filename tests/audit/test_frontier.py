import dataclasses

import numpy as np
import pytest
import topics

import migrate
from migrate.audit.frontier import SAMPLE, Frontier, FrontierPoint, find_frontier
from migrate.audit.query_set import QuerySet
from migrate.audit.results import TRANSLATED, ArmResult, Comparison
from migrate.audit.verdict import Bounds, Outcome, Verdict
from migrate.cost.count import count_texts
from migrate.embed import reembed_store
from migrate.embedders import load_embedder
from migrate.errors import InputError, StitchError, StoreError, UsageError
from migrate.report.audit_sections import frontier_blocks
from migrate.report.document import frontier_document
from migrate.report.terminal import as_text
from migrate.stores import open_store
from migrate.vectors import Query

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def target(source_folder):
    embedder = load_embedder("tfidf:64")
    embedder.fit(open_store(source_folder).documents())
    return embedder


@pytest.fixture(scope="module")
def fitted(source_folder, target):
    return migrate.fit(open_store(source_folder), target, kind="ridge", sample=20)


@pytest.fixture(scope="module")
def reference(source_folder, target, tmp_path_factory):
    folder = tmp_path_factory.mktemp("frontier") / "reference"
    reembed_store(open_store(source_folder), target, folder)
    return open_store(folder)


@pytest.fixture(scope="module")
def store(source_folder):
    return open_store(source_folder)


@pytest.fixture(scope="module")
def questions(corpus):
    return QuerySet(corpus.queries[:100], corpus.qrels, "docstrings")


@pytest.fixture(scope="module")
def tried(store, fitted, reference, questions, target):
    """Tries shares of the store; what is named takes the place of what is usual."""

    def try_shares(shares=(0.1, 0.2, 0.3, 0.5), policies=(), *, asked=questions, full=reference, stay=None, **options):
        usual = {"source": store, "frontier": fitted, "embedder": target, "resamples": 300}
        audit = topics.asked(full, full, asked, **{**usual, "frontier_shares": shares, "policy": policies, **options})
        return find_frontier(audit, full, stay=stay)

    return try_shares


def test_a_point_is_what_the_audit_says_of_the_store_that_is_made(
    tried, store, fitted, reference, questions, target, corpus, tmp_path
):
    log = corpus.queries[100:]
    found = tried(query_log=log, shares=[0.4])
    options = {"reembed": "40%", "policy": "query-log", "query_log": log, "save_stitch": tmp_path / "stitch"}
    migrate.translate(store, fitted, tmp_path / "new", target=target, **options)
    report = topics.audit(open_store(tmp_path / "new"), reference, questions, target, resamples=300)
    (point,) = [one for one in found.points if one.policy == "query-log"]
    assert point.comparison.retention == report.comparisons[TRANSLATED].retention
    assert point.verdict.retention.estimate == report.verdict.retention.estimate
    assert (point.documents, point.share) == (60, 0.4)


def test_every_policy_is_tried_at_every_share_beyond_the_sample_and_only_queries_are_embedded(
    tried, target, corpus, monkeypatch
):
    monkeypatch.setattr(type(target), "embed_documents", None)
    found = tried([0.5, 0.1, 0.3], query_log=corpus.queries[100:])
    names = [(point.policy, point.documents) for point in found.points]
    policies = ("query-log", "confidence", "random")
    assert names == [(SAMPLE, 20), *((policy, count) for policy in policies for count in (45, 75))]
    assert found.measure == "nDCG@10"
    assert [point.policy for point in tried([0.3]).points] == [SAMPLE, "confidence", "random"], "without a log"


def test_a_confidence_that_ranks_nothing_is_not_tried(tried, fitted):
    poor = dataclasses.replace(fitted.selection.confidence, spearman=0.1)
    unsure = dataclasses.replace(fitted, selection=dataclasses.replace(fitted.selection, confidence=poor))
    found = tried(frontier=unsure, shares=[0.3])
    assert [point.policy for point in found.points] == [SAMPLE, "random"]
    assert [point.verdict.confidence for point in found.points] == [0.95] * 2, "no policy is left to be picked from"
    assert found.notes == (
        "the confidence is not to be used: it ranks held-out documents by their true cosine with Spearman 0.10, below "
        "0.2; the policy confidence is left out",
    )
    with pytest.raises(UsageError, match="--policy confidence: the confidence is not to be used"):
        tried(frontier=unsure, policies=["random", "confidence"])


def test_without_judgements_retention_is_of_agreement_and_the_margin_still_of_retention(tried, questions):
    unjudged = dataclasses.replace(questions, qrels=None)
    found = tried(asked=unjudged, shares=[1.0], policies=["random"], margin=0.9)
    assert found.measure == "agreement@10"
    assert "SAFE (provisional)" in found.sentence
    assert found.points[-1].verdict.provisional
    assert found.points[-1].verdict.retention.estimate == 1
    found = tried(asked=unjudged, shares=[0.3], policies=["random"])
    assert found.sentence.startswith("no budget tried here is SAFE at the margin of 95 %;")


def test_tokens_and_money_are_those_of_all_true_vectors(tried, store):
    found = tried([1.0], ["random"], price=5.0)
    tokens = count_texts(store.documents(), load_embedder("tfidf:64").profile).tokens_read
    assert found.points[-1].tokens == tokens
    assert found.points[-1].price_usd == pytest.approx(tokens * 5 / 1e6)
    assert 0 < found.points[0].tokens < tokens


def test_queries_that_choose_documents_do_not_judge(tried, store, fitted, reference, questions, target, corpus):
    chosen = [Query("renamed", f" {query.text.upper()}\n") for query in questions.queries[:30]]
    log = [*chosen, *corpus.queries[100:]]
    stay = np.linspace(0, 1, len(questions.distinct))
    options = {"shares": [0.4], "policies": ["query-log"], "query_log": log, "stay": stay[30:]}
    found = tried(**options)
    expected = tried(asked=dataclasses.replace(questions, queries=questions.queries[30:]), **options)
    assert [point.verdict for point in found.points] == [point.verdict for point in expected.points]
    assert {point.verdict.n_queries for point in found.points} == {70}
    options = {"source": store, "frontier": fitted, "frontier_shares": "40%", "query_log": log}
    asked = topics.asked(reference, reference, questions, target, **options)
    assert asked.judging.notes == ("30 of 100 queries chose documents that have true vectors; they do not judge",)
    other = tried([0.4], ["random"], query_log=log)
    assert (other.points[0].verdict.n_queries, other.notes) == (100, ()), "a policy that reads no log"


def test_another_store_stitch_or_reference_is_refused(tried, store, reference, target, tmp_path):
    with pytest.raises(StitchError, match="is not the store that the stitch was fitted on"):
        tried(source=reference)
    query_stitch = migrate.fit(store, target, direction="query", kind="ridge", sample=20)
    with pytest.raises(StitchError, match="--direction document"):
        tried(frontier=query_stitch)
    other = topics.make_store(tmp_path / "other", target, list(reference.documents())[1:])
    with pytest.raises(StoreError, match="lacks 1 ids of"):
        tried(full=other, shares=[1.0], policies=["random"])


def test_shares_in_the_place_of_the_stitch_are_refused(store, reference, questions, target):
    plan = topics.asked(reference, reference, questions, target, source=store, frontier=[0.1, 0.3])
    with pytest.raises(UsageError, match="is not a stitch; name shares of the store by frontier_shares"):
        plan.check()


def test_a_stitch_of_another_store_is_refused_before_anything_is_embedded(store, reference, questions, target, fitted):
    fitting, other = (
        topics.asked(reference, reference, questions, target, source=source, frontier=fitted)
        for source in (store, reference)
    )
    assert fitting.judging.queries == questions.queries
    with pytest.raises(StitchError, match="is not the store that the stitch was fitted on"):
        _ = other.judging


def test_shares_that_are_none_and_audits_without_queries_are_told(tried):
    for shares in ([], [0.0], [0.2, 1.1]):
        with pytest.raises(UsageError, match="no share of the store; give some above 0 and up to 1"):
            tried(shares=shares)
    with pytest.raises(InputError, match="has no queries to judge by"):
        tried(asked=QuerySet([], {}, "none"))


def point(policy, documents, outcome, price=None):
    verdict = Verdict(outcome, Bounds(0.9, 0.85, 0.95), 0.9, 100, None, None, False)
    arm = ArmResult(f"translated + {documents}%", "", {"nDCG@10": np.ones(3)}, 0.0)
    comparison = Comparison(verdict.retention, 0, 3, 0)
    share = documents / 100
    return FrontierPoint(policy, share, documents, 10 * documents, share, price, verdict, arm, comparison)


SAFE, NOT_SAFE, OPEN = Outcome.SAFE, Outcome.NOT_SAFE, Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("points", "cheapest"),
    [
        ([(SAMPLE, 10, NOT_SAFE), ("random", 20, NOT_SAFE), ("random", 30, OPEN)], None),
        ([(SAMPLE, 10, NOT_SAFE), ("random", 20, NOT_SAFE), ("random", 30, SAFE)], ("random", 30)),
        ([("random", 20, SAFE), ("random", 30, NOT_SAFE), ("random", 50, SAFE)], ("random", 50)),
        ([("random", 30, SAFE), ("query-log", 20, SAFE), ("query-log", 30, SAFE)], ("query-log", 20)),
        ([(SAMPLE, 10, SAFE), ("random", 20, SAFE)], (SAMPLE, 10)),
        ([(SAMPLE, 10, SAFE), ("random", 20, OPEN)], (SAMPLE, 10)),
    ],
)
def test_the_cheapest_safe_budget_has_no_larger_one_that_is_not(points, cheapest):
    best = Frontier(tuple(point(*one) for one in points), 100, "nDCG@10").cheapest_safe
    assert (None if best is None else (best.policy, best.documents)) == cheapest


def test_bounds_make_up_for_the_number_of_policies(tried):
    one, both = (tried([0.5], policies) for policies in (["random"], ["random", "confidence"]))
    assert [point.verdict.confidence for point in one.points] == pytest.approx([0.95, 0.95])
    assert [point.verdict.confidence for point in both.points] == pytest.approx([0.975] * 3)
    narrow, wide = (found.points[1].verdict.retention for found in (one, both))
    assert wide.lower < narrow.lower <= narrow.estimate == wide.estimate
    assert "97.5 % bounds" in as_text(frontier_blocks(both))


def test_the_table_names_the_cheapest_and_the_document_has_every_point():
    found = Frontier((point(SAMPLE, 10, OPEN, 0.1), point("query-log", 20, SAFE, 0.25)), 100, "nDCG@10", ("a note",))
    text = as_text(frontier_blocks(found))
    assert "the cheapest budget that is SAFE: 20% by query-log (20 documents, about 200 tokens, $0.2500" in text
    assert "note: a note" in text and max(map(len, text.split("\n"))) <= 100
    document = frontier_document(found)
    assert [one["outcome"] for one in document["points"]] == ["INCONCLUSIVE", "SAFE"]
    assert document["cheapest_safe"]["policy"] == "query-log"
    none = Frontier((point(SAMPLE, 10, OPEN),), 100, "nDCG@10")
    assert "no budget tried here is SAFE at the margin of 90 %" in as_text(frontier_blocks(none))
    assert "usd" not in as_text(frontier_blocks(none)) and frontier_document(none)["cheapest_safe"] is None
