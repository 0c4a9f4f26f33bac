import pytest

import migrate
from migrate.errors import UsageError
from migrate.lab.stitches.kernel import Kernel, KernelText
from migrate.lab.stitches.linear import LowRank, OrdinaryLeastSquares
from migrate.lab.stitches.mlp import Mlp
from migrate.stitch.persistence import load_stitch
from migrate.stitch.registry import new_stitch


@pytest.mark.parametrize(
    ("spec", "kind", "option"),
    [("ols", OrdinaryLeastSquares, {}), ("lowrank", LowRank, {"rank": None}), ("lowrank:64", LowRank, {"rank": 64}),
     ("kernel", Kernel, {}), ("kernel+text", KernelText, {}),
     *((f"mlp:{n}", Mlp, {"layers": n}) for n in range(1, 8))],
)  # fmt: skip
def test_specs_name_stitches_and_their_options(spec, kind, option):
    stitch = new_stitch(spec)
    assert type(stitch) is kind and stitch.spec == spec
    assert {name: getattr(stitch, name) for name in option} == option


@pytest.mark.parametrize(
    "spec",
    ["lowrank:", "lowrank:0", "lowrank:x", "ols:1", "mlp", "mlp:0", "mlp:8", "mlp:01", "mlp:1:1", "mlp:²"],
)  # fmt: skip
def test_what_is_no_stitch_is_refused_by_name(spec):
    with pytest.raises(UsageError, match=r" identity,.* kernel, .*mlp:7") as caught:
        new_stitch(spec)
    assert repr(spec) in str(caught.value) and "mlp," not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["lowrank:5", "kernel+text"])
def test_a_stitch_is_fitted_saved_and_loaded(spec, source_folder, tmp_path):
    made = migrate.fit(source_folder, "tfidf:24", kind=spec, sample=60)
    made.save(tmp_path / "stitch")
    assert load_stitch(tmp_path / "stitch").digest() == made.digest()
    assert made.stitch.spec == spec
