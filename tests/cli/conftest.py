import io
import json
import shlex
import shutil
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest
from openai_server import OpenAIServer

from migrate.cli.main import run
from migrate.datasets.beir import write_beir


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def document(self):
        return json.loads(self.out)

    @property
    def said(self):
        """What is on stdout, whatever lines it is wrapped into."""
        return " ".join(self.out.split())

    @property
    def told(self):
        """What is on stderr, whatever lines it is wrapped into."""
        return " ".join(self.err.split())

    @property
    def complaint(self):
        """The one line of a command that failed."""
        (line,) = [line for line in self.err.split("\n") if line.startswith("lead-migrate: ")]
        assert self.out == "" and "Traceback" not in self.err
        return line

    @property
    def next(self):
        """The command that is printed to go on with, the last line of all; None where there is none."""
        lines = self.err.splitlines()
        if not any(line.startswith("next: ") for line in lines):
            return None
        (line,) = [line for line in lines if line.startswith("next: ")]
        assert line == lines[-1] and line.startswith("next: lead-migrate ")
        return line.removeprefix("next: lead-migrate ")


@pytest.fixture(scope="session")
def lead_migrate():
    """Types a command, whose last words may stand apart; it has to end with the code, or one of the codes."""

    def typed(line, *words, code=0):
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True) for _ in range(2))
        with redirect_stdout(out), redirect_stderr(err):
            found = run([*shlex.split(line), *map(str, words)])
        ended = Ended(found, *(stream.buffer.getvalue().decode() for stream in (out, err)))
        assert found in (code if isinstance(code, tuple) else (code,)), (line, *words, ended)
        return ended

    return typed


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Every test works in a folder of its own, with a cache and a state of its own, and without keys."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "none"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    # Commands set these for their worker processes, here in the process of all tests: what was set first is restored
    for name in ("LEAD_MIGRATE_DEVICE", "LEAD_MIGRATE_WORK_FOLDER"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def server(monkeypatch):
    with OpenAIServer() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running


@pytest.fixture(scope="session")
def beir(corpus, tmp_path_factory):
    """The corpus with 40 of its queries: an audit by them takes less than half as long as by all."""
    folder = tmp_path_factory.mktemp("few") / "docstrings"
    write_beir(folder, corpus.documents, corpus.queries[:40], corpus.qrels)
    return folder


@pytest.fixture(scope="session")
def all_queries(corpus, tmp_path_factory):
    """The corpus with all 150 of its queries, for what takes many, such as a verdict that is SAFE."""
    folder = tmp_path_factory.mktemp("all") / "docstrings"
    write_beir(folder, corpus.documents, corpus.queries, corpus.qrels)
    return folder


@pytest.fixture(scope="session")
def migrated(source_folder, beir, lead_migrate, tmp_path_factory):
    """A folder with a `store`, `judged` queries, a `stitch` of 60 pairs to tfidf:24, and `new`, which it translates."""
    folder = tmp_path_factory.mktemp("migrated")
    shutil.copytree(source_folder, folder / "store")
    shutil.copytree(beir, folder / "judged")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        lead_migrate("fit store --target tfidf:24 --sample 60 --kind ridge -q -o stitch")
        lead_migrate("translate store stitch -q -o new")
    return folder


@pytest.fixture
def here(migrated, tmp_path):
    """A copy of that migration, in the folder that the test works in."""
    shutil.copytree(migrated, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture(scope="session")
def finished(source_folder, beir, lead_migrate, tmp_path_factory):
    """A folder with a store, `old`, `judged` queries, and what a run has `made` of them; the command of that run."""
    folder, command = (
        tmp_path_factory.mktemp("finished"),
        "run old --reference pool --target tfidf:24 --sample 60 --kind ridge",
    )
    shutil.copytree(source_folder, folder / "old")
    shutil.copytree(beir, folder / "judged")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        lead_migrate(f"{command} --judged judged -o made -q", code=(0, 1, 3))
    return folder, f"{command} --judged judged -o made"


@pytest.fixture
def finished_here(finished, tmp_path):
    """A copy of that folder, in which the test works; the command of the run."""
    folder, command = finished
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return command


@pytest.fixture
def store(source_folder, tmp_path):
    """A store in the folder that the test works in, `store`, and nothing else."""
    return shutil.copytree(source_folder, tmp_path / "store")


@pytest.fixture
def judged(beir, tmp_path):
    """Judged queries in the folder that the test works in."""
    return shutil.copytree(beir, tmp_path / "judged")
