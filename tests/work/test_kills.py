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


# Stores of all kinds but the first go through the same steps, and take longer for each
STRIDES = {"flat": 1, "embed": 2, "langchain": 10, "ivf": 10, "texts": 10, "re-embed": 10}
ROWS = 600
"""Two parts or three."""


@pytest.fixture(scope="module")
def deaths(tmp_path_factory):
    """What came of each kind, in one process, whose imports take as long as the runs."""
    asked = [f"{kind}:{ROWS}:{stride}" for kind, stride in STRIDES.items()]
    folder = tmp_path_factory.mktemp("deaths")
    return json.loads(run_in(folder, [sys.executable, str(HERE / "die_at_each_step.py"), *asked]))


@pytest.mark.parametrize("kind", STRIDES)
def test_a_run_that_dies_at_any_step_is_continued_to_the_same_bytes(kind, deaths):
    assert deaths[kind]["wrong"] == []
    assert deaths[kind]["deaths"] >= 30 // STRIDES[kind], "fewer steps than a run takes"


def test_runs_that_are_killed_at_random_moments_end_with_the_same_bytes(folder):
    lines = run_in(folder, [sys.executable, str(SURVIVE), "--kills", "3", "--rows", "2000", "--kind", "flat", "embed"])
    table = {row[0]: row[1:] for row in (line.split() for line in lines.split("\n")[1:]) if len(row) == 7}
    assert sorted(table) == ["embed", "flat"]
    assert all(row[0] == "3" and row[2] == row[3] for row in table.values())
