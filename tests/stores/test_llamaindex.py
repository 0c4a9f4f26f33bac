import json

import numpy as np
import pytest
from faiss_tools import COUNT, DIM, build, digest, read, rewrite, save

from migrate.errors import StoreError
from migrate.stores import open_store
from migrate.vectors import Document

INDEX = "default__vector_store.json"
IDS = [f"node-{row}" for row in range(COUNT)]


def node(node_id, text, metadata=None, **more):
    """A node as llama-index-core 0.14 writes it."""
    data = {
        "id_": node_id, "embedding": None, "metadata": metadata or {}, "excluded_embed_metadata_keys": [],
        "excluded_llm_metadata_keys": [], "relationships": {}, "metadata_template": "{key}: {value}",
        "metadata_separator": "\n", "text": text, "mimetype": "text/plain", "start_char_idx": None,
        "end_char_idx": None, "text_template": "{metadata_str}\n\n{content}", "class_name": "TextNode",
    }  # fmt: skip
    return {"__data__": data | more, "__type__": "1"}


def write(folder, name, content):
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def write_nodes(folder, nodes):
    write(folder, "docstore.json", {"docstore/data": nodes})


def write_index_store(folder, *node_dicts):
    structs = {}
    for number, nodes in enumerate(node_dicts):
        data = {"index_id": f"index-{number}", "summary": None, "nodes_dict": nodes}
        structs[data["index_id"]] = {"__type__": "vector_store", "__data__": json.dumps(data)}
    structs["list"] = {"__type__": "list", "__data__": json.dumps({"nodes": []})}
    write(folder, "index_store.json", {"index_store/data": structs})


def write_id_map(folder, node_of):
    maps = {
        "node_id_to_faiss_id_map": {node_id: label for label, node_id in node_of.items()},
        "faiss_id_to_node_id_map": node_of,
    }
    write(folder, "id_map.json", maps)


@pytest.fixture
def folder(vectors, tmp_path):
    folder = tmp_path / "store"
    save(build("Flat", vectors), folder, INDEX)
    write_nodes(folder, {node_id: node(node_id, f"text of {node_id}") for node_id in IDS})
    write_index_store(folder, {str(row): node_id for row, node_id in enumerate(IDS)})
    write(folder, "graph_store.json", {"graph_dict": {}})
    write(folder, "image__vector_store.json", {"embedding_dict": {}})
    return folder


@pytest.fixture
def mapped(vectors, folder):
    """What a FaissMapVectorStore persists after the nodes 0 and 7 were deleted."""
    kept = [row for row in range(COUNT) if row not in (0, 7)]
    save(build("IDMap2,Flat", vectors[kept], labels=kept), folder, INDEX)
    write_index_store(folder, {node_id: node_id for node_id in IDS})
    write_id_map(folder, {row: IDS[row] for row in kept})
    return folder


def test_the_files_that_are_read_are_known(folder):
    store = open_store(folder)
    assert (store.info.kind, store.info.has_texts, store.info.notes) == ("llamaindex", True, ())
    names = {stamp.path.name for stamp in store.stamps}
    assert names == {"default__vector_store.json", "docstore.json", "index_store.json"}


def test_the_id_map_decides_where_there_is_one(mapped, vectors):
    store = open_store(mapped)
    ids, found = read(store)
    assert ids == [node_id for node_id in IDS if node_id not in ("node-0", "node-7")]
    assert np.array_equal(found[0], vectors[1])
    assert any("2 nodes in docstore.json belong to no vector" in note for note in store.info.notes)


def test_the_id_map_of_the_first_versions_is_a_python_literal(mapped):
    write(mapped, "id_map.json", str(json.loads((mapped / "id_map.json").read_text())))
    assert (mapped / "id_map.json").read_text().startswith("{'")
    assert open_store(mapped).info.count == COUNT - 2


def test_labels_of_inverted_lists_find_their_nodes(folder, vectors):
    save(build("IVF8,Flat", vectors), folder, INDEX)
    ids, found = read(open_store(folder))
    assert ids != IDS
    assert np.array_equal(found, vectors[[IDS.index(node_id) for node_id in ids]])


def test_two_indexes_may_share_the_rows(folder):
    halves = [{str(row): IDS[row] for row in range(start, COUNT, 2)} for start in (0, 1)]
    write_index_store(folder, *halves)
    assert read(open_store(folder))[0] == IDS


