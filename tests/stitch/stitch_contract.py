"""What every kind of stitch keeps to, whatever it computes."""

import numpy as np
import pytest

from migrate.errors import StitchError
from migrate.stitch.base import cross_predict, restore_saved, saved_arrays
from migrate.stitch.registry import new_stitch
from migrate.vectors import unit_rows


def contents(pairs):
    rows = [view.matrix() for view in pairs.texts.views.values()]
    return [array.tobytes() for array in (pairs.source, pairs.target, *(getattr(one, "data", one) for one in rows))]


class StitchContract:
    """The tests; a subclass names the specs to try."""

    specs: tuple[str, ...]

    def pytest_generate_tests(self, metafunc):
        metafunc.parametrize("spec", self.specs)

    def made(self, spec):
        """An unfitted stitch; a subclass makes the slow ones quick."""
        return new_stitch(spec)

    @pytest.fixture
    def make_pairs(self, make_world):
        """Pairs of one dimension, with texts."""

        def make(n):
            world = make_world(n)
            return world.pairing(2 * world.hidden + 1, unit_rows(world.hidden[:, ::-1] + world.wordy))

        return make

    @pytest.mark.parametrize("n", [2, 3, 6, 40])
    def test_fits_are_finite_the_same_each_time_restored_to_the_byte_and_change_no_argument(self, spec, n, make_pairs):
        pairs, stitch = make_pairs(n), self.made(spec)
        before = contents(pairs)
        assert stitch.fit(pairs.source, pairs.target, pairs.texts) is stitch
        fitted = pairs.fit(stitch)
        found = fitted.predict(pairs.source, pairs.texts)
        assert (found.vectors.dtype, found.vectors.shape) == (np.float32, pairs.target.shape)
        assert np.isfinite(found.vectors).all() and np.isfinite(found.variance).all() and found.variance.min() > -1e-3
        assert np.isfinite(cross_predict(self.made(spec), pairs).vectors).all()
        restored = restore_saved(self.made(spec), dict(saved_arrays(fitted)))
        for again in (fitted, pairs.fit(self.made(spec)), restored):
            prediction = again.predict(pairs.source, pairs.texts)
            np.testing.assert_array_equal(prediction.vectors, found.vectors)
            np.testing.assert_array_equal(prediction.variance, found.variance)
            assert again.spec == stitch.spec
        assert contents(pairs) == before

    def test_each_array_that_is_missing_is_told(self, spec, make_pairs):
        pairs = make_pairs(20)
        arrays = self.made(spec).fit(pairs.source, pairs.target, pairs.texts).arrays()
        for name in arrays:
            if "/" not in name and name not in ("companions", "base", "prefix"):
                with pytest.raises(KeyError, match=name):
                    self.made(spec).restore({key: array for key, array in arrays.items() if key != name})

    @pytest.mark.parametrize(("source", "target"), [(1, 1), (5, 4)])
    def test_pairs_must_be_pairs_and_two_at_least(self, spec, source, target, make_pairs):
        pairs = make_pairs(6)
        calls = [self.made(spec).fit]
        if spec in ("kernel", "ridge+text"):  # they look at the pairs before the fit
            calls.append(self.made(spec).tuned)
        for call in calls:
            with pytest.raises(
                StitchError, match=f"at least 2 pairs of vectors, and there are [{source}{target}] source"
            ):
                call(pairs.source[:source], pairs.target[:target], pairs.texts)
