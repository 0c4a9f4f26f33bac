import dataclasses

import numpy as np
import pytest

from migrate.errors import StitchError, UsageError
from migrate.selection import draw_sample, random_order
from migrate.steps.translate.choice import (
    CONFIDENCE,
    POLICIES,
    QUERY_LOG,
    RANDOM,
    Survey,
    choose_policy,
    paid_rows,
    rank_rows,
    survey_store,
)
from migrate.stores.base import read_all
from migrate.vectors import unit_rows

PAID = np.array([True, False, False, False, False, False])
ROWS = np.arange(6)
SURE = np.array([0.1, 0.9, 0.5, 0.7, 0.2, 0.5], dtype=np.float32)


def test_the_least_sure_come_first_ties_in_the_stores_order():
    assert rank_rows(CONFIDENCE, Survey(PAID, SURE), ROWS).tolist() == [4, 2, 5, 3, 1]


def test_every_querys_first_hit_comes_before_any_second_one():
    survey = Survey(PAID, SURE, [[5, 3, 0], [0, 4], [5, 2]])
    order = rank_rows(QUERY_LOG, survey, ROWS).tolist()
    assert order[:4] == [5, 3, 4, 2]
    assert sorted(order) == [1, 2, 3, 4, 5], "those that no query meets follow"


def test_chance_goes_on_where_the_random_sample_ended(store, fitted):
    paid = paid_rows(store, fitted)
    order = rank_rows(RANDOM, Survey(paid, np.zeros(150, dtype=np.float32)), random_order(store, 0))
    larger = draw_sample(store, 60, seed=0).rows
    assert paid.sum() == 40
    assert set(np.flatnonzero(paid)) | set(order[:20]) == set(larger)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_pays_twice(policy, store, fitted):
    queries = np.random.default_rng(0).normal(size=(30, 24)).astype(np.float32)
    survey = survey_store(store, fitted, queries)
    order = rank_rows(policy, survey, random_order(store, 3))
    assert sorted(order.tolist()) == np.flatnonzero(~survey.paid).tolist()
    assert survey.paid.sum() == 40


def test_a_survey_finds_what_translated_vectors_have_nearest(store, fitted, target, corpus):
    queries = target.embed_queries(corpus.queries)
    survey = survey_store(store, fitted, queries)
    translated = fitted.translate(read_all(store.scan()), source="test")
    scores = unit_rows(queries).astype(float) @ translated.vectors.T.astype(float)
    for hits, row in zip(survey.hits, scores, strict=True):
        assert np.allclose(row[hits[:5]], np.sort(row)[::-1][:5], atol=1e-6)
    assert np.array_equal(survey.confidence, translated.confidence)


def test_a_survey_takes_more_queries_than_a_block_holds(store, fitted):
    queries = np.random.default_rng(0).normal(size=(501, 24)).astype(np.float32)
    whole = survey_store(store, fitted, queries)
    assert len(whole.hits) == 501
    assert whole.hits[500] == survey_store(store, fitted, queries[500:]).hits[0]


def with_confidence(fitted, confidence):
    return dataclasses.replace(fitted, selection=dataclasses.replace(fitted.selection, confidence=confidence))


def with_spearman(fitted, spearman):
    return with_confidence(fitted, dataclasses.replace(fitted.selection.confidence, spearman=spearman))


def test_a_stitch_without_confidence_cannot_tell_the_least_sure(store, fitted):
    blind = with_confidence(fitted, None)
    with pytest.raises(StitchError, match="the stitch does not say how sure it is"):
        rank_rows(CONFIDENCE, survey_store(store, blind), np.arange(store.info.count))
    with pytest.raises(UsageError, match="does not say how sure it is; take --policy"):
        choose_policy(CONFIDENCE, blind, has_log=False)


def test_a_confidence_that_ranks_nothing_is_no_policy(fitted):
    assert choose_policy(CONFIDENCE, with_spearman(fitted, 0.2), has_log=False) == CONFIDENCE
    unsure = with_spearman(fitted, 0.19)
    assert choose_policy(None, unsure, has_log=False) == RANDOM
    assert choose_policy(None, unsure, has_log=True) == QUERY_LOG
    with pytest.raises(UsageError, match=r"0\.19, .*query-log .*random"):
        choose_policy(CONFIDENCE, unsure, has_log=False)


@pytest.mark.parametrize(("has_log", "chosen"), [(True, QUERY_LOG), (False, CONFIDENCE)])
def test_the_log_is_used_where_there_is_one(has_log, chosen, fitted):
    assert choose_policy(None, fitted, has_log=has_log) == chosen


@pytest.mark.parametrize(
    ("asked", "has_log", "message"),
    [
        ("query-log", False, "name it with --query-log"),
        ("random", True, "the policy random does not read a query log"),
        ("luck", False, "unknown policy 'luck'; choose one of query-log, confidence, random"),
    ],
)
def test_a_policy_that_cannot_be_followed_is_told(asked, has_log, message, fitted):
    with pytest.raises(UsageError, match=message):
        choose_policy(asked, fitted, has_log=has_log)