def test_the_text_is_what_llamaindex_embeds(folder):
    nodes = {node_id: node(node_id, "plain") for node_id in IDS}
    nodes["node-0"] = node(
        "node-0",
        "with {metadata_str} in it",
        {"page": 3, "secret": "{content}", "by": None},
        excluded_embed_metadata_keys=["secret"],
        metadata_template="<{key}>={value}",
        metadata_separator=" | ",
        text_template="[{metadata_str}] {content} {0.__class__}",
    )
    nodes["node-1"] = {"__data__": {"doc_id": "node-1", "text": "old", "extra_info": {"a": 1}}, "__type__": "1"}
    nodes["node-2"] = {"__data__": {"id_": "node-2", "text_resource": {"text": "new"}, "metadata": {}}}
    write_nodes(folder, nodes)
    store = open_store(folder)
    first, second, third = store.documents(np.arange(3))
    filled = "[<page>=3 | <by>=None] with {metadata_str} in it {0.__class__}"
    assert first.text == filled
    assert first.metadata == {"page": 3, "secret": "{content}", "by": None}
    assert second == Document("node-1", "a: 1\n\nold", {"a": 1})
    assert third.text == "new"
    assert any("LlamaIndex embeds" in note for note in store.info.notes)


@pytest.mark.parametrize("fixture", ["folder", "mapped"])
def test_of_a_new_store_the_index_alone_is_another(fixture, request, tmp_path):
    source = request.getfixturevalue(fixture)
    before = digest(source)
    # what an earlier translation left of its model
    (source / "embedder.json").write_text("{}")
    store = open_store(source)
    written = rewrite(store, tmp_path / "new", lambda vectors: np.hstack([vectors, vectors]), 2 * DIM)
    assert read(written)[0] == read(store)[0]
    after = digest(tmp_path / "new")
    assert after.keys() == before.keys()
    assert {name for name in before if before[name] != after[name]} == {INDEX}


def test_other_namespaces_do_not_hide_the_index(folder, vectors):
    save(build("Flat", vectors[:5]), folder, "image__vector_store.json")
    store = open_store(folder)
    assert read(store)[0] == IDS
    assert any("image__vector_store.json holds vectors" in note for note in store.info.notes)


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("docstore.json", "{", "Expecting property name"),
        ("docstore.json", "[]", r"damaged, or not of this store \(\[\]\)"),
        ("docstore.json", "{}", "'docstore/data' is missing"),
        ("docstore.json", {"docstore/data": {}}, r"no node, for example 'node-0' \(400 missing\)"),
        ("docstore.json", {"docstore/data": dict.fromkeys(IDS, 1)}, "it must be a table, and is 1"),
        ("docstore.json", {"docstore/data": {i: node(i, 5) for i in IDS}}, "node 'node-0' lacks a text or metadata"),
        ("docstore.json", '{"docstore/data": "\\ud800"}', "half of a character"),
        ("docstore.json", "[" * 100_000, "nested more than"),
        ("index_store.json", {}, "'index_store/data' is missing"),
        ("index_store.json", {"index_store/data": {}}, "400 vectors have no node"),
        ("index_store.json", {"index_store/data": {"a": {"__type__": "vector_store", "__data__": "["}}}, "Expecting"),
        ("id_map.json", "{'a'", "no JSON: "),
        ("id_map.json", {}, "'faiss_id_to_node_id_map' is missing"),
        ("id_map.json", {"faiss_id_to_node_id_map": {"1": 1}}, "399 vectors have no node"),
        ("id_map.json", {"faiss_id_to_node_id_map": dict.fromkeys(range(COUNT), 1)}, "1 is no id of a node"),
        ("id_map.json", {"faiss_id_to_node_id_map": dict.fromkeys(range(COUNT), "a")}, "two vectors have the node 'a'"),
        ("id_map.json", {"faiss_id_to_node_id_map": dict(enumerate([*IDS, "more"]))}, "1 nodes have no vector"),
    ],
)
def test_what_does_not_fit_is_one_line(name, content, found, folder):
    write(folder, name, content)
    with pytest.raises(StoreError, match=found) as error:
        open_store(folder)
    assert "\n" not in str(error.value)


