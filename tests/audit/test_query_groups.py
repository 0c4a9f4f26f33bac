import json
import re
from dataclasses import replace

import numpy as np
import pytest
from paired_scores import all_of, judge
from topics import OF_TARGET, QRELS, QUERIES, QUESTIONS, audit, make_store, noisy, page_of, pool, shown, ways_out

from migrate.audit.bootstrap import Bootstrap
from migrate.audit.bounds import UNGROUPED, Grouping, Outcome
from migrate.audit.document import report_of, sentence_of
from migrate.audit.findings import groups as group_notes
from migrate.audit.query_groups import alike, centred, usual_cosine, with_groups
from migrate.audit.query_set import QuerySet, by_field, load_unjudged
from migrate.audit.recommendation import recommend
from migrate.errors import UsageError
from migrate.vectors import Query


def grouped(groups):
    return Grouping(np.asarray(groups))


def scores(n=120, seed=0):
    rng = np.random.default_rng(seed)
    full = rng.random(n)
    return full * rng.choice([1, 0.6], size=n), full


def test_queries_each_in_a_group_of_its_own_change_no_bound():
    arm, full = scores()
    alone = grouped(np.random.default_rng(1).permutation(len(arm)))
    assert all_of(Bootstrap(grouping=alone), arm, full) == all_of(Bootstrap(), arm, full)


def test_groups_of_equal_size_count_as_their_means():
    arm, full = scores()
    groups = np.repeat(np.arange(40), 3)
    found = Bootstrap(grouping=grouped(groups)).retention(arm, full)
    means = [values.reshape(40, 3).mean(axis=1) for values in (arm, full)]
    each = Bootstrap().retention(*means)
    assert found.estimate == pytest.approx(arm.mean() / full.mean())
    assert found.lower == pytest.approx(each.lower)
    assert found.upper < each.upper  # a kind is lost as a whole, but won one by one
    gain, other = Bootstrap(grouping=grouped(groups)).difference(arm, full), Bootstrap().difference(*means)
    assert (gain.lower, gain.upper) == pytest.approx((other.lower, other.upper))
    needed = Bootstrap(grouping=grouped(groups)).queries_needed(arm, full, 0.7)
    assert needed == pytest.approx(3 * Bootstrap().queries_needed(*means, 0.7), rel=0.05)


