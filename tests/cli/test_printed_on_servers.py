"""The commands that are printed for a store on a server, typed as they are printed."""

import shlex
import shutil
import uuid

import pytest

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
def location(request, store, judged, write_vectors, lead_migrate, tmp_path):
    """A store on a server, of the vectors of a file, beside the files of an old and a new model."""
    write_vectors("old.npz", "tfidf:40")
    write_vectors("target.npz", "tfidf:48")
    for place in request.param(tmp_path / "server"):
        lead_migrate(f"reembed store --target file:old.npz -o '{place}' -q")
        shutil.rmtree("store")
        yield place


def test_a_store_on_a_server_is_moved_by_what_is_printed(location, lead_migrate):
    def followed(command, begins):
        """What a printed command prints as the next one."""
        assert command.startswith(begins), command
        return lead_migrate(command).next

    named = shlex.quote(location)
    assert lead_migrate(f"inspect {named}").next == f"switch OLD {named}", "its vectors are all true ones"
    run = f"run {named} --reference pool --target file:target.npz --judged judged --kind mean --sample 60 -o out"
    switch = followed(lead_migrate(run, code=1).next, f"reembed {named} --target file:target.npz -o ")
    followed(switch, f"switch {named} ")
    assert open_store(location).info.dim == 48


def test_a_collection_of_others_on_a_server_takes_no_stamp(store, write_vectors, lead_migrate):
    pytest.importorskip("chromadb")
    from chroma_tools import server

    write_vectors("old.npz", "tfidf:40")
    lead_migrate("reembed store --target file:old.npz -o old -q")
    opened = open_store("old")
    client, url = server()
    (batch,) = opened.scan()
    texts = [document.text for document in opened.documents()]
    client.create_collection("theirs").add(ids=list(batch.ids), embeddings=batch.vectors, documents=texts)
    named = shlex.quote(f"{url}#theirs")
    assert lead_migrate(f"check {named} --model file:old.npz").next == f"assess {named} --target SPEC"
    assert "no place" in lead_migrate(f"stamp {named} --model file:old.npz", code=2).complaint
