"""`lead-migrate demo`; what it does otherwise is held by tests/test_sessions.py."""

from migrate.cli.main import run


def test_a_model_that_is_unknown_leaves_nothing(tmp_path, capsys):
    assert run(["demo", "--from", "nonsense:x", "-o", str(tmp_path / "demo")]) == 2
    assert "unknown model 'nonsense:x'" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()
