"""Folders of LlamaIndex with its default vector store, written and opened by its own client where that is installed."""

import json

import numpy as np
import pytest
from faiss_tools import COUNT, DIM, build, digest, read, rewrite, save
from test_llamaindex import IDS, INDEX, node, write, write_index_store, write_nodes
from whole_path import inspected, moved

from migrate.errors import StoreError
from migrate.stores import open_store
from migrate.testing.stores import StoreTests

IMAGES = "image__vector_store.json"


def write_vectors(folder, ids, vectors, name=INDEX):
    tables = {
        "embedding_dict": dict(zip(ids, np.asarray(vectors).tolist(), strict=True)),
        "text_id_to_ref_doc_id": dict.fromkeys(ids, "None"),
        "metadata_dict": {doc_id: {"page": 1, "größe": "ä"} for doc_id in ids},
    }
    write(folder, name, tables)


@pytest.fixture
def folder(vectors, tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    # the order is that of the vectors
    write_nodes(folder, {node_id: node(node_id, f"text of {node_id}, on bread") for node_id in sorted(IDS)})
    write_vectors(folder, IDS, vectors)
    write_index_store(folder, {node_id: node_id for node_id in IDS})
    write(folder, "graph_store.json", {"graph_dict": {}})
    write_vectors(folder, [], [], IMAGES)
    return folder


def test_vectors_ids_and_nodes_are_read_in_the_order_of_the_vectors(folder, vectors):
    store = open_store(folder)
    info = store.info
    assert (info.kind, info.index_type, info.metric, info.dim) == ("llamaindex-simple", "SimpleVectorStore", "ip", DIM)
    assert read(store)[0] == IDS and np.array_equal(read(store)[1], vectors)
    assert [document.text for document in store.documents()] == [f"text of {i}, on bread" for i in IDS]
    assert {stamp.path.name for stamp in store.stamps} == set(digest(folder))
    (note,) = info.notes
    assert "normalised wherever they are compared" in note
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    write_vectors(folder, IDS, vectors / lengths)
    assert open_store(folder).info.notes == ()


@pytest.mark.parametrize("name", ["vector_store.json", "mine__vector_store.json"])
def test_a_file_of_another_namespace_is_a_store_too(name, folder, vectors):
    (folder / INDEX).rename(folder / name)
    (folder / IMAGES).unlink()
    for location in (folder, folder / name, f"llamaindex-simple:{folder / name}"):
        assert np.array_equal(read(open_store(location))[1], vectors)
    write_vectors(folder, IDS, vectors, "second__vector_store.json")
    with pytest.raises(StoreError, match=r"2 files of a SimpleVectorStore "):
        open_store(folder)
    assert open_store(folder / name).info.count == COUNT


def test_vectors_of_other_namespaces_are_told_and_kept(folder, vectors, tmp_path):
    nodes = {node_id: node(node_id, f"text of {node_id}, on bread") for node_id in [*IDS, "picture"]}
    write_nodes(folder, nodes)
    write_vectors(folder, ["picture"], vectors[:1, :5], IMAGES)
    before = digest(folder)
    store = open_store(folder)
    assert any(note.startswith(f"{IMAGES} holds vectors of another namespace") for note in store.info.notes)
    assert any("1 nodes in docstore.json belong to no vector" in note for note in store.info.notes)
    rewrite(store, tmp_path / "new", lambda old: np.hstack([old, old]), 2 * DIM)
    after = digest(tmp_path / "new")
    assert {name for name in before if before[name] != after.get(name)} == {INDEX}
    pictures = open_store(folder / IMAGES)
    assert read(pictures)[0] == ["picture"] and np.array_equal(read(pictures)[1], vectors[:1, :5])


def test_of_a_new_store_the_vectors_alone_are_others(folder, tmp_path):
    before = digest(folder)
    old = json.loads((folder / INDEX).read_text())
    store = open_store(folder)
    new = rewrite(store, tmp_path / "new", lambda vectors: np.hstack([vectors, -vectors]), 2 * DIM)
    after = digest(tmp_path / "new")
    assert {name for name in before if before[name] != after.get(name)} == {INDEX}
    written = json.loads((tmp_path / "new" / INDEX).read_text())
    assert list(written) == list(old)
    assert {name: written[name] for name in written if name != "embedding_dict"} == {
        name: old[name] for name in old if name != "embedding_dict"
    }
    assert list(written["embedding_dict"]) == IDS
    assert np.array_equal(np.array(list(written["embedding_dict"].values()), np.float32), read(new)[1])


def test_a_folder_around_faiss_tells_of_simple_namespaces(folder, vectors):
    save(build("Flat", vectors), folder, INDEX)
    write_index_store(folder, {str(row): node_id for row, node_id in enumerate(IDS)})
    assert open_store(folder).info.notes == ()
    write_vectors(folder, ["picture"], vectors[:1], IMAGES)
    assert any(IMAGES in note for note in open_store(folder).info.notes)


def tables(**changed):
    return json.dumps({"embedding_dict": {i: [0.5, 1] for i in IDS}, "metadata_dict": {}} | changed)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (tables()[:-9], "damaged, or not of this store"),
        (tables(embedding_dict=[]), "'embedding_dict' is [], not an object"),
        (tables(embedding_dict={}), "it holds no vectors; give a store with some"),
        (tables(embedding_dict={"node-0": [1.0], "node-1": [1.0, 2.0]}), "of 'node-1' is no list of 1 numbers"),
        (tables(embedding_dict={"node-0": []}), "the vector of 'node-0' is no list of 0 numbers"),
        (tables(embedding_dict={"node-0": None}), "the vector of 'node-0' is no list of"),
        (tables(embedding_dict={"node-0": ["1"]}), "the vector of 'node-0'"),
        (tables(embedding_dict={"node-0": [True]}), "the vector of 'node-0'"),
        (tables(embedding_dict={"nobody": [1.0]}), "no node, for example 'nobody' (1 missing)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(content, says, folder):
    write(folder, INDEX, content)
    with pytest.raises(StoreError) as error:
        open_store(folder)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_missing_docstore_is_named(folder):
    (folder / "docstore.json").unlink()
    with pytest.raises(StoreError, match=r"docstore\.json: there is no such file"):
        open_store(folder)


def test_a_vector_that_is_no_number_is_refused_by_its_id(folder, vectors, capsys):
    spoilt = vectors.copy()
    spoilt[7, 2] = np.nan
    write_vectors(folder, IDS, spoilt)
    assert inspected(folder, capsys)["bad_vectors"] == 1


class TestSimple(StoreTests):
    metrics = ("ip",)
    can_be_empty = False

    def make_store(self, folder, documents, vectors, metric):
        folder.mkdir(exist_ok=True)
        ids = [document.id for document in documents]
        nodes = {
            d.id: node(d.id, d.text, dict(d.metadata), excluded_embed_metadata_keys=list(d.metadata)) for d in documents
        }
        write_nodes(folder, nodes)
        write_vectors(folder, ids, vectors)
        return folder


# From here on the package itself judges.


@pytest.fixture
def llama():
    core = pytest.importorskip("llama_index.core")
    from llama_index.core import schema
    from llama_index.core.embeddings import MockEmbedding
    from llama_index.core.vector_stores import SimpleVectorStore

    return {"core": core, "schema": schema, "embedder": MockEmbedding, "store": SimpleVectorStore}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_llamaindex_opens_and_searches_what_the_commands_wrote(llama, vectors, tmp_path, capsys):
    core, schema = llama["core"], llama["schema"]
    nodes = []
    for row, vector in enumerate(vectors):
        settings = {"metadata": {"page": row, "hidden": "x"}, "excluded_embed_metadata_keys": ["hidden"] * (row % 2)}
        words = " ".join(f"naïve路径{number}" for number in np.random.default_rng(row).integers(0, 300, 12))
        nodes.append(schema.TextNode(id_=f"node-{row}", text=words, embedding=vector.tolist(), **settings))
    index = core.VectorStoreIndex(nodes=nodes, embed_model=llama["embedder"](embed_dim=DIM))
    index.delete_nodes(["node-3"], delete_from_docstore=True)
    index.storage_context.persist(str(tmp_path / "storage"))
    assert (tmp_path / "storage" / IMAGES).is_file()

    assert inspected(tmp_path / "storage", capsys)["format"] == "llamaindex-simple"
    old, new = moved(tmp_path / "storage", tmp_path / "moved", capsys)
    kept = [each for each in nodes if each.id_ != "node-3"]
    assert read(old)[0] == [each.id_ for each in kept]
    assert np.array_equal(read(old)[1], np.delete(vectors, 3, axis=0))
    for document, kept_node in zip(old.documents(), kept, strict=True):
        assert document.text == kept_node.get_content(metadata_mode=schema.MetadataMode.EMBED)
        assert document.metadata == kept_node.metadata

    context = core.StorageContext.from_defaults(persist_dir=str(new.folder))
    opened = core.load_index_from_storage(context, embed_model=llama["embedder"](embed_dim=16))
    assert isinstance(opened.vector_store, llama["store"])
    ids, translated = read(new)
    for row in (1, 4, 200):
        query = core.QueryBundle("", embedding=translated[row].tolist())
        hits = opened.as_retriever(similarity_top_k=3).retrieve(query)
        assert hits[0].node.node_id == ids[row]
        assert hits[0].score == pytest.approx(1, abs=1e-5)
        assert hits[0].node.metadata == kept[row].metadata
    filters = core.vector_stores.MetadataFilters.from_dict({"page": 7})
    hits = opened.as_retriever(similarity_top_k=3, filters=filters).retrieve(query)
    assert [hit.node.node_id for hit in hits] == ["node-7"]
