"""Documents in `docs.jsonl` or Parquet beside an index: how they are matched to its labels, and what is refused."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from faiss_tools import COUNT, build, read, save

from migrate.errors import StoreError
from migrate.stores import open_store
from migrate.stores.documents import jsonl
from migrate.stores.documents.jsonl import scan_docs
from migrate.vectors import Document

LABELS = (np.random.default_rng(5).permutation(COUNT) * 3 + 1000).tolist()
IDS = [f"doc-{row}" for row in range(COUNT)]


def write_lines(folder, records):
    (folder / "docs.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")


def write_parquet(folder, records):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(records), folder / "docs.parquet")


@pytest.fixture(params=[write_lines, write_parquet], ids=["docs.jsonl", "docs.parquet"])
def write(request):
    return request.param


@pytest.fixture
def folder(vectors, tmp_path):
    save(build("Flat", vectors), tmp_path)
    return tmp_path


@pytest.fixture
def mapped(vectors, tmp_path):
    save(build("IDMap2,Flat", vectors, labels=LABELS), tmp_path)
    return tmp_path


def records(ids, faiss_ids=None):
    found = [{"id": doc_id, "text": f"text of {doc_id}"} for doc_id in ids]
    return found if faiss_ids is None else [{**r, "faiss_id": n} for r, n in zip(found, faiss_ids, strict=True)]


@dataclass(frozen=True)
class Matching:
    """Documents in the order of their file, the ids that rows get of them, and how they were matched."""

    records: list
    ids: list
    how: str


NUMBERS = list(map(str, range(COUNT)))
PADDED = [f"{row:03}" for row in range(COUNT)]
NUMBERED = {
    "by position": Matching(records(IDS), IDS, "by position"),
    "by id": Matching(records(NUMBERS), NUMBERS, "by id"),
    "by faiss_id rather than position": Matching(records(IDS[::-1], range(COUNT)[::-1]), IDS, "by faiss_id"),
    "by position where ids are numbers with zeros before": Matching(records(PADDED), PADDED, "by position"),
}
OF_LABELS = [f"doc-{label}" for label in LABELS]
OTHERWISE = {
    "by id": Matching(records(map(str, sorted(LABELS))), list(map(str, LABELS)), "by id"),
    "by faiss_id": Matching(
        records([f"doc-{label}" for label in sorted(LABELS)], sorted(LABELS)), OF_LABELS, "by faiss_id"
    ),
}


def assert_matched(folder, matching):
    store = open_store(folder)
    assert read(store)[0] == matching.ids
    assert list(store.documents()) == [Document(doc_id, f"text of {doc_id}") for doc_id in matching.ids]
    assert f"matched {matching.how}" in store.info.details["documents"]


@pytest.mark.parametrize("case", NUMBERED)
def test_documents_are_matched_to_rows(case, write, folder):
    write(folder, NUMBERED[case].records)
    assert_matched(folder, NUMBERED[case])


@pytest.mark.parametrize("case", OTHERWISE)
def test_documents_are_matched_to_labels(case, write, mapped):
    write(mapped, OTHERWISE[case].records)
    assert_matched(mapped, OTHERWISE[case])


def test_position_means_the_label_also_in_the_order_of_inverted_lists(write, vectors, tmp_path):
    save(build("IVF16,Flat", vectors), tmp_path)
    write(tmp_path, records(IDS))
    ids, found = read(open_store(tmp_path))
    assert ids != IDS
    assert np.array_equal(found, vectors[[IDS.index(doc_id) for doc_id in ids]])


def test_without_texts_the_ids_are_the_labels(mapped):
    store = open_store(mapped)
    assert read(store)[0] == list(map(str, LABELS))
    assert not store.info.has_texts
    with pytest.raises(StoreError, match=r"docs\.jsonl"):
        list(store.documents())


def test_labels_that_match_nothing_are_refused(write, mapped):
    write(mapped, records(IDS))
    reason = f"the {COUNT} documents do not match .*, as their ids are not its labels, which are not 0 to n-1 either"
    with pytest.raises(StoreError, match=f'{reason}.*"faiss_id"'):
        open_store(mapped)


def test_wrong_faiss_ids_are_refused_even_where_position_would_do(write, folder):
    write(folder, records(IDS, range(1, COUNT + 1)))
    with pytest.raises(StoreError, match="faiss_id differs"):
        open_store(folder)


@pytest.mark.parametrize("count", [0, COUNT - 1, COUNT + 1])
def test_another_number_of_documents_is_refused(count, write, folder):
    write(folder, records(f"doc-{line}" for line in range(count)))
    with pytest.raises(StoreError, match=f"has {count} documents for {COUNT} vectors"):
        open_store(folder)


def test_a_file_that_changed_is_noticed(write, folder):
    write(folder, records(IDS))
    store = open_store(folder)
    write(folder, records(f"new-{line}" for line in range(COUNT + 1)))
    with pytest.raises(StoreError, match="changed while it was read"):
        list(store.documents())


def test_missing_texts_are_told(folder):
    write_lines(folder, [{"id": "x", "text": "here"}, *({"id": doc_id} for doc_id in IDS[1:])])
    info = open_store(folder).info
    assert info.has_texts
    assert any(f"{COUNT - 1} of {COUNT}" in note for note in info.notes)


def test_lines_without_any_text_are_no_texts(folder):
    write_lines(folder, [{"id": doc_id} for doc_id in IDS])
    store = open_store(folder)
    assert not store.info.has_texts
    assert read(store)[0][5] == "doc-5"
    with pytest.raises(StoreError, match="text"):
        list(store.documents())


def test_byte_order_mark_crlf_and_blank_lines_are_accepted(folder):
    lines = [json.dumps(record) for record in records(IDS)]
    (folder / "docs.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n\r\n   \n".join(lines).encode() + b"\r\n\n")
    assert [document.id for document in open_store(folder).documents()] == IDS


def test_line_separators_of_unicode_do_not_split_lines(folder):
    lines = [json.dumps({"id": doc_id, "text": "a\u2028b\x85c"}, ensure_ascii=False) for doc_id in IDS]
    (folder / "docs.jsonl").write_text("\n".join(lines), encoding="utf-8", newline="")
    assert next(open_store(folder).documents()).text == "a\u2028b\x85c"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"{not json", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b"[" * 100_000, "not a JSON object"),
        (b'{"text": "no id"}', 'the "id" is nothing, not text'),
        (b'{"id": 7}', 'the "id" is int 7, not text'),
        (b'{"id": "x", "text": 7}', 'the "text" is int 7, not text'),
        (b'{"id": "x", "metadata": [1]}', 'the "metadata" are list [1], not an object'),
        (b'{"id": "x", "text": "\xff"}', "text in another encoding"),
        (b'{"id": "\\ud800"}', "half of a character"),
        (b'{"id": "x", "text": "\\uDC00"}', "half of a character"),
        (b'{"id": "doc-3"}', "duplicate id 'doc-3', the id of line 4"),
    ],
)
def test_bad_lines_are_refused_with_their_number(line, expected, folder):
    lines = [json.dumps({"id": doc_id}).encode() for doc_id in IDS]
    lines[20] = line
    (folder / "docs.jsonl").write_bytes(b"\n".join(lines))
    with pytest.raises(StoreError) as error:
        open_store(folder)
    assert "docs.jsonl:21: " in str(error.value)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def test_equal_hashes_alone_do_not_make_a_duplicate(folder, monkeypatch):
    monkeypatch.setattr(jsonl, "hash", lambda _: 1, raising=False)
    write_lines(folder, records(IDS))
    assert read(open_store(folder))[0] == IDS
    write_lines(folder, records(["doc-5", *IDS[1:]]))
    with pytest.raises(StoreError, match=r"jsonl:6: .*'doc-5', the id of line 1"):
        open_store(folder)


def test_only_places_and_hashes_are_kept(folder):
    write_lines(folder, [{"id": doc_id, "text": "x" * 5000} for doc_id in IDS])
    scan = scan_docs(folder / "docs.jsonl")
    kept = [scan.places, scan.numbers.values()]
    assert scan.faiss_ids is None
    assert sum(column.nbytes for column in kept) == 40 * COUNT


def test_ids_of_batches_are_not_read_before_somebody_looks(folder, monkeypatch):
    write_lines(folder, records(IDS))
    store = open_store(folder)
    monkeypatch.setattr(store.source, "ids", lambda rows: pytest.fail(f"read {rows}"))
    assert sum(len(batch) for batch in store.scan(batch_size=64)) == COUNT


def test_ids_of_a_batch_are_a_sequence_like_any_other(folder):
    write_lines(folder, records(IDS))
    ids = next(open_store(folder).scan(batch_size=4)).ids
    assert ids == ["doc-0", "doc-1", "doc-2", "doc-3"]
    assert ids != ["doc-0"]
    assert (ids[1], ids[-1], ids[1:3], len(ids), "doc-2" in ids) == ("doc-1", "doc-3", ["doc-1", "doc-2"], 4, True)
