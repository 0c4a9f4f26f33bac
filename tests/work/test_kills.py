"""Runs that are killed: at each step in turn, and at random moments."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SURVIVE = HERE.parents[1] / "benchmarks" / "survive.py"


def run_in(folder, command):
    environment = os.environ | {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["flat", "langchain", "ivf", "texts", "embed", "re-embed"])
def test_a_run_that_dies_at_any_step_is_continued_to_the_same_bytes(kind, folder):
    rows = "1000" if kind in ("embed", "texts") else "1500"
    stride = 3 if kind in ("langchain", "ivf") else 1  # which read in a process of their own, each time
    command = [sys.executable, str(HERE / "die_at_each_step.py"), kind, rows, str(stride)]
    found = json.loads(run_in(folder, command))
    assert found["wrong"] == []
    assert found["deaths"] >= 30 // stride, "fewer steps than a run takes"


def test_runs_that_are_killed_at_random_moments_end_with_the_same_bytes(folder):
    kinds = ["flat", "idmap2", "langchain", "ivf", "embed"]
    command = [sys.executable, str(SURVIVE), "--kills", "5", "--rows", "4000", "--kind", *kinds]
    lines = run_in(folder, command)
    table = {row[0]: row[1:] for row in (line.split() for line in lines.split("\n")[1:]) if len(row) == 7}
    assert sorted(table) == sorted(kinds)
    assert all(row[0] == "5" and row[2] == row[3] for row in table.values())
