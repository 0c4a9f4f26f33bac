import numpy as np
import pytest

from migrate.stitch.base import Pairing, cross_predict
from migrate.stitch.linear import Adjoint, Procrustes, Ridge
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import QUERY_CANDIDATES, select_query_stitch
from migrate.vectors import unit_rows

N, OLD, NEW = 120, 10, 8


@pytest.fixture
def spaces():
    """Old and new vectors of the same documents, both of unit length and with a mean that is not zero."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(N, 6))
    old = hidden @ rng.normal(size=(6, OLD)) + 0.3 * rng.normal(size=(N, OLD)) + 2
    new = hidden @ rng.normal(size=(6, NEW)) + 0.3 * rng.normal(size=(N, NEW)) + 1
    return unit_rows(old.astype(np.float32)), unit_rows(new.astype(np.float32))


def test_it_ranks_the_old_store_as_the_new_query_ranks_the_translated_one(spaces):
    """The promise of the docstring, for Procrustes, whose predictions are taken as they are."""
    old, new = spaces
    queries = np.random.default_rng(1).normal(size=(20, NEW)).astype(np.float32)
    forward = Procrustes().fit(old, new)
    found = np.argsort(-Adjoint("procrustes").fit(new, old).transform(queries) @ old.T, axis=1)
    expected = np.argsort(-queries @ forward.transform(old).T, axis=1)
    assert np.array_equal(found[:, :10], expected[:, :10])


def test_it_is_nearer_to_translated_vectors_of_one_length_than_the_transpose_of_ridge(spaces):
    old, new = spaces
    forward = Ridge().fit(old, new)
    cosines = new @ unit_rows(forward.transform(old)).T

    def error(matrix):
        scores = new @ matrix.T @ old.T
        centred = [rows - rows.mean(axis=1, keepdims=True) for rows in (scores, cosines)]
        return np.square(centred[0] - centred[1]).sum()

    fitted = Adjoint().fit(new, old)
    assert fitted.matrix_.shape == (NEW, OLD)
    assert fitted.matrix_.dtype == np.float32 and fitted.matrix_.flags.c_contiguous
    assert error(fitted.matrix_.T) < 0.9 * error(forward.matrix_)


def brute_overlap(mapped, old, new, k=10):
    shares = []
    for row in range(len(new)):
        truth, found = new @ new[row], old @ mapped[row]
        truth[row] = found[row] = -np.inf
        shares.append(len(set(np.argsort(-truth)[:k]) & set(np.argsort(-found)[:k])) / k)
    return np.mean(shares)


def test_candidates_are_judged_by_the_answers_of_the_new_model(spaces):
    """Whoever is asked for two stitches gets the overlap that a loop over the held-out queries gives."""
    old, new = spaces
    selection = select_query_stitch(Pairing(new, old, seed=4), specs=["ridge", "adjoint"])
    rows = {row.stitch: row for row in selection.candidates}
    assert list(rows) == ["ridge", "adjoint", "mean", "random"]
    for spec in ("ridge", "adjoint"):
        expected = brute_overlap(cross_predict(new_stitch(spec), Pairing(new, old, seed=4)).vectors, old, new)
        assert rows[spec].scores.overlap_at_10 == pytest.approx(expected)
    assert rows["random"].is_control and rows["mean"].is_control
    assert rows[selection.chosen].scores.overlap_at_10 == max(
        rows[s].scores.overlap_at_10 for s in ("ridge", "adjoint")
    )
    assert rows["random"].scores.overlap_at_10 < 0.2 < rows["adjoint"].scores.overlap_at_10


def test_auto_tries_every_stitch_that_applies(spaces):
    old, new = spaces
    names = [row.stitch for row in select_query_stitch(Pairing(new, old)).candidates]
    assert names == [*QUERY_CANDIDATES[1:], "mean", "random"]
    same = select_query_stitch(Pairing(old, old))
    assert same.candidates[0].stitch == same.chosen == "identity"
    selection = select_query_stitch(Pairing(new, old), specs=["mean"])
    assert selection.chosen == "mean"
    assert [row.stitch for row in selection.candidates] == ["mean", "random"], "a control that is asked for stands once"
