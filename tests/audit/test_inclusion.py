"""Arms that rank again, judged by many queries of which some are ranked by true vectors."""

import numpy as np
import pytest
from topics import OF_TARGET, QRELS, QUERIES, audit, make_store, noisy

from migrate.audit.bounds import MARGIN, UNGROUPED, Bounds
from migrate.audit.inclusion import bounds_of_lost
from migrate.audit.query_set import QuerySet
from migrate.audit.results import FULL, NDCG

DEPTH = 7
ONE_RELEVANT = {query: {max(grades, key=grades.get): 1} for query, grades in QRELS.items()}
QUESTIONS = QuerySet(QUERIES, ONE_RELEVANT, "one relevant document")


@pytest.fixture(scope="module")
def translated(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("new") / "new", vectors=noisy(0.9), manifest=OF_TARGET)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("full") / "full", manifest=OF_TARGET)


def test_an_arm_that_has_all_relevant_documents_scores_no_less_than_a_full_reembed(translated, reference):
    report = audit(translated, reference, QUESTIONS, two_stage=[DEPTH])
    arm, full = (report.arm(name).scores[NDCG] for name in (f"two-stage {DEPTH}", FULL))
    # Of one relevant document: the arm scores if it is among its first, and if true vectors rank it among the first 10
    found = arm > 0
    assert found.any() and (full > 0)[~found].any()
    assert (arm[found] >= full[found]).all()


def test_bounds_are_those_of_both_means_and_fall_with_what_is_lost():
    gains, losses = np.full(200, 0.8), np.zeros(1_000)
    none_lost = bounds_of_lost(gains, losses, UNGROUPED, UNGROUPED, seed=0, confidence=0.95)
    assert none_lost.estimate == 1 and 0.99 < none_lost.lower < 1 and none_lost.upper == np.inf
    losses[:50] = 0.8
    some_lost = bounds_of_lost(gains, losses, UNGROUPED, UNGROUPED, seed=0, confidence=0.95)
    # 0.8 of the ranked ones, and 0.04 of all
    assert some_lost.estimate == pytest.approx(0.8 / 0.84)
    assert some_lost.lower < MARGIN
    nothing = bounds_of_lost(np.zeros(30), np.zeros(30), UNGROUPED, UNGROUPED, seed=0, confidence=0.95)
    assert nothing == Bounds(0.0, 0.0, np.inf)
