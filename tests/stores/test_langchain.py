import datetime
import decimal
import io
import os
import pathlib
import pickle
import pickletools
import uuid

import faiss
import hostile_pickles
import numpy as np
import pytest
from faiss_tools import digest, read, rewrite, save
from langchain_tools import DistanceStrategy, Document, InMemoryDocstore, TextVectors, load, save_texts
from whole_path import inspected, moved

from migrate.errors import StoreError
from migrate.stores import create_store, open_store
from migrate.stores.documents.langchain import _DocstorePickler
from migrate.stores.documents.unpickle import DocstoreStub, DocumentStub
from migrate.vectors import Document as StoredDocument

DIM = 6
TEXTS = [f"text {number}" for number in range(20)]
RICH = {
    "page": 3,
    "score": 0.5,
    "none": None,
    "tags": ["a", ("b", 2)],
    "set": {"x", "y"},
    "raw": b"\x00\xff",
    "big": 1 << 80,
    "day": datetime.date(2026, 1, 2),
    "when": datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC),
    "zone": datetime.timezone(datetime.timedelta(hours=2)),
    "price": decimal.Decimal("1.50"),
    "uuid": uuid.UUID(int=5),
}
OLD_LAYOUTS = [
    ("langchain.docstore.in_memory", "langchain.schema"),
    ("langchain.docstore.in_memory", "langchain.schema.document"),
    ("langchain.docstore.in_memory", "langchain.docstore.document"),
    ("langchain_community.docstore.in_memory", "langchain_core.documents.base"),
]


def old_pickle(docstore_module, document_module, documents, row_ids):
    """A pickle as LangChain on pydantic 1 wrote it, with the names of its modules."""

    class Pickler(pickle._Pickler):
        def save_global(self, obj, name=None):
            module, name = {
                DocstoreStub: (docstore_module, "InMemoryDocstore"),
                DocumentStub: (document_module, "Document"),
            }.get(obj, (obj.__module__, obj.__qualname__))
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
            self.memoize(obj)

    states = {}
    for doc_id, (text, metadata) in documents.items():
        fields = {"page_content": text, "metadata": metadata}
        more = {"__fields_set__": set(fields), "__private_attribute_values__": {"_lc_kwargs": fields}}
        states[doc_id] = DocumentStub({"__dict__": fields, **more})
    target = io.BytesIO()
    Pickler(target, 4).dump((DocstoreStub({"_dict": states}), row_ids))
    return target.getvalue()


def _pickle_stubs(document, protocol=4):
    """A docstore of one document, pickled as ours are."""
    target = io.BytesIO()
    pickler = _DocstorePickler(target, "test")
    pickler.proto, pickler.bin = protocol, protocol > 0
    pickler.dump((DocstoreStub({"_dict": {"a": document}}), {0: "a"}))
    return target.getvalue()


def index_of(count):
    index = faiss.IndexFlatL2(DIM)
    index.add(np.random.default_rng(0).normal(size=(count, DIM)).astype(np.float32))
    return index


def store_with_pickle(folder, content, count=2):
    save(index_of(count), folder)
    (folder / "index.pkl").write_bytes(content)
    return folder


def same_documents(folder, store, dim):
    """LangChain opens the folder and finds the store's documents, by search and by id."""
    opened = load(folder, dim)
    expected = {document.id: document for document in store.documents()}
    assert list(opened.index_to_docstore_id.values()) == list(expected)
    for doc_id, document in expected.items():
        found = opened.docstore.search(doc_id)
        assert (found.page_content, found.metadata) == (document.text, document.metadata)
        assert found.model_copy() == found
    assert len(opened.similarity_search("anything", k=3)) == 3
    return opened


@pytest.mark.parametrize(
    "name",
    ["codebasics-faq-old-schema", "gemini-embedding-001", "minilm-inner-product", "minilm-old-langchain",
     "nv-embed-4096", "openai-ada-002", "titan-v1", "unixcoder-old-langchain"],
)  # fmt: skip
def test_stores_of_public_projects_are_read_and_open_in_langchain_after_rewriting(name, shared_stores, tmp_path):
    before = digest(shared_stores / name)
    store = open_store(shared_stores / name)
    new = rewrite(store, tmp_path / "new", lambda vectors: vectors[:, :DIM] * 2, DIM)
    opened = same_documents(tmp_path / "new", store, DIM)
    assert read(new)[0] == read(store)[0] == list(opened.index_to_docstore_id.values())
    assert new.info.metric == store.info.metric
    assert digest(shared_stores / name) == before
    assert not any("old layout" in note for note in new.info.notes)


