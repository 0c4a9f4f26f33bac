"""Documents in a Parquet file beside an index; `test_documents` has how their rows are matched to it."""

import numpy as np
import pytest
from faiss_tools import COUNT, build, damaged, save

from migrate.errors import StoreError
from migrate.stores import open_store
from migrate.stores.documents.arrow import take_ascending
from migrate.vectors import Document

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

IDS = [f"doc-{row}" for row in range(COUNT)]


@pytest.fixture
def write(vectors, tmp_path):
    save(build("Flat", vectors), tmp_path / "store")

    def write(name="docs.parquet", row_group_size=None, **columns):
        columns = columns or {"id": IDS, "text": [f"text of {i}" for i in IDS], "page": list(range(COUNT))}
        pq.write_table(pa.table(columns), tmp_path / "store" / name, row_group_size=row_group_size)
        return tmp_path / "store"

    return write


def test_many_rows_in_any_order_are_read_in_portions(write, monkeypatch):
    monkeypatch.setattr("migrate.stores.documents.arrow._ROWS_IN_MEMORY", 7)
    store = open_store(write(row_group_size=150))
    order = np.random.default_rng(0).permutation(COUNT)
    assert [document.id for document in store.documents(order)] == [IDS[row] for row in order]


@pytest.mark.parametrize("name", ["text", "content", "page_content", "document", "anything"])
def test_the_text_is_found_by_name_or_as_the_only_one(name, write):
    store = open_store(write(**{"_id": IDS, name: ["words"] * COUNT, "n": [1.5] * COUNT}))
    assert next(store.documents()) == Document("doc-0", "words", {"n": 1.5})


def test_without_a_column_of_texts_there_are_none(write):
    store = open_store(write(id=IDS, a=["x"] * COUNT, b=["y"] * COUNT))
    assert not store.info.has_texts
    with pytest.raises(StoreError, match="no column holds the texts"):
        store.documents()


def test_vectors_labels_and_empty_cells_are_no_metadata(write):
    others = {"emb": [[0.5]] * COUNT, "raw": [b"x"] * COUNT, "faiss_id": range(COUNT), "gap": [None, *range(1, COUNT)]}
    store = open_store(write(id=IDS, text=[None, *["t"] * (COUNT - 1)], **others))
    assert list(store.documents(np.arange(2))) == [Document("doc-0", "", {}), Document("doc-1", "t", {"gap": 1})]
    assert any("also holds vectors (emb)" in note for note in store.info.notes)


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ([*IDS[1:], "doc-1"], "1 repetitions"),
        ([*IDS[1:], None], "1 rows have no id"),
        ([1.5] * COUNT, "column id is of double"),
    ],
)
def test_ids_that_are_none_are_refused(ids, found, write):
    with pytest.raises(StoreError, match=found):
        open_store(write(id=ids, text=IDS))


def test_several_parquet_files_are_refused(write):
    write()
    with pytest.raises(StoreError, match=r"\(docs\.parquet, more\.parquet\)"):
        open_store(write("more.parquet"))


def test_damaged_files_are_one_line_or_read(write):
    folder = write(row_group_size=150)
    for is_cut in damaged(folder / "docs.parquet", cuts=(0, 4, 0.5, -1), first=4):
        try:
            list(open_store(folder).documents())
        except StoreError as error:
            assert "\n" not in str(error)
        else:
            assert not is_cut


def test_fewer_rows_than_announced_are_noticed(tmp_path):
    batch = pa.record_batch({"a": [1, 2, 3]})
    rows = take_ascending(tmp_path, [(0, batch)], np.array([1, 2, 3]))
    place, found = next(rows)
    assert (place, found.to_pylist()) == (0, [{"a": 2}, {"a": 3}])
    with pytest.raises(StoreError, match="has 3 rows, and none of number 3"):
        next(rows)
