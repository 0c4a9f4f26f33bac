import json

import pytest

from migrate.datasets.records import read_query_log
from migrate.errors import DatasetError
from migrate.vectors import Query


def write(folder, content, name="log"):
    path = folder / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_plain_text_has_a_query_a_line_named_by_its_number(tmp_path):
    path = write(tmp_path, b"\xef\xbb\xbf  green tea \r\n\r\n \nblack tea")
    assert read_query_log(path) == (Query("1", "green tea"), Query("4", "black tea"))


def test_jsonl_has_ids_where_it_has_them(tmp_path):
    lines = [{"_id": "a", "text": "green tea", "metadata": {}}, {"id": 7, "text": "black tea"}, {"text": "tea"}]
    path = write(tmp_path, "\n".join(map(json.dumps, lines)))
    assert read_query_log(path) == (Query("a", "green tea"), Query("7", "black tea"), Query("3", "tea"))


def test_the_most_frequent_query_comes_first_and_each_once(tmp_path):
    path = write(tmp_path, "rare\noften\n often\nalso rare\noften")
    assert [(query.id, query.text) for query in read_query_log(path)] == [
        ("2", "often"), ("1", "rare"), ("4", "also rare"),
    ]  # fmt: skip


def test_ids_may_repeat_and_blank_queries_are_passed_over(tmp_path):
    lines = [{"id": "user", "text": "tea"}, {"id": "user", "text": " "}, {"id": "user", "text": "milk"}]
    path = write(tmp_path, "\n".join(map(json.dumps, lines)))
    assert [query.text for query in read_query_log(path)] == ["tea", "milk"]


@pytest.mark.parametrize("line", ["{tea", "[1, 2]", "42", '"tea"'])
def test_what_is_no_object_is_a_query_of_plain_text(line, tmp_path):
    assert read_query_log(write(tmp_path, line)) == (Query("1", line),)


@pytest.mark.parametrize(
    ("content", "name", "place", "message"),
    [
        ('{"text": "a"}\nplain', "log", ":2", "not a JSON object"),
        ("plain", "log.jsonl", ":1", "not a JSON object"),
        ('{"text": "a"}\n\n{"query": "b"}', "log", ":3", '"text" is missing, and should be a text'),
        ('{"text": 5}', "log", ":1", '"text" is a number, and should be a text'),
        ('{"_id": [], "text": "a"}', "log", ":1", "the id is a list"),
        (b"fine\ncaf\xe9", "log", ":2", "not UTF-8 (byte 0xe9 at column 4"),
        ('{"text": "\\ud83d"}', "log", ":1", "the text holds half a surrogate pair"),
        (None, "log", "", "no such file"),
        ("", "log", "", "the file has no queries"),
        (" \n\n", "log", "", "the file has no queries"),
        ('{"text": " "}', "log", "", "the file has no queries"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(content, name, place, message, tmp_path):
    path = write(tmp_path, content, name)
    with pytest.raises(DatasetError) as caught:
        read_query_log(path)
    assert str(caught.value).startswith(f"{path}{place}: {message}")
    assert "\n" not in str(caught.value)