@pytest.mark.parametrize("strategy", [DistanceStrategy.EUCLIDEAN_DISTANCE, DistanceStrategy.MAX_INNER_PRODUCT])
def test_a_store_of_the_present_langchain_is_copied_byte_for_byte(strategy, tmp_path):
    metadatas = [RICH | {"number": number} for number in range(len(TEXTS))]
    made = save_texts(tmp_path / "old", TEXTS, DIM, metadatas=metadatas, distance_strategy=strategy)
    store = open_store(tmp_path / "old")
    assert store.info.kind == "langchain"
    assert store.info.notes == ()
    assert [document.text for document in store.documents()] == TEXTS
    assert [document.metadata for document in store.documents()] == metadatas
    assert read(store)[0] == list(made.index_to_docstore_id.values())
    rewrite(store, tmp_path / "new")
    assert digest(tmp_path / "new") == digest(tmp_path / "old")
    same_documents(tmp_path / "new", store, DIM)


def test_deleted_documents_are_gone(tmp_path):
    made = save_texts(tmp_path / "old", TEXTS, DIM, ids=[f"id-{number}" for number in range(len(TEXTS))])
    made.delete(["id-0", "id-7"])
    made.save_local(str(tmp_path / "old"))
    store = open_store(tmp_path / "old")
    assert read(store)[0] == [f"id-{number}" for number in range(20) if number not in {0, 7}]
    assert [document.text for document in store.documents(np.array([0, 17]))] == ["text 1", "text 19"]


def test_the_pair_may_have_any_name_but_must_be_one(tmp_path):
    save_texts(tmp_path, TEXTS, DIM, name="mine")
    assert open_store(tmp_path).info.details["documents_file"] == "mine.pkl"
    save_texts(tmp_path, TEXTS[:3], DIM, name="other")
    with pytest.raises(StoreError, match=r"mine\.faiss, other\.faiss"):
        open_store(tmp_path)
    assert open_store(tmp_path / "other.faiss").info.count == 3


@pytest.mark.parametrize(("docstore_module", "document_module"), OLD_LAYOUTS)
def test_old_layouts_are_read_remarked_upon_and_written_in_the_present_one(docstore_module, document_module, tmp_path):
    documents = {f"id-{number}": (f"text {number}", RICH | {"n": number}) for number in range(5)}
    content = old_pickle(docstore_module, document_module, documents, dict(enumerate(documents)))
    store = open_store(store_with_pickle(tmp_path / "old", content, 5))
    assert any("old layout" in note for note in store.info.notes)
    assert "pydantic 1" in store.info.details["documents"]
    rewrite(store, tmp_path / "new")
    same_documents(tmp_path / "new", store, DIM)
    assert [document.metadata for document in store.documents()] == [metadata for _, metadata in documents.values()]
    rewrite(store, tmp_path / "again")
    assert digest(tmp_path / "new") == digest(tmp_path / "again")


def test_a_store_created_anew_opens_in_langchain(tmp_path):
    documents = [StoredDocument(f"id-{number}", text, RICH) for number, text in enumerate(TEXTS)]
    vectors = np.array(TextVectors(DIM).embed_documents(TEXTS), np.float32)
    writer = create_store(tmp_path, format="langchain", dim=DIM, metric="l2")
    writer.append(documents, vectors)
    writer.finish()
    opened = same_documents(tmp_path, open_store(tmp_path), DIM)
    best = opened.similarity_search("text 7", k=1)[0]
    assert (best.id, best.page_content, best.metadata) == ("id-7", "text 7", RICH)
    opened.add_texts(["one more"])
    assert opened.index.ntotal == 21


def test_metadata_that_could_not_be_read_back_is_not_written(tmp_path):
    writer = create_store(tmp_path, format="langchain", dim=DIM)
    writer.append([StoredDocument("x", "t", {"number": 1j})], np.ones((1, DIM), np.float32))
    with pytest.raises(StoreError, match="complex"):
        writer.finish()


