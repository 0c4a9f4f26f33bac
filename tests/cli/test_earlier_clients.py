"""The whole path with stores that earlier versions of a database left, as its client reads them today."""

import shutil
from contextlib import closing

import numpy as np
import pytest

from migrate.stores import open_store
from migrate.stores.base import read_all

pytestmark = pytest.mark.slow


def chroma(folder, documents, vectors, version):
    """A folder as that version of Chroma left it."""
    chromadb = pytest.importorskip("chromadb")
    from chroma_earlier import as_left_by

    settings = chromadb.config.Settings(anonymized_telemetry=False)
    with closing(chromadb.PersistentClient(str(folder), settings=settings)) as client:
        collection = client.create_collection("docs", metadata={"hnsw:space": "cosine"}, embedding_function=None)
        ids, texts = zip(*((document.id, document.text) for document in documents), strict=True)
        collection.add(ids=list(ids), embeddings=vectors, documents=list(texts))
    as_left_by(version, folder)


def lancedb(folder, documents, vectors, version):
    """A table in files of that format."""
    lancedb = pytest.importorskip("lancedb")
    pa = pytest.importorskip("pyarrow")
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    rows = {"id": [d.id for d in documents], "text": [d.text for d in documents], "vector": column}
    options = {"new_table_data_storage_version": version}
    lancedb.connect(str(folder)).create_table("docs", pa.table(rows), storage_options=options)


def read_by_its_client(location, kind, copy):
    """The vectors of a new store by their ids, as the client gives them."""
    shutil.copytree(location, copy)
    if kind == "lancedb":
        import lancedb

        rows = lancedb.connect(str(copy)).open_table("docs").to_arrow()
        return dict(zip(rows["id"].to_pylist(), rows["vector"].to_pylist(), strict=True))
    import chromadb

    settings = chromadb.config.Settings(anonymized_telemetry=False)
    with closing(chromadb.PersistentClient(str(copy), settings=settings)) as client:
        rows = client.get_collection("docs", embedding_function=None).get(include=["embeddings"])
    return dict(zip(rows["ids"], rows["embeddings"], strict=True))


@pytest.fixture
def left(source_folder, tmp_path):
    """Makes `old`, the store as some version of a client left it; returns its documents."""

    def leave(make, version):
        made = open_store(source_folder)
        documents = list(made.documents())
        make(tmp_path / "old", documents, read_all(made.scan()).vectors.astype(np.float32), version)
        return documents

    return leave


@pytest.mark.parametrize(("make", "version"), [(chroma, "0.4.3"), (lancedb, "legacy")])
def test_each_command_reads_it_and_its_client_reads_what_is_made(make, version, left, judged, tmp_path, lead_migrate):
    documents = left(make, version)
    assert f"vectors {len(documents)}" in lead_migrate("inspect old").said
    lead_migrate("assess old --target tfidf:24 -q")
    lead_migrate("fit old --target tfidf:24 --sample 60 --kind ridge -q -o stitch")
    lead_migrate("translate old stitch -q -o new")
    lead_migrate("audit new --reference build --source old --judged judged -q", code=(0, 1, 3))
    lead_migrate("sync old new -q")
    check_new(make.__name__, documents, tmp_path)


# Versions differ in what is read, which is the same for each command
@pytest.mark.parametrize("version", ["0.4.24", "0.6.3"])
def test_a_folder_of_each_version_of_chroma_is_translated(version, left, tmp_path, lead_migrate):
    documents = left(chroma, version)
    assert f"vectors {len(documents)}" in lead_migrate("inspect old").said
    lead_migrate("fit old --target tfidf:24 --sample 60 --kind mean -q -o stitch")
    lead_migrate("translate old stitch -q -o new")
    check_new("chroma", documents, tmp_path)


def check_new(kind, documents, folder):
    """Check that a client of that kind reads what is in `new`."""
    expected = read_all(open_store("new").scan())
    found = read_by_its_client(folder / "new", kind, folder / "copy")
    assert found.keys() == set(expected.ids) == {document.id for document in documents}
    np.testing.assert_allclose(np.array([found[name] for name in expected.ids]), expected.vectors, atol=1e-6)
