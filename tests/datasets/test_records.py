"""Documents, labels and query logs in files of lines."""

from __future__ import annotations

import json

import pytest

from migrate.datasets.records import read_corpus, read_labels, read_query_log
from migrate.errors import DatasetError
from migrate.vectors import Document, Query


@pytest.fixture
def write(tmp_path):
    def make(name, content):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def json_lines(*records):
    return "\n".join(map(json.dumps, records))


def test_both_spellings_of_an_id_are_read_and_other_keys_of_a_document_are_not(write):
    path = write(
        "corpus.jsonl",
        b'\xef\xbb\xbf{"id": "a", "text": " x ", "url": "u"}\r\n\r\n'
        b'{"_id": "b", "id": "c", "title": "T", "text": "", "metadata": null}\r\n',
    )
    assert list(read_corpus(path)) == [Document("a", "x"), Document("b", "T", {"title": "T"})]


def test_a_corpus_is_streamed(write):
    documents = read_corpus(write("corpus.jsonl", '{"id": "a", "text": "x"}\n{"id": "b"}\n'))
    assert next(documents).id == "a"
    with pytest.raises(DatasetError, match=r"corpus\.jsonl:2"):
        next(documents)


@pytest.mark.parametrize("name", ["nowhere.jsonl", "."])
def test_a_missing_corpus_is_refused_at_once(name, tmp_path):
    with pytest.raises(DatasetError, match="no such file; give a JSONL file of documents"):
        read_corpus(tmp_path / name)


LABELS = '{"_id": "d1", "label": "cats"}\n{"id": "d2", "label": "dogs and others"}\n\n{"id": 3, "label": 7}\n'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("l.jsonl", LABELS),
        ("l.tsv", "doc_id\tlabel\nd1\tcats\r\nd2\tdogs and others\n3\t7"),
        ("l.csv", '\ufeffid,label\nd1,"cats"\nd2,dogs and others\n3,7\n'),
        ("l.csv", "d1,cats\nd2,dogs and others\n3,7\n"),
    ],
)
def test_labels_are_read_from_lines_of_json_and_tables(write, name, content):
    assert read_labels(write(name, content)) == {"d1": "cats", "d2": "dogs and others", "3": "7"}


def test_commas_between_quotes_belong_to_the_label(write):
    assert read_labels(write("l.csv", '"a, b",c\n')) == {"a, b": "c"}


def test_a_log_of_plain_text_has_a_query_a_line_named_by_its_number(write):
    path = write("log", b"\xef\xbb\xbf  green tea \r\n\r\n \nblack tea")
    assert read_query_log(path) == (Query("1", "green tea"), Query("4", "black tea"))


def test_a_log_of_json_has_ids_where_it_has_them(write):
    lines = [{"_id": "a", "text": "green tea", "metadata": {}}, {"id": 7, "text": "black tea"}, {"text": "tea"}]
    expected = (Query("a", "green tea"), Query("7", "black tea"), Query("3", "tea"))
    assert read_query_log(write("log", json_lines(*lines))) == expected


def test_the_most_frequent_query_comes_first_and_each_once(write):
    found = read_query_log(write("log", "rare\noften\n often\nalso rare\noften"))
    assert [(query.id, query.text) for query in found] == [("2", "often"), ("1", "rare"), ("4", "also rare")]


def test_ids_of_queries_may_repeat_and_blank_queries_are_passed_over(write):
    lines = [{"id": "user", "text": text} for text in ("tea", " ", "milk")]
    assert [query.text for query in read_query_log(write("log", json_lines(*lines)))] == ["tea", "milk"]


@pytest.mark.parametrize("line", ["{tea", "[1, 2]", "42", '"tea"'])
def test_what_is_no_object_is_a_query_of_plain_text(line, write):
    assert read_query_log(write("log", line)) == (Query("1", line),)


@pytest.mark.parametrize(
    ("read", "name", "content", "message"),
    [
        (read_query_log, "log", '{"text": "a"}\nplain', ":2: not a JSON object"),
        (read_query_log, "log.jsonl", "plain", ":1: not a JSON object"),
        (read_query_log, "log", '{"text": "a"}\n\n{"query": "b"}', ':3: "text" is missing, and should be a text'),
        (read_query_log, "log", '{"text": 5}', ':1: "text" is a number, and should be a text'),
        (read_query_log, "log", '{"_id": [], "text": "a"}', ":1: the id is a list"),
        (read_query_log, "log", b"fine\ncaf\xe9", ":2: not UTF-8 (byte 0xe9 at column 4"),
        (read_query_log, "log", '{"text": "\\ud83d"}', ":1: the text holds half a surrogate pair"),
        (read_query_log, "log", None, ": no such file"),
        (read_query_log, "log", "", ": the file has no queries"),
        (read_query_log, "log", " \n\n", ": the file has no queries"),
        (read_query_log, "log", '{"text": " "}', ": the file has no queries"),
        (read_labels, "l.tsv", "d1 cats\n", ":1: 'd1 cats' is not id and label with a tab"),
        (read_labels, "l.csv", "d1,cats,2\n", ":1: 'd1,cats,2' is not id and label with a comma"),
        (read_labels, "l.tsv", "d1\tcats\nd2\t\n", "is not id and label"),
        (read_labels, "l.tsv", "d1\tcats\nd1\tdogs\n", "two labels, 'cats' and 'dogs'"),
        (read_labels, "l.jsonl", '{"id": "d1"}\n', 'the "label" is none, not a text'),
        (read_labels, "l.jsonl", '{"id": "d1", "label": ["x"]}\n', "is a list, not a text"),
        (read_labels, "l.tsv", "id\tlabel\n", "the file has no labels"),
        (read_labels, "l.tsv", None, ": no such file"),
    ],
)
def test_what_is_wrong_is_told_in_a_line_with_its_place(read, name, content, message, write):
    path = write(name, content)
    with pytest.raises(DatasetError) as caught:
        read(path)
    said = str(caught.value)
    assert said.startswith(str(path)) and "\n" not in said
    assert said.removeprefix(str(path)).startswith(message) if message.startswith(":") else message in said