def test_a_row_in_two_indexes_is_refused(folder):
    write_index_store(folder, {"0": "node-0"}, {"0": "node-1"})
    with pytest.raises(StoreError, match="row '0' is in two"):
        open_store(folder)


@pytest.mark.parametrize("value", [None, 5, "page", {"page": 1}])
def test_odd_settings_of_a_node_are_passed_over(value, folder):
    nodes = {node_id: node(node_id, "t", {"page": 1}, excluded_embed_metadata_keys=value) for node_id in IDS}
    write_nodes(folder, nodes)
    assert next(open_store(folder).documents()).text == "page: 1\n\nt"


@pytest.mark.parametrize("name", ["docstore.json", "index_store.json"])
def test_a_missing_file_is_named(name, folder):
    (folder / name).unlink()
    with pytest.raises(StoreError, match=rf"{name}: there is no such file"):
        open_store(folder)


def test_nodes_without_texts_are_no_texts(folder):
    write_nodes(folder, {node_id: node(node_id, "") for node_id in IDS})
    store = open_store(folder)
    assert not store.info.has_texts
    with pytest.raises(StoreError, match="all nodes have empty texts"):
        store.documents()


# From here on the package itself judges.


def persist(llama, folder, vectors, *, mapped):
    import faiss

    kinds = llama["faiss"]
    flat = faiss.IndexFlatL2(DIM)
    vector_store = kinds.FaissMapVectorStore(faiss.IndexIDMap2(flat)) if mapped else kinds.FaissVectorStore(flat)
    nodes = []
    for row, vector in enumerate(vectors):
        settings = {"metadata": {"page": row, "hidden": "x"}, "excluded_embed_metadata_keys": ["hidden"] * (row % 2)}
        node = llama["schema"].TextNode(id_=f"node-{row}", text=f"words {row}", embedding=vector.tolist(), **settings)
        nodes.append(node)
    context = llama["core"].StorageContext.from_defaults(vector_store=vector_store)
    index = llama["core"].VectorStoreIndex(nodes=nodes, storage_context=context, embed_model=llama["embedder"](DIM))
    if mapped:
        index.delete_nodes(["node-3"], delete_from_docstore=False)
    index.storage_context.persist(str(folder))
    return nodes


def load(llama, folder, dim, *, mapped):
    kind = llama["faiss"].FaissMapVectorStore if mapped else llama["faiss"].FaissVectorStore
    store = kind.from_persist_dir(str(folder))
    context = llama["core"].StorageContext.from_defaults(vector_store=store, persist_dir=str(folder))
    return llama["core"].load_index_from_storage(context, embed_model=llama["embedder"](dim))


@pytest.fixture
def llama():
    # first, as the core takes seconds to be imported
    faiss_store = pytest.importorskip("llama_index.vector_stores.faiss")
    core = pytest.importorskip("llama_index.core")
    from llama_index.core import schema
    from llama_index.core.embeddings import MockEmbedding

    return {"core": core, "faiss": faiss_store, "schema": schema, "embedder": lambda dim: MockEmbedding(embed_dim=dim)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mapped", [False, True])
def test_llamaindex_opens_and_searches_what_was_written(mapped, llama, vectors, tmp_path):
    nodes = persist(llama, tmp_path / "store", vectors, mapped=mapped)
    store = open_store(tmp_path / "store")
    kept = [node for node in nodes if not (mapped and node.id_ == "node-3")]
    assert read(store)[0] == [node.id_ for node in kept]
    for document, kept_node in zip(store.documents(), kept, strict=True):
        assert document.text == kept_node.get_content(metadata_mode=llama["schema"].MetadataMode.EMBED)
        assert document.metadata == kept_node.metadata

    rewrite(store, tmp_path / "new", lambda old: np.hstack([old, -old]), 2 * DIM)
    index = load(llama, tmp_path / "new", 2 * DIM, mapped=mapped)
    for row in (1, 4, 399):
        query = llama["core"].QueryBundle("", embedding=[*vectors[row].tolist(), *(-vectors[row]).tolist()])
        hits = index.as_retriever(similarity_top_k=3).retrieve(query)
        assert hits[0].node.node_id == f"node-{row}"
        assert hits[0].node.text == f"words {row}"
        assert hits[0].score == pytest.approx(0, abs=1e-5)
