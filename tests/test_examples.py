"""The examples run as their docstrings say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from openai_server import OpenAIServer

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"


def run_example(name, *arguments, **environment):
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_library_in_a_few_lines(source_folder, beir, tmp_path):
    out = run_example("library.py", source_folder, beir, "tfidf:24", tmp_path / "out")
    assert "may it be used? " in out
    assert (tmp_path / "out" / "store" / "index.faiss").is_file()


def test_an_openai_target(source_folder, tmp_path):
    with OpenAIServer() as server:
        arguments = (source_folder, tmp_path / "out", "text-embedding-3-small", server.url)
        out = run_example("openai_target.py", *arguments, OPENAI_API_KEY="sk-test-0123456789")
    assert "150 texts embedded" in out
    assert "dimension 1536, 150 of them true ones" in out


def test_a_langchain_app(tmp_path):
    out = run_example("langchain_app.py", tmp_path / "out")
    assert out.startswith("bicycle: ")
    assert (tmp_path / "out" / "new" / "index.pkl").is_file()


def test_a_live_switch(tmp_path):
    out = run_example("live_switch.py", tmp_path / "out")
    counts = {
        name: int(count) for count, name in re.findall(r"^(\d+) questions answered from (.+)$", out, re.MULTILINE)
    }
    assert counts.keys() == {"the old store", "the new store"}
    assert min(counts.values()) > 25
    assert "\n0 questions failed\n" in out
    assert re.match(r"over the bridge: bicycle, note", out)
    assert "\ntranslated: bicycle, note" in out


def test_every_example_is_tested():
    tested = Path(__file__).read_text()
    assert all(path.name in tested for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_an_example_says_how_it_is_run(path):
    assert f"python examples/{path.name}" in path.read_text()
