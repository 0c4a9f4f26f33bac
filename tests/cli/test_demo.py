"""`lead-migrate demo`; what it prints without options is held by tests/test_sessions.py."""

import pytest

from migrate.cli.main import run
from migrate.datasets.beir import load_beir
from migrate.stores import open_store


@pytest.mark.slow
def test_the_demo_from_another_model_leaves_what_can_be_gone_on_with(tmp_path, capsys):
    folder = tmp_path / "demo"
    assert run(["demo", "--from", "tfidf:32", "--docs", "300", "--sample", "60", "-o", str(folder)]) == 0
    told = capsys.readouterr()
    assert "1. the store: 300 docstrings of Python's standard library, embedded with tfidf:32" in told.err
    assert "2. the move to all-MiniLM-L6-v2 (384 dimensions): embed 60 of them again" in told.err
    assert told.out.startswith("NOT SAFE: retention ")
    assert open_store(folder / "source").info.manifest.model.spec == "tfidf:32"
    judged = load_beir(folder / "beir")
    assert len(judged.queries) == len(judged.qrels) == 300
    assert {path.name for path in folder.iterdir()} > {"stitch", "store", "reference", "report.html", "report.json"}
    assert run(["demo", "--from", "tfidf:32", "-o", str(folder)]) == 2
    assert "--force" in capsys.readouterr().err


def test_a_model_that_is_unknown_leaves_nothing(tmp_path, capsys):
    assert run(["demo", "--from", "nonsense:x", "-o", str(tmp_path / "demo")]) == 2
    assert "unknown model 'nonsense:x'" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()
