import json
import os

import numpy as np
import pytest
from faiss_tools import COUNT, build, read, rewrite, save, write_docs

from migrate.cli.main import run
from migrate.errors import StoreError, UsageError
from migrate.stores import open_store, registry
from migrate.vectors import Document


@pytest.fixture
def folder(vectors, tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    np.save(folder / "vectors.npy", vectors)
    # ids that are numbers, and not those of their rows
    write_docs(folder, [Document(str(3 * (COUNT - row)), f"text {row}", {"row": row}) for row in range(COUNT)])
    return folder


def test_line_i_belongs_to_row_i_whatever_its_id(folder, vectors):
    store = open_store(folder)
    ids, stored = read(store)
    assert ids[:2] == [str(3 * COUNT), str(3 * COUNT - 3)] and np.array_equal(stored, vectors)
    assert next(store.documents(np.array([3]))) == Document(str(3 * COUNT - 9), "text 3", {"row": 3})


def test_without_documents_ids_are_row_numbers(folder, vectors):
    (folder / "docs.jsonl").unlink()
    store = open_store(folder / "vectors.npy")
    assert read(store)[0] == [str(row) for row in range(COUNT)] and not store.info.has_texts


def lines(values):
    return "".join(f"{value}\n" for value in values)


BESIDE = {
    "chunks.json": lambda texts: json.dumps([{"text": text, "page": None} for text in texts], ensure_ascii=False),
    "metadata.json": lambda texts: json.dumps({"chunks": [{"content": text} for text in texts]}),
    "chunks.jsonl": lambda texts: lines(json.dumps({"text": text}) for text in texts),
    "metadata.csv": lambda texts: lines(["text", *(f'"{text}"' for text in texts)]),
    "chunks.txt": lines,
}


@pytest.mark.parametrize("name", BESIDE)
def test_texts_beside_an_array_in_the_files_that_programs_write(name, tmp_path):
    texts = ["빵, bread", "水 😀", "", "salt"]
    vectors = np.eye(4, 6, dtype=np.float32)
    np.save(tmp_path / "embeddings.npy", vectors)
    (tmp_path / "requirements.txt").write_text(lines("abcd"))
    (tmp_path / name).write_text(BESIDE[name](texts), encoding="utf-8")
    store = open_store(tmp_path)
    assert [document.text for document in store.documents()] == texts
    new = rewrite(store, tmp_path / "new", lambda old: -old, 6)
    assert [document.text for document in new.documents()] == texts
    assert np.array_equal(np.load(tmp_path / "new" / "embeddings.npy"), -vectors)
    for number in (3, 6):
        (tmp_path / name).write_text(BESIDE[name]((texts * 2)[:number]), encoding="utf-8")
        info = open_store(tmp_path).info
        assert not info.has_texts and any(f"{number} documents for 4 vectors" in note for note in info.notes)


def test_records_beside_an_array_count_before_lines(tmp_path):
    np.save(tmp_path / "embeddings.npy", np.eye(2, 6, dtype=np.float32))
    (tmp_path / "chunks.txt").write_text("a\nb\n")
    (tmp_path / "metadata.json").write_text('[{"source": "x"}, {"source": "y"}]')
    assert [document.text for document in open_store(tmp_path).documents()] == ["a", "b"]
    (tmp_path / "metadata.json").write_text('[{"text": "c"}, {"text": "d"}]')
    assert [document.text for document in open_store(tmp_path).documents()] == ["c", "d"]


@pytest.mark.parametrize("dtype", ["<f2", "<f8", ">f4"])
def test_other_floats_are_read_as_float32(folder, vectors, tmp_path, dtype):
    np.save(folder / "vectors.npy", vectors.astype(dtype))
    store = open_store(folder)
    name = np.dtype(dtype).name
    assert (f"the vectors are {name}, read as float32" in store.info.notes) == (name != "float32")
    assert np.array_equal(read(store)[1], vectors.astype(dtype).astype(np.float32))
    written = np.load(rewrite(store, tmp_path / "new").index_path)
    assert written.dtype == np.float32 and np.array_equal(written, read(store)[1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.zeros(5, np.float32), r"not \(n, dim\) of floats"),
        (np.zeros((5, 4), np.int64), r"not \(n, dim\) of floats"),
        (np.array([[object()]], dtype=object), "of object"),
        (np.asfortranarray(np.ones((5, 4), np.float32)), "Fortran order"),
    ],
    ids=["flat", "integers", "pickled", "columns"],
)
def test_other_arrays_are_refused(tmp_path, content, message):
    np.save(tmp_path / "vectors.npy", content, allow_pickle=True)
    with pytest.raises(StoreError, match=message):
        open_store(tmp_path / "vectors.npy")


@pytest.mark.parametrize("size", [0, 3, 7, 20, 127, 128, 129, 5_000])
def test_an_array_that_was_cut_is_refused(folder, size):
    os.truncate(folder / "vectors.npy", size)
    with pytest.raises(StoreError):
        open_store(folder / "vectors.npy")


def test_an_array_that_is_cut_while_it_is_read_is_refused(folder):
    batches = open_store(folder).scan(batch_size=10)
    next(batches)
    os.truncate(folder / "vectors.npy", 2_000)
    with pytest.raises(StoreError, match="cut while it was read"):
        list(batches)


def test_an_index_is_opened_before_an_array_unless_the_kind_is_named(folder, vectors):
    save(build("Flat", -vectors), folder)
    write_docs(folder, [Document(f"doc-{row}", f"text {row}") for row in range(COUNT)])
    assert open_store(folder).info.kind == "faiss"
    location = open_store(f"arrays:{folder}").info.location
    assert np.array_equal(read(open_store(location))[1], vectors)


def test_two_arrays_are_not_guessed_between(folder):
    np.save(folder / "more.npy", np.ones((2, 3), np.float32))
    with pytest.raises(StoreError, match=r"\(more\.npy, vectors\.npy\)"):
        open_store(f"arrays:{folder}")
    (folder / "docs.jsonl").unlink()
    assert open_store(folder / "more.npy").info.dim == 3


def test_an_unknown_kind_is_named_with_those_that_are_there(capsys):
    assert run(["inspect", "tape:docs"]) == 2
    told = "no store kind called 'tape' is installed; known kinds are faiss, parquet, arrays"
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_a_store_by_its_scheme_is_not_replaced(folder, tmp_path, capsys):
    for output in (folder, folder / "new"):
        assert run(["fit", f"arrays:{folder}", "--target", "tfidf:8", "-o", str(output), "--force"]) == 2
        assert "overlaps" in capsys.readouterr().err
    assert (folder / "vectors.npy").exists()
    assert run(["inspect", ""]) == 2
    assert "no path or URI is given" in capsys.readouterr().err


OTHER_KIND = """
from migrate.stores import open_store
class OtherKind:
    name = "other"
    def recognises(self, path):
        return path.suffix == ".other"
    def open(self, location):
        return open_store(location.removesuffix(".other"))
KIND = OtherKind()
"""


def test_a_kind_of_another_package_is_asked_after_the_built_in_ones(folder, install):
    install("other", OTHER_KIND, "stores", "other")
    install("broken", "", "stores", "broken")
    install("another_faiss", OTHER_KIND, "stores", "faiss")
    assert registry.kind_names() == [*(kind.name for kind in registry.built_in_kinds()), "broken", "other"]
    assert open_store(f"other:{folder}.other").info.location == f"other:{folder}.other"
    with pytest.raises(UsageError, match=r"broken.*AttributeError"):
        open_store("broken:x")
