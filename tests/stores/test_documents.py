import json

import numpy as np
import pytest
from faiss_tools import COUNT, build, read, save

from migrate.errors import StoreError
from migrate.stores import open_store
from migrate.stores.documents import jsonl
from migrate.stores.documents.jsonl import scan_docs
from migrate.vectors import Document

OWN_LABELS = np.random.default_rng(5).permutation(COUNT) * 3 + 1000


def write_docs(folder, records):
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    (folder / "docs.jsonl").write_text("\n".join(lines), encoding="utf-8", newline="")


def records(ids, **more):
    return [{"id": doc_id, "text": f"text of {doc_id}", **more} for doc_id in ids]


@pytest.fixture
def folder(vectors, tmp_path):
    save(build("Flat", vectors), tmp_path)
    return tmp_path


@pytest.fixture
def mapped(vectors, tmp_path):
    save(build("IDMap2,Flat", vectors, labels=OWN_LABELS), tmp_path)
    return tmp_path


def test_without_texts_the_ids_are_the_labels(mapped):
    store = open_store(mapped)
    assert read(store)[0] == list(map(str, OWN_LABELS.tolist()))
    assert not store.info.has_texts
    with pytest.raises(StoreError, match=r"docs\.jsonl"):
        list(store.documents())


def test_lines_are_matched_to_labels_by_value_in_any_order(mapped):
    write_docs(mapped, records(map(str, sorted(OWN_LABELS.tolist()))))
    store = open_store(mapped)
    assert read(store)[0] == list(map(str, OWN_LABELS.tolist()))
    assert [document.text for document in store.documents()] == [f"text of {label}" for label in OWN_LABELS.tolist()]
    assert "by id" in store.info.details["documents"]


def test_value_comes_before_position(folder):
    write_docs(folder, records(map(str, reversed(range(COUNT)))))
    store = open_store(folder)
    assert read(store)[0] == list(map(str, range(COUNT)))
    assert next(store.documents(np.array([7]))).text == "text of 7"


def test_lines_are_matched_by_position_where_labels_are_row_numbers(folder):
    write_docs(folder, records(f"doc-{line}" for line in range(COUNT)))
    store = open_store(folder)
    assert read(store)[0] == [f"doc-{line}" for line in range(COUNT)]
    assert "by position" in store.info.details["documents"]


def test_position_means_the_label_also_in_the_order_of_inverted_lists(vectors, tmp_path):
    save(build("IVF16,Flat", vectors), tmp_path)
    write_docs(tmp_path, records(f"doc-{line}" for line in range(COUNT)))
    ids, found = read(open_store(tmp_path))
    assert ids != [f"doc-{line}" for line in range(COUNT)]
    assert all(
        np.array_equal(vectors[int(i.removeprefix("doc-"))], vector) for i, vector in zip(ids, found, strict=True)
    )


def test_lines_are_matched_by_faiss_id(mapped):
    ordered = sorted(OWN_LABELS.tolist())
    write_docs(mapped, [{"id": f"doc-{label}", "text": "t", "faiss_id": label} for label in ordered])
    store = open_store(mapped)
    assert read(store)[0] == [f"doc-{label}" for label in OWN_LABELS.tolist()]
    assert "by faiss_id" in store.info.details["documents"]


def test_faiss_id_comes_before_position(folder):
    write_docs(folder, [{"id": f"doc-{row}", "faiss_id": row} for row in reversed(range(COUNT))])
    assert read(open_store(folder))[0] == [f"doc-{row}" for row in range(COUNT)]


def test_labels_that_match_nothing_are_refused(mapped):
    write_docs(mapped, records(f"doc-{line}" for line in range(COUNT)))
    with pytest.raises(StoreError, match=f"the {COUNT} documents do not match .*faiss_id"):
        open_store(mapped)


def test_wrong_faiss_ids_are_refused_even_where_position_would_do(folder):
    write_docs(folder, [{"id": f"doc-{row}", "faiss_id": row + 1} for row in range(COUNT)])
    with pytest.raises(StoreError, match="faiss_id differs"):
        open_store(folder)


def test_numbers_that_are_not_written_as_labels_are_not_matched_by_value(folder):
    padded = [f"{row:03}" for row in reversed(range(COUNT))]
    write_docs(folder, records(padded))
    assert read(open_store(folder))[0] == padded


@pytest.mark.parametrize("count", [0, COUNT - 1, COUNT + 1])
def test_another_number_of_documents_is_refused(count, folder):
    write_docs(folder, records(f"doc-{line}" for line in range(count)))
    with pytest.raises(StoreError, match=f"has {count} documents for {COUNT} vectors"):
        open_store(folder)


def test_documents_come_back_whole_and_in_the_order_asked_for(folder):
    lines = [
        {"id": f"ü{line}", "text": f"zeile\n{line}", "metadata": {"page": line, "of": [1, None]}}
        for line in range(COUNT)
    ]
    write_docs(folder, lines)
    found = list(open_store(folder).documents(np.array([3, 399, 0])))
    assert found == [Document(f"ü{line}", f"zeile\n{line}", {"page": line, "of": [1, None]}) for line in (3, 399, 0)]


