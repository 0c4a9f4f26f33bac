import pytest

from migrate.datasets.records import read_labels
from migrate.errors import DatasetError

EXPECTED = {"d1": "cats", "d2": "dogs and others", "3": "7"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "l.jsonl",
            '{"_id": "d1", "label": "cats"}\n{"id": "d2", "label": "dogs and others"}\n\n{"id": 3, "label": 7}\n',
        ),
        ("l.tsv", "doc_id\tlabel\nd1\tcats\r\nd2\tdogs and others\n3\t7"),
        ("l.csv", '\ufeffid,label\nd1,"cats"\nd2,dogs and others\n3,7\n'),
        ("l.csv", "d1,cats\nd2,dogs and others\n3,7\n"),
    ],
)
def test_labels_are_read_from_lines_of_json_and_tables(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content, newline="")
    assert read_labels(path) == EXPECTED


def test_commas_between_quotes_belong_to_the_field(tmp_path):
    path = tmp_path / "l.csv"
    path.write_text('"a, b",c\n')
    assert read_labels(path) == {"a, b": "c"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("l.tsv", "d1 cats\n", "l.tsv:1: 'd1 cats' is not id and label with a tab"),
        ("l.csv", "d1,cats,2\n", "l.csv:1: 'd1,cats,2' is not id and label with a comma"),
        ("l.tsv", "d1\tcats\nd2\t\n", "is not id and label"),
        ("l.tsv", "d1\tcats\nd1\tdogs\n", "two labels, 'cats' and 'dogs'"),
        ("l.jsonl", '{"id": "d1"}\n', 'the "label" is none, not a text'),
        ("l.jsonl", '{"id": "d1", "label": ["x"]}\n', "is a list, not a text"),
        ("l.tsv", "id\tlabel\n", "the file has no labels"),
        ("l.tsv", None, "no such file"),
    ],
)
def test_what_is_no_label_is_refused_with_its_place(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(DatasetError) as caught:
        read_labels(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
