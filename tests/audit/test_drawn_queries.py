import json

import numpy as np
import pytest
from paired_scores import all_of, judge, make

from migrate.audit.drawn_queries import (
    FLOOR,
    Unjudged,
    chances_of,
    draw_queries,
    greatest_change,
    weighting_of,
    write_unjudged,
)
from migrate.audit.measures import ndcg
from migrate.audit.verdict import Bootstrap, Weighting, ratio_bounds
from migrate.search.runs import Rankings
from migrate.vectors import Query


def change(first, second, k=10):
    return greatest_change(Rankings({"q": tuple(first)}), Rankings({"q": tuple(second)}), ["q"], k)[0]


def test_the_same_ranking_cannot_differ_and_one_without_a_common_document_can_by_everything():
    assert change("abc", "abc") == 0
    assert change("abc", "def") == 1
    assert change("", "abc") == change("abc", "") == 1
    assert change("", "") == 0
    assert change("ab", "ba") == pytest.approx(1 - 1 / np.log2(3)), "by the discounts of their places"
    assert change("abcx", "abcy") == pytest.approx(1 / np.log2(5))


@pytest.mark.parametrize("seed", range(6))
def test_no_judgements_make_a_greater_difference_and_some_make_this_one(seed):
    rng = np.random.default_rng(seed)
    rankings = [tuple(rng.permutation(list("abcdefg"))[:4]) for _ in range(2)]
    first, second = (Rankings({"q": ranking}) for ranking in rankings)
    limit = greatest_change(first, second, ["q"], 4)[0]
    greatest = 0.0
    for grades in [*np.ndindex((2,) * 7), *rng.integers(0, 4, size=(500, 7)).tolist()]:
        qrels = {"q": dict(zip("abcdefg", grades, strict=True))}
        one, other = (ndcg(run, qrels, ["q"], 4)[0] for run in (first, second))
        greatest = max(greatest, abs(one - other))
    assert greatest <= limit + 1e-9
    assert greatest == pytest.approx(limit)


