"""A whole migration with a light installation, without PyTorch and sentence-transformers: a model behind an API, and
vectors of a file."""

import importlib.util
import re
import shutil
import subprocess
import sys

import pytest
from light_install import NAMES, NOT_IN_IT, link_installation, needed, run_light
from openai_server import KEY, OpenAIServer

from migrate.datasets.beir import write_beir
from migrate.datasets.stdlib import LARGE, SMALL, stdlib_beir, vectors_of
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder

pytestmark = pytest.mark.slow

API = "openai:tiny"
OLD, NEW = (f"file:{vectors_of(model)}" for model in (LARGE, SMALL))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    link_installation(folder)
    return folder


@pytest.fixture(scope="module")
def server():
    with OpenAIServer() as running:
        yield running


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store of mpnet's vectors, its queries with judgements, and these queries as lines."""
    folder = tmp_path_factory.mktemp("made")
    corpus = stdlib_beir(with_vectors=True)
    embed_corpus(lambda: corpus.documents, load_embedder(OLD), folder / "store")
    write_beir(folder / "judged", corpus.documents, corpus.queries, corpus.qrels)
    (folder / "queries.txt").write_text("".join(f"{query.text}\n" for query in corpus.queries))
    return folder


ONE_AFTER_ANOTHER = """
import shlex, sys
from migrate.cli.main import run
for line in sys.stdin:
    print(f"exit {run(shlex.split(line))}", flush=True)
print(sorted(name for name in sys.modules if name in {NOT_IN_IT}))
""".replace("{NOT_IN_IT}", repr(NOT_IN_IT))
"""A program that runs the commands that it is given, as libraries need be loaded but once."""


@pytest.fixture
def exit_codes(installed, server, made, tmp_path):
    """Runs commands in a folder with the store in it; returns how each ended."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)

    def run_all(*commands):
        environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url}
        done = run_light(installed, "-c", ONE_AFTER_ANOTHER, cwd=tmp_path, given="\n".join(commands), **environment)
        codes = re.findall(r"^exit (\d+)$", done.stdout, re.MULTILINE)
        assert len(codes) == len(commands), done.stderr
        assert done.stdout.endswith("[]\n"), "nothing of PyTorch was loaded"
        return {command: int(code) for command, code in zip(commands, codes, strict=True)}

    return run_all


def test_the_installation_has_none_of_the_large_libraries(installed):
    assert not needed(NAMES) & {"torch", "transformers", "sentence-transformers"}
    code = f"import importlib.util as u; print([n for n in {NOT_IN_IT} if u.find_spec(n)])"
    command = [sys.executable, "-S", "-c", code]
    found = subprocess.run(command, env={"PYTHONPATH": str(installed)}, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
    assert importlib.util.find_spec("torch"), "it is in the environment of the tests"


def test_each_step_of_a_migration_to_a_model_behind_an_api(exit_codes):
    done = exit_codes(
        "inspect store",
        f"assess store --target {API}",
        f"fit store --target {API} --sample 100 -o stitch",
        "translate store stitch -o new",
        "live run new --once --yes",
        f"reembed store --target {API} -o full",
        "sync store full",
        f"check full --model {API}",
        "switch store full",
        "rollback store",
    )
    assert set(done.values()) == {0}, done


def test_a_translation_is_judged(exit_codes):
    done = exit_codes(
        f"run store --target {NEW} --source-model {OLD} --judged judged --sample 200 --kind procrustes -o moved",
        "report moved/report.json",
        f"fit store --target {API} --sample 100 --kind ridge -o stitch",
        "translate store stitch -o new",
        "audit new --reference pool --queries queries.txt",
    )
    # The test's model behind an API tells nothing of texts, and 200 pairs are few: the translations are refused
    assert list(done.values()) == [1, 1, 0, 0, 1], done