class Payload:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("place", ["alone", "in the metadata", "as the docstore"])
def test_a_payload_is_named_and_not_run(place, tmp_path):
    witness = tmp_path / "witness"
    payload = Payload(os.system, f"touch {witness}")
    document = Document(page_content="t", metadata={"bad": payload})
    contents = {
        "alone": payload,
        "in the metadata": (InMemoryDocstore({"a": document}), {0: "a"}),
        "as the docstore": (payload, {0: "a"}),
    }
    folder = store_with_pickle(tmp_path / "old", pickle.dumps(contents[place]), 1)
    with pytest.raises(StoreError, match=r"(posix|nt)\.system, .*; nothing was executed"):
        open_store(folder)
    assert not witness.exists()
    pickle.loads((folder / "index.pkl").read_bytes())
    assert witness.exists(), "the payload is one that works"


@pytest.mark.parametrize(
    "function", [eval, getattr, print, __import__, np.array, datetime.datetime.fromisoformat, Document.model_construct]
)
def test_functions_are_refused(function, tmp_path):
    folder = store_with_pickle(tmp_path, pickle.dumps((Payload(function, "1"), {0: "a"})), 1)
    with pytest.raises(StoreError, match="nothing was executed"):
        open_store(folder)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"(ios\nsystem\n.", "the class os.system"),
        (b"\x80\x04}}K\x01\x92.", "NEWOBJ_EX"),
        (b"\x80\x04r\xff\xff\xff\xff.", "underflow"),
        (b"\x80\x04N.N.", "bytes after the end"),
        (b"\x80\x04cos\nsys", "truncated"),
        (b"", "Ran out of input"),
        (b"\x80\x04s.", "underflow"),
        (b"\x80\x04h\x05.", "Memo value not found"),
        (b"\x80\x04N.", "the pickle holds NoneType instead"),
        (b"\x80\x04)}\x86.", "the pickle holds a tuple instead"),
    ],
)
def test_hostile_pickles_are_refused(content, found, tmp_path):
    with pytest.raises(StoreError) as error:
        open_store(store_with_pickle(tmp_path, content))
    assert found in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_pickle_cut_anywhere_is_refused(tmp_path):
    save_texts(tmp_path, TEXTS[:1], DIM)
    content = (tmp_path / "index.pkl").read_bytes()
    instructions = [at for _, _, at in pickletools.genops(content)]
    for cut in sorted({*instructions, *(at + 1 for at in instructions[:-1])}):
        (tmp_path / "index.pkl").write_bytes(content[:cut])
        with pytest.raises(StoreError):
            open_store(tmp_path)


@pytest.mark.slow
def test_spoiled_pickles_raise_nothing_but_store_errors(tmp_path):
    save_texts(tmp_path, TEXTS[:3], DIM)
    content = (tmp_path / "index.pkl").read_bytes()
    random = np.random.default_rng(2)
    refused = 0
    for _ in range(100):
        spoiled = bytearray(content)
        spoiled[int(random.integers(0, len(content)))] = int(random.integers(0, 256))
        (tmp_path / "index.pkl").write_bytes(spoiled)
        try:
            list(open_store(tmp_path).documents())
        except StoreError:
            refused += 1
    assert refused > 16


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_every_protocol_with_bytes_is_read(protocol, tmp_path):
    values = {"a": [1, 2.5, None, True, "x" * 3_000], "b": (1 << 40, b"y" * 300), "$": {"$": 1}, 5: {1.5}}
    document = DocumentStub({"__dict__": {"page_content": "t", "metadata": values}})
    content = _pickle_stubs(document, protocol)
    assert next(open_store(store_with_pickle(tmp_path, content, 1)).documents()).metadata == values


def shared_values():
    """Metadata that honest programs write, whose pickle is smaller than it is."""
    metadata = {"book": "word " * 40_000, "tags": ["a", "b"], "days": {datetime.date(2026, 1, day) for day in (1, 2)}}
    return [
        metadata,
        metadata,
        {"pair": [metadata, metadata], "by place": {(1, 2): "x", (3, 4): "y"}, "ids": {uuid.UUID(int=1)}},
        {"deep": eval("[" * 80 + "]" * 80), "digits": 10**4298, "negative": -(10**4298), "none": frozenset()},
        *({"book": metadata["book"], "chunk": number} for number in range(3_000)),
    ]


