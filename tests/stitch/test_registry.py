import pytest

from migrate.errors import UsageError
from migrate.stitch.linear import Ridge
from migrate.stitch.persistence import load_stitch
from migrate.stitch.registry import new_stitch

PLUGIN = """
from migrate.stitch.linear import Ridge


class KIND(Ridge):
    kind = "{}"
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a package on the path whose entry point brings a stitch."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(package, kind, code=PLUGIN):
        (tmp_path / f"{package}_stitch.py").write_text(code.format(kind))
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[lead_migrate.stitches]\n{kind} = {package}_stitch:KIND\n")

    return make


def test_a_stitch_of_another_package_is_fitted_saved_and_loaded(install, source_folder, tmp_path):
    import migrate

    install("ridge_plugin", "theirs")
    migrate.fit(source_folder, "tfidf:24", stitch="theirs", sample=100).save(tmp_path / "stitch")
    stitch = load_stitch(tmp_path / "stitch").stitch
    assert isinstance(stitch, Ridge) and stitch.kind == "theirs"
    with pytest.raises(UsageError, match=r"unknown stitch 'their'; choose one of auto, .*, theirs, lowrank:RANK"):
        new_stitch("their")
    with pytest.raises(UsageError, match="unknown stitch 'theirs:1'"):
        new_stitch("theirs:1")


@pytest.mark.parametrize(
    ("package", "code", "message"),
    [
        ("raising_stitch", "raise OSError('no\\nlicence')", "failed with OSError: no; update or uninstall it"),
        ("wrong_stitch", "KIND = dict", "should be of type Stitch and is dict; update or uninstall it"),
    ],
)
def test_a_broken_package_is_one_line_that_names_it(package, code, message, install):
    install(package, package, code)
    with pytest.raises(UsageError, match=message) as caught:
        new_stitch(package)
    assert package in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["mlp", "mlp:0", "mlp:8", "lowrank:0", "lowrank:", "adjoint:ols", "ridge:1", ""])
def test_options_that_mean_nothing_are_refused(spec):
    with pytest.raises(UsageError, match="unknown stitch"):
        new_stitch(spec)
