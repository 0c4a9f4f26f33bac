import pytest

import migrate
from migrate.errors import UsageError
from migrate.stitch.linear import Adjoint, Ridge
from migrate.stitch.persistence import load_stitch
from migrate.stitch.registry import KINDS, new_stitch
from migrate.stitch.select import AUTO_CANDIDATES, QUERY_CANDIDATES

PLUGIN = """
from migrate.stitch.linear import Ridge


class KIND(Ridge):
    kind = "theirs"
"""


@pytest.mark.slow
def test_a_stitch_of_another_package_is_fitted_saved_and_loaded(install, source_folder, tmp_path):
    install("ridge_plugin", PLUGIN, "stitches", "theirs")
    migrate.fit(source_folder, "tfidf:24", kind="theirs", sample=100).save(tmp_path / "stitch")
    stitch = load_stitch(tmp_path / "stitch").stitch
    assert isinstance(stitch, Ridge) and stitch.kind == "theirs"
    with pytest.raises(UsageError, match=r"'their'.* auto, .*, theirs, "):
        new_stitch("their")
    with pytest.raises(UsageError, match="unknown stitch 'theirs:1'"):
        new_stitch("theirs:1")


@pytest.mark.parametrize(
    ("spec", "kind", "option"),
    [
        ("ridge", Ridge, {}),
        ("adjoint", Adjoint, {"base": "ridge"}),
        ("adjoint:procrustes", Adjoint, {"base": "procrustes"}),
    ],
)
def test_specs_name_stitches_and_their_options(spec, kind, option):
    stitch = new_stitch(spec)
    assert type(stitch) is kind and stitch.spec == spec
    assert {name: getattr(stitch, name) for name in option} == option


@pytest.mark.parametrize(
    "spec",
    ["", "auto", "random", "Ridge", "ridge:1", "ridge:3", "adjoint:", "adjoint:ols"],
)
def test_what_is_no_stitch_is_refused_by_name(spec):
    with pytest.raises(UsageError, match=r" auto, identity,.* ridge\+text, ") as caught:
        new_stitch(spec)
    assert repr(spec) in str(caught.value)


def test_auto_tries_built_in_kinds_alone():
    assert {spec.partition(":")[0] for spec in (*AUTO_CANDIDATES, *QUERY_CANDIDATES)} <= set(KINDS)


BROKEN = "import nowhere_to_be_found"


def test_a_plugin_that_cannot_be_loaded_does_not_hide_what_else_there_is(install):
    install("broken_plugin", BROKEN, "stitches", "broken")
    with pytest.raises(UsageError, match=r"'rigde'.* identity, .*broken"):
        new_stitch("rigde")
    with pytest.raises(UsageError, match="cannot provide broken"):
        new_stitch("broken")