def test_values_that_documents_share_are_read_as_they_are(tmp_path):
    metadatas = shared_values()
    save_texts(tmp_path, [f"text {number}" for number in range(len(metadatas))], DIM, metadatas=metadatas)
    assert (tmp_path / "index.pkl").stat().st_size < 1_000_000
    found = [document.metadata for document in open_store(tmp_path).documents()]
    assert found == metadatas
    assert found[0]["book"] is found[1]["book"], "what is shared stays so, or memory would not do"
    assert type(next(iter(found[2]["ids"]))) is uuid.UUID


def current(documents):
    return InMemoryDocstore({doc_id: Document(page_content=f"text {doc_id}") for doc_id in documents})


@pytest.mark.parametrize(
    ("row_ids", "found"),
    [
        ({0: "a"}, r"1 of 2 vectors have no document \(rows 1\)"),
        ({0: "a", 1: "b", 2: "c"}, "its 3 ids are not those of the rows 0 to 1"),
        ({0: "a", 2: "b"}, "its 2 ids are not those of the rows 0 to 1"),
        ({0: "a", True: "b"}, "its 2 ids are not those of the rows 0 to 1"),
        ({0: "a", 1: "gone"}, r"1 of 2 vectors have no document \(rows 1\)"),
        ({0: "a", 1: 5}, r"1 of 2 vectors have no document \(rows 1\)"),
        ({0: "gone"}, "none of the vectors has a document"),
        ({}, "none of the vectors has a document"),
        ({0: "a", 1: "a"}, "1 repetitions"),
        (["a", "b"], "the pickle holds tuple instead"),
    ],
)
def test_rows_and_documents_that_do_not_belong_together_are_refused(row_ids, found, tmp_path):
    content = pickle.dumps((current(["a", "b", "c"]), row_ids))
    with pytest.raises(StoreError, match=found):
        open_store(store_with_pickle(tmp_path, content))


@pytest.mark.parametrize("from_the_map_too", [True, False])
def test_vectors_without_a_document_are_named_and_what_is_said_drops_them(from_the_map_too, tmp_path, capsys):
    ids = [f"id-{row}" for row in range(60)]
    made = save_texts(tmp_path / "old", [f"text {row} of bread" for row in range(60)], DIM, ids=ids)
    gone = [5, 17, *range(30, 41)]
    made.docstore.delete([ids[row] for row in gone])
    if from_the_map_too:
        made.index_to_docstore_id = {row: ids[row] for row in range(60) if row not in gone}
    made.save_local(str(tmp_path / "old"))
    with pytest.raises(StoreError) as error:
        open_store(tmp_path / "old")
    assert "13 of 60 vectors" in str(error.value)
    assert "(rows 5, 17, 30, 31, 32, 33, 34, 35, 36, 37, ...)" in str(error.value)
    assert "\n" not in str(error.value)
    statements = str(error.value).partition("drop these vectors: ")[2]
    exec(statements, {"store": load(tmp_path / "old", DIM), "numpy": np, "FOLDER": str(tmp_path / "sound")})
    old, new = moved(tmp_path / "sound", tmp_path / "moved", capsys)
    kept = [row for row in range(60) if row not in gone]
    assert [document.id for document in old.documents()] == [ids[row] for row in kept]
    assert np.array_equal(read(old)[1], made.index.reconstruct_n(0, 60)[kept])
    same_documents(tmp_path / "moved" / "new", new, 16)


def test_documents_without_a_vector_are_remarked_upon_and_kept(tmp_path):
    folder = store_with_pickle(tmp_path / "old", pickle.dumps((current(["a", "b", "c"]), {0: "a", 1: "b"})))
    store = open_store(folder)
    assert any("1 documents in index.pkl belong to no vector" in note for note in store.info.notes)
    rewrite(store, tmp_path / "new")
    assert set(load(tmp_path / "new", DIM).docstore._dict) == {"a", "b", "c"}


@pytest.mark.parametrize("fields", [None, {}, {"page_content": 5}, {"page_content": "", "metadata": 1}])
def test_a_document_of_another_shape_is_refused(fields, tmp_path):
    document = DocumentStub(None if fields is None else {"__dict__": fields})
    with pytest.raises(StoreError, match="'a'"):
        open_store(store_with_pickle(tmp_path, _pickle_stubs(document), 1))


