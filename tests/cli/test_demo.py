"""`lead-migrate demo`; what it prints without options is held by tests/test_sessions.py."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from migrate.datasets.beir import load_beir
from migrate.stores import open_store


@pytest.mark.slow
def test_the_demo_from_another_model_leaves_what_can_be_gone_on_with(lead_migrate):
    ended = lead_migrate("demo --from tfidf:32 --docs 300 --sample 60 -o demo")
    assert "1. the store: 300 docstrings" in ended.err and "embedded with tfidf:32" in ended.err
    assert "2. the move to all-MiniLM-L6-v2 (384 dimensions)" in ended.err
    assert ended.next.startswith("reembed demo/source --target file:demo/")
    assert open_store("demo/source").info.manifest.model.spec == "tfidf:32"
    judged = load_beir(Path("demo/beir"))
    assert 20 <= len(judged.queries) == len(judged.qrels) < 300
    assert {path.name for path in Path("demo").iterdir()} > {"stitch", "store", "report.html", "report.json"}
    assert "--force" in lead_migrate("demo --from tfidf:32 -o demo", code=2).complaint
    lead_migrate(ended.next)


@pytest.mark.slow
def test_the_hard_demo_moves_the_other_way_and_needs_no_model():
    code = (
        "import sys; from migrate.cli.main import run; "
        "assert run(['demo', '--hard', '--docs', '300', '--sample', '60', '-q', '-o', 'demo']) == 0; "
        "print({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
    manifest = open_store("demo/store").info.manifest
    assert manifest.model.spec == "file:all-MiniLM-L6-v2.npz"
    assert manifest.source_model.spec == "file:all-mpnet-base-v2.npz"


@pytest.mark.slow
def test_the_page_of_a_demo_that_keeps_nothing_has_commands_for_the_next_one(lead_migrate):
    following = lead_migrate("demo --from tfidf:32 --docs 300 --sample 60").next
    assert following.split() == ["demo", "-o", "demo", "--from=tfidf:32", "--docs=300", "--sample=60"]
    page = Path("lead-migrate-demo.html").read_text()
    words = re.sub("<[^>]*>", "", page)
    assert "reembed demo/source --target " in words and "/tmp/" not in page and "/dev/shm/" not in page


def test_files_of_the_user_in_the_folder_are_not_replaced(lead_migrate):
    Path("mine").mkdir()
    Path("mine/all-mpnet-base-v2.npz").write_text("mine")
    assert "all-mpnet-base-v2.npz" in lead_migrate("demo --docs 300 -o mine", code=2).complaint
    assert [path.name for path in Path("mine").iterdir()] == ["all-mpnet-base-v2.npz"]
    assert Path("mine/all-mpnet-base-v2.npz").read_text() == "mine"


def test_a_model_that_is_unknown_leaves_nothing(lead_migrate):
    assert "unknown model 'nonsense:x'" in lead_migrate("demo --from nonsense:x -o demo", code=2).complaint
    assert not Path("demo").exists()
