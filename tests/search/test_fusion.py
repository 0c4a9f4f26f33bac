from migrate.search.fusion import reciprocal_rank_fusion
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
