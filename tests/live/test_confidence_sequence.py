"""Bounds of a running mean, held against the process that they come from, multiplied out score by score."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from scipy.optimize import brentq

from migrate.errors import UsageError
from migrate.live.confidence_sequence import _BETS, _LOG_WEIGHTS, ConfidenceSequence


def sequence_of(scores):
    sequence = ConfidenceSequence()
    for score in scores:
        sequence = sequence.with_score(float(score))
    return sequence


def capital(scores, mean):
    """The mixture, with each score's own factor, for a lower bound."""
    total, count, capitals = 0.0, 0, np.exp(_LOG_WEIGHTS)
    for score in scores:
        guess = (1 + total) / (1 + count)
        penalty = (np.log1p(-_BETS) + _BETS) * (score - guess) ** 2
        capitals = capitals * np.exp(_BETS * (score - mean) + penalty)
        total, count = total + score, count + 1
    return capitals.sum()


@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_where_the_capital_of_a_bettor_reaches_one_over_the_error(seed):
    rng = np.random.default_rng(seed)
    for scores in (rng.beta(9, 1, 120), rng.random(80), (rng.random(200) > 0.1).astype(float)):
        found = sequence_of(scores)
        expected = brentq(lambda mean, scores=scores: capital(scores, mean) - 20, 0, scores.mean())
        assert found.lower(0.05) == pytest.approx(expected, abs=1e-9)
        # the other way round, with the guesses the other way round as well
        distance = scores.mean() - expected
        assert found.upper(0.05) == pytest.approx(min(scores.mean() + distance, 1), abs=1e-9)


def test_each_factor_is_at_most_one_on_average_for_any_score_and_guess():
    """What makes the capital fair: for two-point distributions, of which all others are mixtures."""
    low, high, share, guess = np.meshgrid(*[np.linspace(0, 1, 21)] * 4, sparse=True)
    mean = share * high + (1 - share) * low
    for bet in _BETS:
        penalty = np.log1p(-bet) + bet
        factors = [np.exp(bet * (score - mean) + penalty * (score - guess) ** 2) for score in (low, high)]
        assert ((1 - share) * factors[0] + share * factors[1]).max() <= 1 + 1e-12
        mirrored = [np.exp(bet * (mean - score) + penalty * (score - guess) ** 2) for score in (low, high)]
        assert ((1 - share) * mirrored[0] + share * mirrored[1]).max() <= 1 + 1e-12


@pytest.mark.slow
def test_bounds_hold_at_all_looks_together_also_of_a_mean_that_changes():
    rng = np.random.default_rng(5)
    runs, length = 40, 300
    chances = np.concatenate([np.full(150, 0.9), np.full(150, 0.99)])
    truths = np.cumsum(chances) / np.arange(1, length + 1)
    wrong = 0
    for _ in range(runs):
        sequence, low, high = ConfidenceSequence(), False, False
        for chance, truth in zip(chances, truths, strict=True):
            sequence = sequence.with_score(float(rng.random() < chance))
            low |= sequence.lower(0.05) > truth
            high |= sequence.upper(0.05) < truth
        wrong += low + high
    assert wrong <= 2 * 0.05 * runs


def test_a_sequence_that_was_kept_goes_on_to_the_last_bit():
    scores = np.random.default_rng(0).random(50)
    kept = ConfidenceSequence(**json.loads(json.dumps(asdict(sequence_of(scores[:20])))))
    for score in scores[20:]:
        kept = kept.with_score(float(score))
    assert kept == sequence_of(scores)


def test_bounds_of_nothing_say_nothing_and_narrow_with_the_error():
    assert (ConfidenceSequence().lower(0.05), ConfidenceSequence().upper(0.05)) == (0.0, 1.0)
    sequence = sequence_of(np.random.default_rng(1).beta(9, 1, 300))
    assert sequence.lower(0.01) < sequence.lower(0.05) < sequence.mean < sequence.upper(0.05) < sequence.upper(0.01)


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan")])
def test_scores_beyond_0_and_1_are_refused(score):
    with pytest.raises(UsageError, match="not between 0 and 1"):
        ConfidenceSequence().with_score(score)
