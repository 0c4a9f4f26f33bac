"""`lead-migrate demo`; what it prints without options is held by tests/test_sessions.py."""

import subprocess
import sys

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
    assert open_store(folder / "source").info.manifest.model.spec == "tfidf:32"
    judged = load_beir(folder / "beir")
    assert 20 <= len(judged.queries) == len(judged.qrels) < 300
    assert {path.name for path in folder.iterdir()} > {"stitch", "store", "report.html", "report.json"}
    assert run(["demo", "--from", "tfidf:32", "-o", str(folder)]) == 2
    assert "--force" in capsys.readouterr().err


@pytest.mark.slow
def test_the_hard_demo_moves_the_other_way_and_needs_no_model(tmp_path):
    code = (
        "import sys; from migrate.cli.main import run; "
        f"assert run(['demo', '--hard', '--docs', '300', '-q', '-o', {str(tmp_path / 'demo')!r}]) == 0; "
        "print({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
    store = open_store(tmp_path / "demo" / "store")
    assert store.info.manifest.model.spec == "file:all-MiniLM-L6-v2.npz"
    assert store.info.manifest.source_model.spec == "file:all-mpnet-base-v2.npz"


def test_a_model_that_is_unknown_leaves_nothing(tmp_path, capsys):
    assert run(["demo", "--from", "nonsense:x", "-o", str(tmp_path / "demo")]) == 2
    assert "unknown model 'nonsense:x'" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()