@pytest.mark.parametrize("groups", [np.arange(60) // 3, np.repeat([0, 1, 2], [20, 39, 1]), np.arange(60) % 7])
def test_groups_change_no_estimate(groups):
    arm, full = scores(60)
    plain, found = Bootstrap().retention(arm, full), Bootstrap(grouping=grouped(groups)).retention(arm, full)
    assert found.estimate == plain.estimate
    assert found.lower < plain.lower and found.upper > plain.upper


def test_fewer_than_twenty_groups_say_nothing():
    arm, full, stay = np.ones(600), np.ones(600), np.zeros(600)
    few, enough = (
        judge(arm, full, stay, margin=0.5, grouping=grouped(np.arange(600) // size), resamples=500) for size in (32, 30)
    )
    assert few.outcome is Outcome.INCONCLUSIVE and not few.better_than_stay
    assert "600 queries in 19 independent groups" in few.sentence
    assert enough.outcome is Outcome.SAFE and enough.better_than_stay and enough.observations.groups == 20


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 30])
def test_topics_that_are_lost_as_a_whole_make_no_false_safe(size):
    rng, said = np.random.default_rng(2), np.zeros(2)
    groups = np.arange(600) // size
    for _ in range(200):
        full = rng.random(600)
        arm = np.where(rng.random(len(groups))[groups] < 0.05, 0, full)
        bounds = [Bootstrap(grouping=one, resamples=300).retention(arm, full) for one in (UNGROUPED, grouped(groups))]
        said += [one.lower >= 0.95 for one in bounds]
    assert said[0] / 200 > 0.15
    assert said[1] / 200 <= 0.05


def topical(topics, cosine, dim=100, seed=0):
    own, shared = np.random.default_rng(seed).normal(size=(2, len(topics), dim))
    return (np.sqrt(cosine) * shared[topics] + np.sqrt(1 - cosine) * own).astype(np.float32)


def parts(groups):
    return {frozenset(np.flatnonzero(groups == group).tolist()) for group in set(groups.tolist())}


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_queries_of_one_topic_are_one_group_in_any_order_and_any_space(offset):
    topics = np.repeat(np.arange(40), 8)
    vectors = topical(topics, 0.9) + np.float32(offset)
    groups = alike(vectors)
    assert parts(groups) == parts(topics)
    order = np.random.default_rng(1).permutation(len(topics))
    assert parts(alike(vectors[order])) == {
        frozenset(np.flatnonzero(np.isin(order, list(part))).tolist()) for part in parts(groups)
    }


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("others", [1, 10])
def test_a_topic_that_most_queries_are_of_hides_no_other(share, others):
    large = int(400 * share)
    topics = np.concatenate([np.zeros(large, dtype=int), 1 + np.arange(400 - large) // others])
    groups = alike(topical(topics, 0.7, dim=384) + np.float32(0.5))
    assert parts(groups) == parts(topics)


@pytest.mark.parametrize("count", [2, 3, 5, 10])
@pytest.mark.parametrize("cosine", [0.7, 0.99])
@pytest.mark.parametrize("queries", [40, 200])
def test_queries_that_are_all_of_a_few_topics_are_in_as_many_groups(count, cosine, queries):
    topics = np.random.default_rng(5).permutation(np.arange(queries) % count)
    assert parts(alike(topical(topics, cosine, dim=384) + np.float32(0.5))) == parts(topics)


def test_one_query_far_from_a_thousand_of_one_topic_is_a_group_of_its_own():
    vectors = topical(np.zeros(1001, dtype=int), 0.999, dim=20)
    vectors[1:] += 1
    vectors[0] = -vectors[1]
    groups = alike(vectors)
    assert np.count_nonzero(groups == groups[0]) == 1


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_topics_that_are_asked_for_by_the_law_of_zipf_are_found(power):
    weights = 1 / np.arange(1, 101) ** power
    topics = np.random.default_rng(4).choice(100, 400, p=weights / weights.sum())
    assert parts(alike(topical(topics, 0.7, dim=384))) == parts(topics)


def test_independent_queries_are_not_grouped_and_the_same_vectors_are():
    vectors = np.random.default_rng(0).normal(size=(500, 100)).astype(np.float32)
    assert len(set(alike(vectors).tolist())) == 500
    twice = np.concatenate([vectors, vectors[:10] * 2])
    assert len(set(alike(twice).tolist())) == 500
    assert len(set(alike(np.ones((30, 4), dtype=np.float32)).tolist())) == 1
    assert alike(np.empty((0, 4), dtype=np.float32)).tolist() == []


def test_queries_are_alike_six_standard_deviations_above_the_median_or_nearly_the_same():
    """The part below the median is that of a normal distribution, whatever groups there are above it."""
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(400, 200)).astype(np.float32)
    vectors[:10] = vectors[0] + 0.1 * vectors[:10]
    rows = centred(vectors, vectors.mean(axis=0))
    others = (rows[10:] @ rows[10:].T)[np.triu_indices(390, 1)]
    assert usual_cosine(rows) == pytest.approx(np.median(others) + 6 * others.std(), abs=0.05)
    assert usual_cosine(centred(vectors[:, :2], vectors[:, :2].mean(axis=0))) == 0.95
    assert usual_cosine(rows[:1]) == 0.95


def test_a_chain_of_neighbours_is_not_one_group():
    angles = np.linspace(0, np.pi, 60)
    chain = np.zeros((60, 200), dtype=np.float32)
    chain[:, 0], chain[:, 1] = np.cos(angles), np.sin(angles)
    others = np.random.default_rng(0).normal(size=(300, 200)).astype(np.float32) / 14
    groups = alike(np.concatenate([chain, others]))[:60]
    first, last = (set(np.flatnonzero(groups == groups[place]).tolist()) for place in (0, 59))
    assert len(first) > 2 and len(last) > 2 and not first & last


def asked(values):
    return [replace(query, metadata={"topic": value}) for query, value in zip(QUERIES, values, strict=False)]


def test_a_field_adds_to_the_groups_of_vectors():
    queries = [*asked(["a", "b", "a", 7, 7]), *QUERIES[5:8], Query("again", QUERIES[0].text.upper())]
    vectors = np.random.default_rng(0).normal(size=(9, 50)).astype(np.float32)
    vectors[6] = vectors[5]
    vectors[1] = vectors[0]
    found = with_groups(by_field(QuerySet(queries, None, "q"), "topic"), vectors)
    assert parts(found.grouping.groups) == {frozenset(part) for part in ([0, 1, 2], [3, 4], [5, 6], [7])}
    assert found.groups["again"] == found.groups["q0"]
    (note,) = group_notes(found)
    assert note.level == "note" and note.text.startswith("8 queries are in 4 independent groups")
    assert "'topic'" in note.text and "largest of 3" in note.text


def test_a_field_that_no_query_has_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"'user' .*--group-field"):
        by_field(QuerySet(asked(["a"]), None, "q"), "user")
    path = tmp_path / "log.jsonl"
    lines = [{"text": f"query {n}", "user": n % 3, "metadata": {"topic": n % 5}} for n in range(25)]
    path.write_text("\n".join(map(json.dumps, lines)))
    log = load_unjudged(path)
    first, second, *_ = log.queries
    assert (first.metadata, second.metadata) == ({"user": 0, "topic": 0}, {"user": 1, "topic": 1})
    for name in ("user", "topic"):
        assert by_field(log, name).group_field == name
    with pytest.raises(UsageError, match="'text'"):
        by_field(log, "text")


@pytest.mark.parametrize(("values", "is_refused"), [(60, True), (54, True), (53, False)])
def test_a_field_of_nearly_as_many_values_as_queries_is_refused(values, is_refused):
    queries = QuerySet(asked([min(n, values - 1) for n in range(60)]), None, "q")
    if is_refused:
        with pytest.raises(UsageError, match=f"'topic' has {values} different values in 60 queries.*leave --group-f"):
            by_field(queries, "topic")
    else:
        assert by_field(queries, "topic").group_field == "topic"


@pytest.mark.parametrize(("values", "told"), [(1, "1 value"), (2, "2 values"), (3, None)])
def test_a_field_of_a_value_or_two_cannot_group_and_is_refused(values, told):
    queries = QuerySet(asked([n % values for n in range(60)]), None, "q")
    if told is None:
        assert by_field(queries, "topic").group_field == "topic"
        return
    with pytest.raises(UsageError, match=f"'topic' has {told} in 60 queries.*--group-f"):
        by_field(queries, "topic")
    others = [*queries.queries, *(Query(f"n{n}", f"of no topic, and number {n}") for n in range(20))]
    assert by_field(QuerySet(others, None, "q"), "topic").group_field == "topic"


def test_a_value_of_its_own_for_each_query_takes_no_group_apart():
    """Whatever is said of queries, those with vectors that are alike stay one observation."""
    topics = np.repeat(np.arange(10), 6)
    vectors = topical(topics, 0.9)
    found = with_groups(replace(QuerySet(asked(range(60)), None, "q"), group_field="topic"), vectors)
    assert parts(found.grouping.groups) == parts(alike(vectors)) == parts(topics)


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["store", "pool"])
@pytest.mark.parametrize("qrels", [QRELS, None])
def test_every_verdict_of_an_audit_counts_groups(reference, qrels, tmp_path):
    translated = make_store(tmp_path / "translated", vectors=noisy(0.3), manifest=OF_TARGET)
    full = make_store(tmp_path / "full") if reference == "store" else pool(20)
    questions = QuerySet(asked([n // 4 for n in range(60)]), qrels, "topics")
    plain, few = (
        audit(translated, full, one, margin=0.5, two_stage=[50]) for one in (questions, by_field(questions, "topic"))
    )
    assert plain.verdict.outcome is Outcome.SAFE and ways_out(plain)
    assert few.verdict.outcome is Outcome.INCONCLUSIVE and not ways_out(few) and few.verdict.observations.groups == 13
    if reference == "store":  # a pool is another one where it takes longer to settle the verdict
        assert few.verdict.retention.estimate == plain.verdict.retention.estimate
    assert few.verdict.retention.lower < plain.verdict.retention.lower
    assert "60 queries in 13 independent groups" in shown(few)
    assert "independent groups of queries" in page_of(few)
    assert report_of(few).document["verdict"]["groups"] == 13


@pytest.mark.parametrize(
    ("values", "n_values", "left"),
    [
        ([(n + 1) // 2 % 30 for n in range(60)], "30 values", "1 group"),  # each joins the ends of two pairs
        ([n // 2 % 4 for n in range(60)], "4 values", "4 groups"),
        ([min(n // 3, 18) for n in range(60)], "19 values", "10 groups"),
        ([n // 2 % 20 for n in range(60)], "20 values", None),
    ],
)
def test_a_field_that_joins_groups_of_vectors_to_too_few_is_named(values, n_values, left):
    pairs = np.repeat(np.random.default_rng(0).normal(size=(30, 50)).astype(np.float32), 2, axis=0)
    (found,) = group_notes(with_groups(by_field(QuerySet(asked(values), None, "q"), "topic"), pairs))
    if left is None:
        assert found.level == "note" and found.text.startswith("60 queries are in 20 independent groups")
        return
    assert found.level == "doubt" and found.text.startswith(f"the {n_values} of 'topic' and the 30 groups ")
    assert f"leave {left} of queries" in found.text and "--group-field" in found.text


@pytest.mark.parametrize("topics", [3, *(pytest.param(count, marks=pytest.mark.slow) for count in (4, 10))])
def test_a_field_is_the_cause_where_it_leaves_too_few_groups_and_the_remedy_leaves_it_out(topics, tmp_path):
    """A group or two show nothing: the judgements are not what is wrong."""
    questions = by_field(QuerySet(asked([n % topics for n in range(60)]), QRELS, "topics"), "topic")
    translated = make_store(tmp_path / "translated", vectors=noisy(0.1), manifest=OF_TARGET)
    report = audit(translated, make_store(tmp_path / "full"), questions)
    (doubt,) = report.examination.doubts
    assert doubt.startswith(f"the {topics} values of 'topic' and the 58 groups ")
    assert "independent group" in sentence_of(report) and "too few for a verdict" in sentence_of(report)
    again = ("audit", "new", "--judged=beir", "--group-field=topic", "--report=report.json")
    advice = recommend(replace(report, locations=replace(report.locations, audit_again=again)))
    assert advice.headline == f"nothing is shown to be SAFE; clear up first: {doubt}"
    assert advice.command == ("audit", "new", "--judged=beir", "--report=report.json")


# By a full re-embed however few, and a few by whatever they are judged
@pytest.mark.parametrize(
    ("count", "qrels", "reference"),
    [
        (1, QRELS, "store"),
        *(pytest.param(count, QRELS, "store", marks=pytest.mark.slow) for count in (2, 3)),
        (10, QRELS, "store"),
        (3, None, "store"),
        (3, QRELS, "pool"),
        pytest.param(1, None, "pool", marks=pytest.mark.slow),
    ],
)
def test_of_a_few_queries_nothing_is_said_but_that_they_are_few(count, qrels, reference, tmp_path):
    """That a full re-embed is no better than chance, or that both rankings agree, a few queries show by luck."""
    translated = make_store(tmp_path / "translated", vectors=noisy(0.01), manifest=OF_TARGET)
    full = make_store(tmp_path / "full") if reference == "store" else pool()
    report = audit(translated, full, QuerySet(QUERIES[:count], qrels, "few"))
    few = "1 query is" if count == 1 else rf"{count} queries( in \d independent groups?)? are"
    assert report.outcome is Outcome.INCONCLUSIVE and not ways_out(report) and not report.examination.doubts
    assert re.search(f"; {few} too few for a verdict, which needs at least 20$", sentence_of(report))
    assert not re.search(r"\bnan\b", shown(report))


def test_a_sample_that_is_left_out_leaves_the_groups(tmp_path):
    assert QUESTIONS.grouping.groups is None
    vectors = np.random.default_rng(0).normal(size=(60, 50)).astype(np.float32)
    found = with_groups(by_field(QuerySet(asked([n // 4 for n in range(60)]), QRELS, "q"), "topic"), vectors)
    left = replace(found, queries=found.queries[30:])
    assert left.grouping.count == 8 and left.grouping.sizes.sum() == 30