def test_many_long_texts_are_read_each_under_its_id(tmp_path):
    texts = [f"{row} {'a long text ' * 200}\n" for row in range(3_000)]  # several frames
    documents = [StoredDocument(str(row), text, {"row": row, "copy": text}) for row, text in enumerate(texts)]
    writer = create_store(tmp_path, format="langchain", dim=2)
    writer.append(documents, np.ones((len(documents), 2), dtype=np.float32))
    writer.finish()
    store = open_store(tmp_path)
    assert list(store.documents()) == documents
    rows = np.random.default_rng(0).permutation(3_000)[:50]
    assert list(store.documents(rows)) == [documents[row] for row in rows]


SCALARS = {
    "float32": np.float32(0.1),
    "float64": np.float64(1e-300),
    "float16": np.float16(0.5),
    "big-endian": np.array([1.5], ">f4")[0],
    "int64": np.int64(-(1 << 60)),
    "uint8": np.uint8(255),
    "bool": np.bool_(True),
    "text": np.str_("naïve 路径"),
    "no text": np.str_(""),
}
PATHS = {
    "path": pathlib.PosixPath("/data/naïve 路径/a.pdf"),
    "relative": pathlib.PurePosixPath("a/../b"),
    "nowhere": pathlib.PurePosixPath(),
    "of Windows": pathlib.PureWindowsPath("C:\\data\\a.pdf"),
}


def test_scalars_of_numpy_and_paths_are_read_and_copied_byte_for_byte(tmp_path):
    metadatas = [{**SCALARS, **PATHS, "list": [np.float32(number)]} for number in range(len(TEXTS))]
    save_texts(tmp_path / "old", TEXTS, DIM, metadatas=metadatas)
    store = open_store(tmp_path / "old")
    found = [document.metadata for document in store.documents()]
    assert found == metadatas
    assert {name: type(found[0][name]) for name in SCALARS} == {
        **dict.fromkeys(SCALARS, float), "int64": int, "uint8": int, "bool": bool, "text": str, "no text": str,
    }  # fmt: skip
    assert {name: type(found[0][name]) for name in PATHS} == {name: type(path) for name, path in PATHS.items()}
    rewrite(store, tmp_path / "new")
    assert digest(tmp_path / "new") == digest(tmp_path / "old")
    same_documents(tmp_path / "new", store, DIM)


def test_scalars_of_numpy_and_paths_are_equal_in_a_store_that_is_written_anew(tmp_path):
    documents = {f"id-{number}": (f"text {number}", {**SCALARS, **PATHS}) for number in range(5)}
    content = old_pickle(*OLD_LAYOUTS[0], documents, dict(enumerate(documents)))
    store = open_store(store_with_pickle(tmp_path / "old", content, 5))
    rewrite(store, tmp_path / "new")
    opened = same_documents(tmp_path / "new", store, DIM)
    assert [opened.docstore.search(doc_id).metadata for doc_id in documents] == [{**SCALARS, **PATHS}] * 5


@pytest.mark.parametrize("module", ["pathlib", "pathlib._local"])
@pytest.mark.parametrize("name", ["PosixPath", "WindowsPath"])
def test_a_path_of_another_python_or_system_is_read(module, name, tmp_path):
    value = hostile_pickles.name(module, name) + b"(" + hostile_pickles.text("a") + hostile_pickles.text("b") + b"tR"
    content = hostile_pickles.docstore(hostile_pickles.under(value))
    (document,) = open_store(store_with_pickle(tmp_path, content, 1)).documents()
    kind = pathlib.PosixPath if name == "PosixPath" else pathlib.PureWindowsPath
    assert document.metadata == {"field": kind("a", "b")}


def test_scalars_of_the_numpy_before_are_read(tmp_path):
    save_texts(tmp_path, TEXTS[:2], DIM, metadatas=[{"n": np.float32(number)} for number in range(2)])
    content = (tmp_path / "index.pkl").read_bytes()
    old, new = (name.encode() for name in ("numpy._core.multiarray", "numpy.core.multiarray"))
    assert content.count(b"\x8c\x16" + old) == 1
    # a frame has its length: without one, no length is wrong
    unframed = content[:2] + content[11:]
    (tmp_path / "index.pkl").write_bytes(unframed.replace(b"\x8c\x16" + old, b"\x8c\x15" + new))
    assert [document.metadata for document in open_store(tmp_path).documents()] == [{"n": 0.0}, {"n": 1.0}]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.datetime64("2026-01-02"), "a scalar of NumPy of the type 'M8'"),
        (np.complex64(1j), "a scalar of NumPy of the type 'c8'"),
        (np.longdouble(1), "a scalar of NumPy of the type 'f16'"),
        (np.bytes_(b"a"), "a scalar of NumPy of the type 'S1'"),
        (np.array([1.0]), r"the class numpy._core.\w+._reconstruct"),
        (np.dtype("f4"), "metadata hold a NumpyType"),
        (Payload(np.dtype, "f4", False, True), "metadata hold a NumpyType"),
        (np.float32, "the class numpy.float32"),
    ],
)
def test_other_values_of_numpy_are_refused_by_name(value, says, tmp_path):
    content = pickle.dumps((InMemoryDocstore({"a": Document(page_content="t", metadata={"v": value})}), {0: "a"}))
    with pytest.raises(StoreError, match=says) as error:
        open_store(store_with_pickle(tmp_path, content, 1))
    assert "save the store again with plain metadata" in str(error.value)


