import pytest

from migrate.search.fusion import fuse_untrue, reciprocal_rank_fusion
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


@pytest.mark.parametrize("n_true", [0, 3, 7, 10])
def test_the_old_ranks_count_as_much_as_the_first_ten_are_untrue(n_true):
    ranking = [f"d{number:02}" for number in range(20)]
    old = {doc_id: rank for rank, doc_id in enumerate(reversed(ranking), start=1) if rank % 4}
    true = {*ranking[10 - n_true : 10], *ranking[15:]}  # those after the first ten do not matter
    share = n_true / 10
    scores = {doc_id: (1 + share) / (61 + place) for place, doc_id in enumerate(ranking)}
    for doc_id, rank in old.items():
        scores[doc_id] += (1 - share) / (60 + rank)
    assert fuse_untrue(ranking, old, true) == sorted(ranking, key=lambda doc_id: (-scores[doc_id], doc_id))
    assert (fuse_untrue(ranking, old, true) == ranking) == (n_true == 10)


def test_what_only_one_store_has_found_is_fused_too():
    assert fuse_untrue([], {"a": 1}, ()) == []
    assert fuse_untrue(["a", "b"], {}, ()) == ["a", "b"]