def test_missing_texts_are_told(folder):
    write_docs(folder, [{"id": f"doc-{line}"} if line else {"id": "x", "text": "here"} for line in range(COUNT)])
    info = open_store(folder).info
    assert info.has_texts
    assert any(f"{COUNT - 1} of {COUNT}" in note for note in info.notes)


def test_lines_without_any_text_are_no_texts(folder):
    write_docs(folder, [{"id": f"doc-{line}"} for line in range(COUNT)])
    store = open_store(folder)
    assert not store.info.has_texts
    assert read(store)[0][5] == "doc-5"
    with pytest.raises(StoreError, match="text"):
        list(store.documents())


def test_byte_order_mark_crlf_and_blank_lines_are_accepted(folder):
    lines = [json.dumps({"id": f"doc-{line}", "text": "t"}) for line in range(COUNT)]
    (folder / "docs.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n\r\n   \n".join(lines).encode() + b"\r\n\n")
    assert [document.id for document in open_store(folder).documents()] == [f"doc-{line}" for line in range(COUNT)]


def test_line_separators_of_unicode_do_not_split_lines(folder):
    lines = [json.dumps({"id": f"doc-{line}", "text": "a\u2028b\x85c"}, ensure_ascii=False) for line in range(COUNT)]
    write_docs(folder, lines)
    assert next(open_store(folder).documents()).text == "a\u2028b\x85c"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"{not json", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b"[" * 100_000, "not a JSON object"),
        (b'{"text": "no id"}', 'the "id" is no text but nothing'),
        (b'{"id": 7}', 'the "id" is no text but int 7'),
        (b'{"id": "x", "text": 7}', 'the "text" is no text but int 7'),
        (b'{"id": "x", "metadata": [1]}', 'the "metadata" are no object but list [1]'),
        (b'{"id": "x", "text": "\xff"}', "text in another encoding"),
        (b'{"id": "\\ud800"}', "half of a character"),
        (b'{"id": "x", "text": "\\uDC00"}', "half of a character"),
        (b'{"id": "doc-3"}', "duplicate id 'doc-3', the id of line 4"),
    ],
)
def test_bad_lines_are_refused_with_their_number(line, expected, folder):
    lines = [json.dumps({"id": f"doc-{number}"}).encode() for number in range(COUNT)]
    lines[20] = line
    (folder / "docs.jsonl").write_bytes(b"\n".join(lines))
    with pytest.raises(StoreError) as error:
        open_store(folder)
    assert "docs.jsonl:21: " in str(error.value)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def test_equal_hashes_alone_do_not_make_a_duplicate(folder, monkeypatch):
    monkeypatch.setattr(jsonl, "hash", lambda _: 1, raising=False)
    write_docs(folder, records(f"doc-{line}" for line in range(COUNT)))
    assert read(open_store(folder))[0] == [f"doc-{line}" for line in range(COUNT)]
    write_docs(folder, records(["doc-5", *(f"doc-{line}" for line in range(1, COUNT))]))
    with pytest.raises(StoreError, match=r"jsonl:6: .*'doc-5', the id of line 1"):
        open_store(folder)


def test_only_places_and_hashes_are_kept(folder):
    write_docs(folder, [{"id": f"doc-{line}", "text": "x" * 5000} for line in range(COUNT)])
    scan = scan_docs(folder / "docs.jsonl")
    kept = [scan.offsets, scan.sizes, scan.line_numbers, scan.hashes]
    assert scan.values is None
    assert scan.faiss_ids is None
    assert sum(column.nbytes for column in kept) == 32 * COUNT


def test_ids_of_batches_are_not_read_before_somebody_looks(folder, monkeypatch):
    write_docs(folder, records(f"doc-{line}" for line in range(COUNT)))
    store = open_store(folder)
    monkeypatch.setattr(store.source, "ids", lambda rows: pytest.fail(f"read {rows}"))
    assert sum(len(batch) for batch in store.scan(batch_size=64)) == COUNT


def test_ids_of_a_batch_are_a_sequence_like_any_other(folder):
    write_docs(folder, records(f"doc-{line}" for line in range(COUNT)))
    ids = next(open_store(folder).scan(batch_size=4)).ids
    assert ids == ["doc-0", "doc-1", "doc-2", "doc-3"]
    assert ids != ["doc-0"]
    assert (ids[1], ids[-1], ids[1:3], len(ids), "doc-2" in ids) == ("doc-1", "doc-3", ["doc-1", "doc-2"], 4, True)


def test_a_docs_file_that_changed_is_noticed(folder):
    write_docs(folder, records(f"doc-{line}" for line in range(COUNT)))
    store = open_store(folder)
    write_docs(folder, records(f"new-{line}" for line in range(COUNT + 1)))
    with pytest.raises(StoreError, match="changed while it was read"):
        next(iter(store.documents()))