def hostile_scalar(code, order, content):
    """A scalar of NumPy in the metadata, put together instruction by instruction."""
    kind = hostile_pickles.name("numpy", "dtype") + b"(" + code + b"\x89\x88tR"
    kind += b"(K\x03" + order + b"NNN" + b"K\x00" * 3 + b"tb"
    scalar = hostile_pickles.name("numpy._core.multiarray", "scalar") + b"(" + kind + content + b"tR"
    return hostile_pickles.docstore(hostile_pickles.under(scalar))


SHORT = b"C\x02ab"


@pytest.mark.parametrize(
    ("code", "order", "content", "says"),
    [
        (hostile_pickles.text("f4"), hostile_pickles.text("<"), SHORT, "has 2 bytes in place of 4"),
        (hostile_pickles.text("O8"), hostile_pickles.text("|"), SHORT, "of the type 'O8'"),
        (hostile_pickles.text("f4,O"), hostile_pickles.text("|"), SHORT, "of the type 'f4,O'"),
        (hostile_pickles.text("f4"), hostile_pickles.text("O"), SHORT, "of the type 'f4'"),
        (hostile_pickles.text("f4"), b"]", SHORT, "unhashable|of the type 'f4'"),
        (b"]", hostile_pickles.text("<"), SHORT, r"of the type \[\]"),
        (hostile_pickles.text("f2"), hostile_pickles.text("<"), b"]", "of the type 'f2'"),
        (hostile_pickles.text("U999999999"), hostile_pickles.text("<"), SHORT, "has 2 bytes in place of"),
    ],
)
def test_a_hostile_scalar_is_refused(code, order, content, says, tmp_path):
    with pytest.raises(StoreError, match=says) as error:
        open_store(store_with_pickle(tmp_path, hostile_scalar(code, order, content), 1))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("state", [b"}" + hostile_pickles.text("_parts") + b"K\x05s", b"N}\x86", b"K\x05"])
def test_a_path_whose_insides_were_set_is_read_or_refused(state, tmp_path):
    """Whatever a pickle sets in an object that is harmless otherwise, nothing runs, and no value is none of JSON."""
    path = hostile_pickles.name("pathlib", "PosixPath") + hostile_pickles.text("a") + b"\x85R"
    slots = b"N}" + hostile_pickles.text("_parts") + b"]K\x05a" + b"s" + b"\x86"
    for settings in (state, slots):
        content = hostile_pickles.docstore(hostile_pickles.under(path + settings + b"b"))
        try:
            (document,) = open_store(store_with_pickle(tmp_path, content, 1)).documents()
        except StoreError as error:
            assert "\n" not in str(error)
        else:
            assert document.metadata == {"field": pathlib.PosixPath("a")}


def test_numpy_metadata_goes_through_the_commands(tmp_path, capsys):
    metadatas = [{"score": np.float32(number / 7), "n": np.int64(number), "file": pathlib.PosixPath(f"/a/{number}")}
                 for number in range(60)]  # fmt: skip
    save_texts(tmp_path / "old", [f"text {number} of bread" for number in range(60)], DIM, metadatas=metadatas)
    assert inspected(tmp_path / "old", capsys)["texts"]
    moved(tmp_path / "old", tmp_path / "moved", capsys)
    opened = load(tmp_path / "moved" / "new", 16)
    found = [opened.docstore.search(doc_id).metadata for doc_id in opened.index_to_docstore_id.values()]
    assert found == metadatas
    assert type(found[0]["score"]) is np.float32
