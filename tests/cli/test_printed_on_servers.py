"""The commands that are printed for a store on a server, run as they are printed, in a new shell in the same folder."""

import shlex
import shutil
import uuid

import numpy as np
import pytest

from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.stores import open_store

pytestmark = pytest.mark.slow


def on_postgres(folder):
    from postgres import server_url

    yield f"pgvector:{server_url()}#t{uuid.uuid4().hex[:12]}"


def on_chroma(folder):
    pytest.importorskip("chromadb")
    from chroma_tools import server

    yield f"{server()[1]}#t{uuid.uuid4().hex[:12]}"


def on_qdrant(folder):
    pytest.importorskip("qdrant_client")
    from qdrant_server import serving

    with serving(folder) as url:
        yield f"qdrant:{url}#docs"


@pytest.fixture(params=[on_postgres, on_chroma, on_qdrant], ids=lambda param: param.__name__)
def store(request, corpus, source_folder, beir, tmp_path, monkeypatch):
    """A store on a server, of the vectors of a file, in a folder with the files of an old and a new model."""
    for name in ("CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    shutil.copytree(source_folder, "files")
    shutil.copytree(beir, "judged")
    for name, spec in (("old", "tfidf:40"), ("target", "tfidf:48")):
        embedder = load_embedder(spec)
        embedder.fit(corpus.documents)
        np.savez(
            f"{name}.npz",
            doc_ids=[document.id for document in corpus.documents],
            docs=embedder.embed_documents(corpus.documents),
            query_ids=[query.id for query in corpus.queries],
            queries=embedder.embed_queries(corpus.queries),
        )
    for location in request.param(tmp_path / "server"):
        assert run(["reembed", "files", "--target", "file:old.npz", "-o", location, "-q"]) == 0
        yield location


def test_a_store_on_a_server_is_moved_by_what_is_printed(store, shell, capsys):
    def printed(words, code):
        capsys.readouterr()
        assert run(words) == code, capsys.readouterr().err
        told = capsys.readouterr().err.splitlines()
        assert [line.startswith("next: ") for line in told].count(True) == 1
        return told[-1].removeprefix("next: ")

    def followed(command, begins):
        """What a printed command, run in a shell, prints as the next one."""
        assert command.startswith(f"lead-migrate {begins}"), command
        done = shell(command)
        assert done.returncode == 0, done.stderr
        found = [line for line in done.stderr.splitlines() if line.startswith("next: ")]
        return found[-1].removeprefix("next: ").replace("python -m migrate", "lead-migrate") if found else None

    named = shlex.quote(store)
    assert printed(["inspect", store], 0) == f"lead-migrate switch OLD {named}", "its vectors are all true ones"
    moved = ["run", store, "--target", "file:target.npz", "--beir", "judged", "--stitch", "mean", "--sample", "60"]
    switch = followed(printed([*moved, "-o", "out"], 1), f"reembed {named} --target file:target.npz -o ")
    followed(switch, f"switch {named} ")
    assert open_store(store).info.dim == 48