def test_each_query_is_drawn_with_its_chance_and_in_no_order():
    chances = np.repeat([FLOOR, 0.5, 1.0], 2_000)
    drawn = draw_queries(chances, len(chances), seed=3)
    assert len(set(drawn.tolist())) == len(drawn)
    shares = np.bincount(drawn // 2_000) / 2_000
    assert shares == pytest.approx([FLOOR, 0.5, 1.0], abs=0.04)
    assert abs(np.corrcoef(drawn, np.arange(len(drawn)))[0, 1]) < 0.1
    assert draw_queries(chances, 40, seed=3).tolist() == drawn[:40].tolist()
    assert draw_queries(chances, 40, seed=4).tolist() != drawn[:40].tolist()
    assert chances_of(np.array([0.0, 0.05, 0.4, 1.0])).tolist() == [FLOOR, FLOOR, 0.4, 1.0]


def test_the_file_to_grade_has_each_query_in_its_place_for_a_person_to_read(tmp_path):
    drawn = [Unjudged(Query(f"q{n}", f"où est {n} ?", {"user": n} if n else {}), 0.5, {"d": "là"}) for n in range(2)]
    write_unjudged(tmp_path / "grade.jsonl", drawn)
    text = (tmp_path / "grade.jsonl").read_text("utf-8")
    first, second = map(json.loads, text.splitlines())
    assert "où est 0 ?" in text and "là" in text and text.endswith("\n")
    assert (first["place"], first["_id"], first["chance"], second["place"]) == (1, "q0", 0.5, 2)
    assert first["documents"] == [{"_id": "d", "text": "là", "grade": None}]
    assert "metadata" not in first and second["metadata"] == {"user": 1} and first["seal"] != second["seal"]


def test_queries_that_were_all_drawn_for_certain_have_the_bounds_of_any_others():
    arm, full = make(120)
    even = Weighting(np.ones(120), 1.0)
    assert all_of(Bootstrap(weighting=even), arm, full) == all_of(Bootstrap(), arm, full)
    assert judge(arm, full, arm, weighting=even) == judge(arm, full, arm)


def test_without_a_limit_the_imagined_query_is_as_heavy_as_any():
    arm, full = make(300)
    chances = np.random.default_rng(0).uniform(0.3, 1, 300)
    near, far = (Bootstrap(weighting=weighting_of(chances, limited=of)).retention(arm, full) for of in (True, False))
    assert near.estimate == far.estimate == pytest.approx((arm / chances).sum() / (full / chances).sum())
    assert far.lower < near.lower < near.estimate < near.upper < far.upper
    heaviest = [weighting_of(np.array(chances), limited=False).heaviest for chances in ([1.0], [0.5, 0.3], [0.05, 1.0])]
    assert heaviest == pytest.approx([10, 10, 20]), "others might have had the least chance"


@pytest.mark.parametrize(("arm", "full", "lower", "upper"), [(9, 10, 9 / 11, 1.0), (12, 10, 15 / 14, 1.3)])
def test_an_imagined_query_weighs_most_and_differs_by_its_chance_at_most(arm, full, lower, upper):
    """It weighs up to 4, of which arm and full re-embed share all but 1: as is for the worse, all or nothing."""
    weighting = Weighting(np.ones(2), 4.0, limited=True)
    bounds = ratio_bounds(np.array([[arm]]), np.array([[full]]), np.ones(1), 0.95, weighting=weighting)
    assert [float(bound[0]) for bound in bounds] == pytest.approx([lower, upper])


def population(n=20_000, *, hit=0.0, seed=0):
    """Scores of queries of which most cannot differ; a share `hit` loses, of what it can, all."""
    rng = np.random.default_rng(seed)
    changes = np.where(rng.random(n) < 0.7, 0.0, rng.random(n))
    full = changes + (1 - changes) * rng.random(n)
    return full - changes * (rng.random(n) < hit), full, changes


def audits(arm, full, changes, n, times, seed=1):
    chances = chances_of(changes)
    rng = np.random.default_rng(seed)
    for audit in range(times):
        rows = rng.choice(len(arm), size=n, p=chances / chances.sum())
        weighting = weighting_of(chances[rows], limited=True)
        yield Bootstrap(seed=audit, resamples=300, weighting=weighting).retention(arm[rows], full[rows])


@pytest.mark.parametrize("hit", [0.05, 0.3])
def test_the_truth_is_seldom_beyond_the_bounds_of_drawn_queries(hit):
    arm, full, changes = population(hit=hit)
    truth = arm.mean() / full.mean()
    bounds = list(audits(arm, full, changes, 100, 200))
    assert np.mean([one.estimate for one in bounds]) == pytest.approx(truth, abs=0.005)
    # At 5 % more than 17 of 200 are seen once in 70 times
    assert sum(one.lower > truth for one in bounds) <= 17
    assert sum(one.upper < truth for one in bounds) <= 17


def test_gains_are_not_underrated_where_both_score_much():
    """The arm wins a little by rare queries of the least chance, both scoring much: the upper bound must not be low."""
    changes = np.full(4_000, FLOOR)
    full = np.full(4_000, 0.9)
    arm = np.where(np.arange(4_000) % 50 == 0, 1.0, 0.85 * full)
    truth = arm.mean() / full.mean()
    bounds = list(audits(arm, full, changes, 50, 200))
    assert sum(one.upper < truth for one in bounds) <= 17


def test_staying_is_not_limited_by_the_chances():
    """What the arm and staying differ by was not looked at when queries were drawn."""
    arm, full, changes = population(200)
    chances = chances_of(changes)
    stay = np.clip(arm - 0.02, 0, 1)
    gains = [judge(arm, full, stay, weighting=weighting_of(chances, limited=of)).gain_over_stay for of in (True, False)]
    assert gains[0] == gains[1]
    assert gains[0].upper > 0.02 + 0.5 * 3 / 200
