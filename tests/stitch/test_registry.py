import pytest

import migrate
from migrate.errors import UsageError
from migrate.stitch.linear import LowRank, OrdinaryLeastSquares, Ridge
from migrate.stitch.mlp import Mlp
from migrate.stitch.persistence import load_stitch
from migrate.stitch.registry import new_stitch

PLUGIN = """
from migrate.stitch.linear import Ridge


class KIND(Ridge):
    kind = "theirs"
"""


def test_a_stitch_of_another_package_is_fitted_saved_and_loaded(install, source_folder, tmp_path):
    install("ridge_plugin", PLUGIN, "stitches", "theirs")
    migrate.fit(source_folder, "tfidf:24", kind="theirs", sample=100).save(tmp_path / "stitch")
    stitch = load_stitch(tmp_path / "stitch").stitch
    assert isinstance(stitch, Ridge) and stitch.kind == "theirs"
    with pytest.raises(UsageError, match=r"unknown stitch 'their'; choose one of auto, .*, theirs, lowrank:RANK"):
        new_stitch("their")
    with pytest.raises(UsageError, match="unknown stitch 'theirs:1'"):
        new_stitch("theirs:1")


@pytest.mark.parametrize(
    ("spec", "kind", "option"),
    [("ridge", Ridge, {}), ("ols", OrdinaryLeastSquares, {}), ("lowrank", LowRank, {"rank": None}),
     ("lowrank:64", LowRank, {"rank": 64}), *((f"mlp:{n}", Mlp, {"layers": n}) for n in range(1, 8))],
)  # fmt: skip
def test_specs_name_stitches_and_their_options(spec, kind, option):
    stitch = new_stitch(spec)
    assert type(stitch) is kind and stitch.spec == spec
    assert {name: getattr(stitch, name) for name in option} == option


@pytest.mark.parametrize(
    "spec",
    ["", "auto", "random", "Ridge", "ridge:1", "ridge:3", "lowrank:", "lowrank:0", "lowrank:-1", "lowrank:x",
     "mlp", "mlp:", "mlp:0", "mlp:8", "mlp:x", "mlp:-1", "mlp:01", "mlp:1:1", "mlp:²", "adjoint:ols"],
)  # fmt: skip
def test_what_is_no_stitch_is_refused_by_name(spec):
    with pytest.raises(
        UsageError, match=r"unknown stitch .*; choose one of auto, identity,.* mlp:1 to mlp:7"
    ) as caught:
        new_stitch(spec)
    assert repr(spec) in str(caught.value)
