"""Every mistake of `mistakes.py`, through the command: what the audit says, and that none of them ends in SAFE."""

import json

import pytest
from mistakes import HARMLESS, REFERENCES, build, trusted

from migrate.cli.main import run


def audited(mistake, capsys, *options):
    """Exit code of the audit, its JSON where it came to a verdict, and what it said else."""
    code = run(["audit", *mistake.arguments(), "--no-bm25", "--two-stage", "none", "--json", "--quiet", *options])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def test_the_right_reference_is_believed(good, capsys):
    code, report, _ = audited(good.right(), capsys)
    assert (code, report["verdict"]["outcome"]) == (0, "SAFE")
    assert report["reference"]["proven"] and report["reference"]["doubts"] == []
    assert "true vectors of the translated store agree with it" in str(report["reference"]["evidence"])


@pytest.mark.parametrize("name", REFERENCES)
def test_a_wrong_reference_is_refused(name, good, tmp_path, capsys):
    code, report, told = audited(build(name, good, tmp_path), capsys)
    print(f"{name}: {told.strip()}")
    assert code == 4 and report is None, report and report["verdict"]
    assert told.count("\n") == 1 and "expected" in told and "found" in told and ";" in told


@pytest.mark.parametrize("name", REFERENCES)
def test_a_stamp_without_a_check_does_not_help_a_wrong_reference(name, good, tmp_path, capsys):
    code, report, _ = audited(trusted(good, build(name, good, tmp_path), tmp_path), capsys)
    assert code == 4, report and report["verdict"]


@pytest.mark.parametrize("name", HARMLESS)
def test_a_reference_that_only_looks_odd_is_not_refused(name, good, tmp_path, capsys):
    code, report, told = audited(build(name, good, tmp_path), capsys)
    assert (code, report and report["verdict"]["outcome"]) == (0, "SAFE"), told
