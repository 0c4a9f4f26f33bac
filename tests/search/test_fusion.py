import pytest

from migrate.search.fusion import RankComparison, fuse_old, reciprocal_rank_fusion
from migrate.search.runs import Rankings


def test_scores_are_sums_of_reciprocal_ranks():
    runs = [Rankings({"q": ("a", "b", "c")}), Rankings({"q": ("c", "a", "d")})]
    expected = {"a": 1 / 61 + 1 / 62, "b": 1 / 62, "c": 1 / 63 + 1 / 61, "d": 1 / 63}
    assert reciprocal_rank_fusion(runs).top("q", 9) == tuple(sorted(expected, key=lambda d: (-expected[d], d)))


def test_ties_break_by_doc_id_and_depth_cuts():
    runs = [Rankings({"q": ("b",)}), Rankings({"q": ("a",)})]
    assert reciprocal_rank_fusion(runs).top("q", 2) == ("a", "b")
    assert reciprocal_rank_fusion(runs, depth=1).rankings == {"q": ("a",)}


def test_a_query_that_one_run_does_not_answer_is_answered_by_the_other():
    fused = reciprocal_rank_fusion([Rankings({"q": ("a",)}), Rankings({"p": ("b",)})])
    assert fused.rankings == {"q": ("a",), "p": ("b",)}


def test_a_run_counts_by_its_weight():
    runs = [Rankings({"q": ("a", "b", "c")}), Rankings({"q": ("c", "b", "d")})]
    expected = {"a": 1 / 61, "b": 1.5 / 62, "c": 1 / 63 + 0.5 / 61, "d": 0.5 / 63}
    order = tuple(sorted(expected, key=lambda doc_id: -expected[doc_id]))
    assert reciprocal_rank_fusion(runs, weights=(1, 0.5)).top("q", 9) == order


@pytest.mark.parametrize("weight", [0, 0.3, 0.7, 1, 1.6, 2])
def test_the_old_ranks_count_by_their_weight(weight):
    ranking = [f"d{number:02}" for number in range(20)]
    old = {doc_id: rank for rank, doc_id in enumerate(reversed(ranking), start=1) if rank % 4}
    scores = {doc_id: (2 - weight) / (61 + place) for place, doc_id in enumerate(ranking)}
    for doc_id, rank in old.items():
        scores[doc_id] += weight / (60 + rank)
    order = sorted(ranking, key=lambda doc_id: (-scores[doc_id], doc_id))
    assert fuse_old(ranking, old, weight=weight) == order
    assert fuse_old(ranking, old, weight=weight, depth=3) == order[:3]
    assert (order == ranking) == (weight == 0)


def test_what_only_one_store_has_found_is_fused_too():
    assert fuse_old([], {"a": 1}, weight=1) == []
    assert fuse_old(["a", "b"], {}, weight=1) == ["a", "b"]


def agreed(new, old):
    comparison = RankComparison()
    comparison.add(new, old)
    return comparison.agreement


def test_models_agree_as_far_as_the_new_one_finds_what_the_old_one_finds_first():
    new = [f"d{number}" for number in range(100)]
    assert agreed(new, [f"d{number}" for number in range(47, 57)]) == 0.3, "the new one's first 50 count"
    assert agreed(new, [*(f"x{number}" for number in range(10)), *new]) == 0, "the old one's first 10 count"
    assert agreed(new, ["d7", "x"]) == 0.5
    assert agreed([], new) == agreed(new, []) == 0


def test_before_anything_is_true_the_weight_rises_with_the_agreement_beyond_chance():
    weights = [RankComparison(9, share).weight(1_000_000) for share in (0, 0.3, 0.45, 0.6, 1)]
    assert weights == pytest.approx([0, 0, 0.5, 1, 1], abs=1e-3)
    assert RankComparison(9, 0.5).weight(100) == 0, "half of the store is among 50"
    assert RankComparison(9, 1).weight(100) == RankComparison(9, 1).weight(50) == RankComparison(9, 0).weight(7) == 1


@pytest.mark.parametrize("agreement", [0, 1])
@pytest.mark.parametrize(("found", "weight"), [(1, 0), (5, 0.42), (7, 1), (9, 1), (12, 1.44), (20, 2)])
def test_who_finds_the_best_true_documents_decides(found, weight, agreement):
    """Of ten documents of either, the old one has as many of the best as it is given, and the new one eight."""
    comparison = RankComparison(9, agreement)
    for number in range(800):
        ranking = [f"{number}.{place}" for place in range(12)]
        new, old = (ranking[:3] if number % 100 < share else ["x"] for share in (8, found))
        comparison.add_true(ranking, new, [*["y"] * 7, *old, *ranking[3:]])
    assert comparison.new_found < 600
    assert comparison.weight(1_000_000) == pytest.approx(weight, abs=0.12)


def test_the_best_of_few_true_documents_say_nothing():
    comparison = RankComparison()
    comparison.add_true([f"d{number}" for number in range(9)], ["d0"], ["d0"])
    assert comparison == RankComparison()
    comparison.add_true([f"d{number}" for number in range(10)], ["d3", "d2"], [*"abcdefghij", "d0"])
    assert comparison == RankComparison(new_found=1), "neither the fourth nor the eleventh"
