"""What a full re-embed scores, and by how much more than staying: against exact bounds and an own bootstrap."""

import numpy as np
import pytest
from scipy.stats import beta

from migrate.audit.bootstrap import FLOOR_SHARE, Floor
from migrate.audit.bounds import CONFIDENCE
from migrate.audit.query_set import QuerySet
from migrate.audit.rules import Rules, Settings
from migrate.vectors import Query

SETTINGS = Settings(plan="translated", margin=0.95, seed=0, stages=None, slices=(), pool_depth=None)


def rules_of(count, floor=None):
    queries = [Query(f"q{number}", f"question {number}") for number in range(count)]
    query_set = QuerySet(queries, {query.id: {"d": 1} for query in queries}, "questions")
    return Rules(query_set, SETTINGS, 1_000, floor=floor)


@pytest.mark.parametrize(("hits", "count"), [(30, 40), (99, 100), (100, 100), (3, 60)])
def test_quality_of_hits_and_misses_has_the_bounds_of_clopper_and_pearson(hits, count):
    scores = np.repeat([1.0, 0.0], [hits, count - hits])
    found = rules_of(count).quality(scores)
    lower = beta.ppf(0.05, hits, count - hits + 1)
    upper = 1.0 if hits == count else beta.ppf(0.95, hits + 1, count - hits)
    assert found.estimate == hits / count
    assert (found.lower, found.upper) == (pytest.approx(lower, abs=0.004), pytest.approx(upper, abs=0.004))


@pytest.mark.slow
def test_a_gain_is_tested_query_by_query():
    rng = np.random.default_rng(1)
    stay = rng.uniform(0, 0.8, 200)
    full = stay + 0.05 + 0.01 * rng.standard_normal(200)
    found = rules_of(200).gain(full, stay)
    weights = rng.standard_exponential((40_000, 201))
    spare, total = weights[:, 200], weights.sum(axis=1)
    sums = weights[:, :200] @ (full - stay)
    assert found.estimate == pytest.approx((full - stay).mean())
    assert found.lower == pytest.approx(np.quantile((sums - spare) / total, 0.05), abs=0.001)
    assert found.upper == pytest.approx(np.quantile((sums + spare) / total, 0.95), abs=0.001)
    assert found.lower > 0, "a small difference that all queries have is seen"


def test_several_targets_have_wider_bounds():
    rng = np.random.default_rng(2)
    full, stay = rng.uniform(0, 1, (2, 100))
    one, three = (rules_of(100).gain(full, stay, confidence=1 - 0.05 / targets) for targets in (1, 3))
    assert three.lower < one.lower and three.upper > one.upper and three.estimate == one.estimate


def test_in_a_pool_the_lower_bound_is_that_of_the_floor_and_the_upper_one_that_of_the_pool():
    rng = np.random.default_rng(3)
    full, stay = rng.uniform(0.5, 1, 100), rng.uniform(0, 0.5, 100)
    floor = Floor(expected=0.9 * full, least=0.6 * full)
    pooled, whole = rules_of(100, floor), rules_of(100)
    level = 1 - (1 - FLOOR_SHARE) * (1 - CONFIDENCE)
    for measure in ("quality", "gain"):
        rest = (stay,) if measure == "gain" else ()
        found, in_full = (getattr(rules, measure)(full, *rest) for rules in (pooled, whole))
        assert found.upper == in_full.upper
        assert found.lower == getattr(whole, measure)(0.6 * full, *rest, confidence=level).lower
        assert found.estimate == pytest.approx(getattr(whole, measure)(0.9 * full, *rest).estimate)
        assert found.lower < found.estimate < found.upper
