"""A short run of the fuzzer; `python benchmarks/fuzz_faiss.py` is the long one."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fuzz_faiss.py"


@pytest.fixture
def fuzzer(monkeypatch):
    spec = importlib.util.spec_from_file_location("fuzz_faiss", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fuzz_faiss", module)
    spec.loader.exec_module(module)
    return module


def test_spoiled_indexes_are_read_or_refused_and_nothing_else(fuzzer, tmp_path):
    tallies = dict(fuzzer.fuzz(56, 5, tmp_path))
    assert len(tallies) == 8
    outcomes = sum((tally.outcomes for tally in tallies.values()), fuzzer.Counter())
    assert set(outcomes) == {"read", "refused"}
    assert outcomes["refused"] >= 8
    assert max(tally.longest_s for tally in tallies.values()) < fuzzer.LONGEST_S


def test_the_fuzzer_tells_a_crash_from_a_refusal(fuzzer, tmp_path, monkeypatch):
    monkeypatch.setattr(fuzzer, "outcome", lambda path: "broken batch")
    with pytest.raises(SystemExit, match="broken batch"):
        list(fuzzer.fuzz(8, 5, tmp_path))
