import numpy as np
import pytest
from paired_scores import alternating, judge

from migrate.audit.bootstrap import MOST_QUERIES, Bootstrap
from migrate.audit.bounds import Grouping, Outcome

pytestmark = pytest.mark.slow

needed_of = Bootstrap().queries_needed


@pytest.mark.parametrize("spread", [0.1, 0.3])
def test_the_nearer_the_margin_the_more_queries_are_needed(spread):
    above = [needed_of(*alternating(40, retained, spread), 0.9) for retained in (0.99, 0.96, 0.94, 0.92, 0.91)]
    below = [needed_of(*alternating(40, retained, spread), 0.9) for retained in (0.7, 0.84, 0.86, 0.88, 0.89)]
    for needed in (above, below):
        assert needed == sorted(needed)
        assert needed[-1] > 3 * needed[-3]
    assert needed_of(*alternating(40, 0.9, spread), 0.9) is None
    by_spread = [needed_of(*alternating(40, 0.93, other), 0.9) for other in (0.01, 0.1, 0.2, 0.4)]
    assert by_spread == sorted(set(by_spread)), "the more queries differ the more are needed"


def settled(n, retained, spread, margin, audits=200):
    rng = np.random.default_rng(3)
    fulls = (rng.choice([0.3, 0.5, 0.63, 1], size=n) for _ in range(audits))
    scores = ((full * (retained + spread * rng.choice([-1, 1], size=n)), full) for full in fulls)
    verdicts = [judge(*pair, margin=margin, resamples=200, seed=i) for i, pair in enumerate(scores)]
    return sum(verdict.outcome is not Outcome.INCONCLUSIVE for verdict in verdicts) / audits


@pytest.mark.parametrize(
    ("retained", "spread", "margin"),
    [(0.97, 0.05, 0.94), (0.97, 0.3, 0.94), (0.91, 0.3, 0.94), (0.97, 0, 0.94)],
)
def test_as_many_queries_as_estimated_settle_eight_audits_of_ten(retained, spread, margin):
    needed = needed_of(*alternating(40, retained, spread), margin)
    assert 60 < needed < 5_000
    assert settled(needed // 3, retained, spread, margin) < 0.5
    found = settled(needed, retained, spread, margin)
    assert 0.7 < found < 0.9 or (spread == 0 and found == 1)


@pytest.mark.parametrize("margin", [0.9, 0.95, 0.99])
def test_without_harm_the_worst_case_query_alone_asks_for_queries(margin):
    """The lower bound of n queries without harm is nearly 1 - 3 / n."""
    assert needed_of(np.ones(20), np.ones(20), margin) == pytest.approx(3 / (1 - margin), rel=0.05)


def test_an_arm_that_cannot_win_is_sooner_known_to_be_not_safe():
    arm = np.tile([1.0] * 17 + [0.0] * 3, 2)
    assert needed_of(arm, np.ones(40), 0.95) < needed_of(arm, np.append(np.ones(39), 0.99), 0.95)


def test_neither_nothing_nor_more_queries_than_can_be_asked_for_are_estimated():
    arm, full = alternating(400, 0.901, 0.3)
    assert needed_of(arm, full, 0.9) is None
    assert needed_of(arm, full, 0.88) < MOST_QUERIES
    for few in ([], [1.0], [0.0, 0.0]):
        assert needed_of(np.array(few), np.array(few), 0.95) is None


@pytest.mark.parametrize(("margin", "is_known"), [(0.8925, True), (0.8969, False)])
def test_no_more_are_estimated_where_queries_come_in_groups(margin, is_known):
    """Some 10,000 groups of four are 40,000 queries; 40,000 groups are more than can be asked for."""
    means, full = alternating(400, 0.901, 0.3)
    groups = Grouping(np.repeat(np.arange(400), 4))
    needed = Bootstrap(grouping=groups).queries_needed(np.repeat(means, 4), np.repeat(full, 4), margin)
    alone = needed_of(means, full, margin)
    assert (alone < MOST_QUERIES / 4) == is_known and alone < MOST_QUERIES
    assert needed == (pytest.approx(4 * alone, rel=0.1) if is_known else None)
