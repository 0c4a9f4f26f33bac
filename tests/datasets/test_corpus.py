from __future__ import annotations

import pytest

from migrate.datasets.records import read_corpus
from migrate.errors import DatasetError
from migrate.vectors import Document


def test_both_spellings_of_the_id_are_read_and_other_keys_are_not(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"id": "a", "text": " x ", "url": "u"}\r\n\r\n'
        b'{"_id": "b", "id": "c", "title": "T", "text": "", "metadata": null}\r\n'
    )
    assert list(read_corpus(path)) == [Document("a", "x"), Document("b", "T", {"title": "T"})]


def test_a_corpus_is_streamed(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "a", "text": "x"}\n{"id": "b"}\n')
    documents = read_corpus(path)
    assert next(documents).id == "a"
    with pytest.raises(DatasetError, match=r"corpus\.jsonl:2"):
        next(documents)


def test_a_missing_file_is_refused_at_once(tmp_path):
    with pytest.raises(DatasetError, match="no such file; give a JSONL file of documents"):
        read_corpus(tmp_path / "nowhere.jsonl")
    with pytest.raises(DatasetError, match="no such file; give a JSONL file of documents"):
        read_corpus(tmp_path)
