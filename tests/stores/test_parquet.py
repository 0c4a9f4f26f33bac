import sys

import numpy as np
import pytest
from faiss_tools import COUNT, DIM, build, digest, read, rewrite, save

from migrate.errors import StoreError, UsageError
from migrate.stores import open_store
from migrate.stores.documents.arrow import take_ascending
from migrate.vectors import Document

LABELS = (np.random.default_rng(5).permutation(COUNT) * 3 + 1000).tolist()
IDS = [f"doc-{row}" for row in range(COUNT)]


@pytest.fixture
def pyarrow():
    pytest.importorskip("pyarrow.parquet")
    import pyarrow

    return pyarrow


@pytest.fixture
def write(pyarrow, vectors, tmp_path):
    """Writes an index with a Parquet file beside it."""

    def write(columns=None, labels=None, folder=tmp_path / "store", name="docs.parquet", **options):
        save(build("Flat" if labels is None else "IDMap2,Flat", vectors, labels=labels), folder)
        table = columns or {"id": IDS, "text": [f"text of {i}" for i in IDS], "page": list(range(COUNT))}
        pyarrow.parquet.write_table(pyarrow.table(table), folder / name, **options)
        return folder

    return write


def test_many_rows_in_any_order_are_read_in_portions(write, monkeypatch):
    monkeypatch.setattr("migrate.stores.documents.arrow._ROWS_IN_MEMORY", 7)
    store = open_store(write(row_group_size=150))
    order = np.random.default_rng(0).permutation(COUNT)
    assert [document.id for document in store.documents(order)] == [IDS[row] for row in order]


def test_rows_are_matched_by_id_in_any_order(write):
    ordered = sorted(LABELS)
    store = open_store(write({"id": ordered, "text": [f"t{label}" for label in ordered]}, LABELS))
    assert read(store)[0] == list(map(str, LABELS))
    assert [document.text for document in store.documents()] == [f"t{label}" for label in LABELS]


def test_rows_are_matched_by_faiss_id(write):
    ordered = sorted(LABELS)
    columns = {"id": [f"d{i}" for i in ordered], "text": ["t"] * COUNT, "faiss_id": ordered}
    store = open_store(write(columns, LABELS))
    assert read(store)[0] == [f"d{label}" for label in LABELS]
    assert next(store.documents()).metadata == {}
    columns["faiss_id"] = [label + 1 for label in ordered]
    with pytest.raises(StoreError, match="faiss_id differs"):
        open_store(write(columns, LABELS))


@pytest.mark.parametrize("name", ["text", "content", "page_content", "document", "anything"])
def test_the_text_is_found_by_name_or_as_the_only_one(name, write):
    store = open_store(write({"_id": IDS, name: ["words"] * COUNT, "n": [1.5] * COUNT}))
    assert next(store.documents()) == Document("doc-0", "words", {"n": 1.5})


def test_without_ids_the_row_numbers_are_the_ids(write):
    store = open_store(write({"text": ["words"] * COUNT}))
    assert read(store)[0] == list(map(str, range(COUNT)))


def test_without_a_column_of_texts_there_are_none(write):
    store = open_store(write({"id": IDS, "a": ["x"] * COUNT, "b": ["y"] * COUNT}))
    assert not store.info.has_texts
    with pytest.raises(StoreError, match="no column holds the texts"):
        store.documents()


def test_vectors_and_empty_cells_are_no_metadata(write):
    columns = {"id": IDS, "text": [None, *["t"] * (COUNT - 1)], "emb": [[0.5]] * COUNT, "raw": [b"x"] * COUNT}
    columns["gap"] = [None, *range(1, COUNT)]
    store = open_store(write(columns))
    assert list(store.documents(np.arange(2))) == [Document("doc-0", "", {}), Document("doc-1", "t", {"gap": 1})]
    assert any("also holds vectors (emb)" in note for note in store.info.notes)


def test_a_store_of_the_same_kind_is_written(write, tmp_path):
    folder = write()
    before = digest(folder)
    written = rewrite(open_store(folder), tmp_path / "new", lambda old: np.hstack([old, old]), 2 * DIM)
    assert read(written)[0] == IDS
    assert "docs.parquet, matched by position" in written.info.details["documents"]
    assert list(written.documents()) == list(open_store(folder).documents())
    assert digest(folder) == before
    assert digest(tmp_path / "new")["docs.parquet"] == before["docs.parquet"]


def test_docs_jsonl_comes_first(write):
    folder = write()
    (folder / "docs.jsonl").write_text("".join(f'{{"id": "j{row}"}}\n' for row in range(COUNT)))
    assert read(open_store(folder))[0][0] == "j0"


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"id": IDS[1:], "text": IDS[1:]}, "has 399 documents for 400 vectors"),
        ({"id": [*IDS[1:], "doc-1"], "text": IDS}, "1 repetitions"),
        ({"id": [*IDS[1:], None], "text": IDS}, "1 rows have no id"),
        ({"id": [1.5] * COUNT, "text": IDS}, "column id is of double, and ids are texts or integers"),
    ],
)
def test_what_does_not_fit_is_refused(columns, found, write):
    with pytest.raises(StoreError, match=found):
        open_store(write(columns))


def test_labels_that_match_nothing_are_refused(write):
    with pytest.raises(StoreError, match="as their ids are not its labels, which are not 0 to n-1 either"):
        open_store(write(labels=LABELS))


def test_several_parquet_files_are_refused(write):
    write()
    with pytest.raises(StoreError, match=r"has 2 Parquet files \(docs\.parquet, more\.parquet\)"):
        open_store(write(name="more.parquet"))


def test_damaged_files_are_one_line_or_read(write):
    folder = write(row_group_size=150)
    whole = (folder / "docs.parquet").read_bytes()
    random = np.random.default_rng(3)
    for cut in (0, 4, len(whole) // 2, len(whole) - 1, *[len(whole)] * 60):
        content = bytearray(whole[:cut])
        for place in random.integers(4, max(cut, 5), 8 if cut == len(whole) else 0):
            content[place] = int(random.integers(256))
        (folder / "docs.parquet").write_bytes(content)
        try:
            list(open_store(folder).documents())
        except StoreError as error:
            assert "\n" not in str(error)
        else:
            assert cut == len(whole)


def test_fewer_rows_than_announced_are_noticed(pyarrow, tmp_path):
    batch = pyarrow.record_batch({"a": [1, 2, 3]})
    rows = take_ascending(tmp_path, [(0, batch)], np.array([1, 2, 3]))
    place, found = next(rows)
    assert (place, found.to_pylist()) == (0, [{"a": 2}, {"a": 3}])
    with pytest.raises(StoreError, match="has 3 rows, and none of number 3"):
        next(rows)


def test_a_file_that_changed_is_noticed(write):
    store = open_store(write())
    write({"id": IDS, "text": ["other"] * COUNT})
    with pytest.raises(StoreError, match="changed while it was read"):
        list(store.documents())


def test_without_pyarrow_the_extra_is_named(vectors, tmp_path, monkeypatch):
    save(build("Flat", vectors), tmp_path)
    (tmp_path / "docs.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'lead-migrate\[parquet\]'"):
        open_store(tmp_path)
