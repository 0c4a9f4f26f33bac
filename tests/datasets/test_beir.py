from __future__ import annotations

import re
from pathlib import Path

import pytest

from migrate.datasets.beir import load_beir, write_beir
from migrate.errors import DatasetError, LeadMigrateError, OutputError, UsageError
from migrate.vectors import Document, Query

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"

CORPUS = (
    '{"_id": "d1", "title": "Cats", "text": "purr", "metadata": {"year": 1}}\n'
    '{"_id": "d2", "title": "", "text": "dogs bark"}\n'
    '{"_id": "d3", "text": "fish\u2028swim"}\n'
)
QUERIES = '{"_id": "q3", "text": "swim"}\n{"_id": "q1", "text": "purr"}\n{"_id": "q2", "text": "bark"}\n'
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td2\t1\n"


def beir_folder(root, *, corpus=CORPUS, queries=QUERIES, qrels=QRELS):
    folder = root / "toy"
    (folder / "qrels").mkdir(parents=True)
    for name, content in (("corpus.jsonl", corpus), ("queries.jsonl", queries), ("qrels/test.tsv", qrels)):
        if content is not None:
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def test_documents_are_title_and_text_and_judged_queries_keep_the_order_of_the_file(tmp_path):
    beir_set = load_beir(beir_folder(tmp_path))
    assert beir_set.name == "toy"
    cats = Document("d1", "Cats purr", {"year": 1, "title": "Cats"})
    for _ in range(2):  # they may be read again
        assert list(beir_set.documents()) == [cats, Document("d2", "dogs bark"), Document("d3", "fish\u2028swim")]
    assert beir_set.queries == (Query("q1", "purr"), Query("q2", "bark"))
    assert beir_set.qrels == {"q1": {"d1": 2, "d2": 0}, "q2": {"d2": 1}}


@pytest.mark.parametrize(
    "qrels",
    [
        "q1\td1\t2\nq1\td2\t0\nq2\td2\t1\n",
        "q1 0 d1 2\nq1 0 d2 0\nq2 0 d2 1\n",
        "q1\tQ0\td1\t2\nq1\tQ0\td2\t0\nq2\tQ0\td2\t1",
        "q1 d1 2.0\r\n\r\nq1 d2 0\r\n q2 d2 +1\r\n",
        b"\xef\xbb\xbfquery-id\tcorpus-id\tscore\r\nq1\td1\t2\r\n\r\nq1\td2\t0\r\nq2\td2\t1\r\n",
        "qid\tdocid\tgain\nq1\td1\t2\nq1\td2\t0\nq2\td2\t1\nq2\td2\t1\n",
        "number iteration doc rel\nq1 0 d1 2\nq1 0 d2 0\nq2 0 d2 1\n",
    ],
    ids=["no header", "TREC", "TREC with tabs", "CRLF and blanks", "BOM", "other header, repeated line", "TREC header"],
)
def test_the_same_judgements_are_read_from_every_accepted_spelling(tmp_path, qrels):
    assert load_beir(beir_folder(tmp_path, qrels=qrels)).qrels == {"q1": {"d1": 2, "d2": 0}, "q2": {"d2": 1}}


def test_ids_between_tabs_are_kept_to_the_byte(tmp_path):
    folder = beir_folder(tmp_path, queries='{"_id": " q 1", "text": "purr"}\n', qrels=" q 1\td 1 \t-1\n")
    beir_set = load_beir(folder)
    assert beir_set.qrels == {" q 1": {"d 1 ": -1}}
    assert beir_set.queries_without_relevant == (" q 1",)


def test_unknown_and_hopeless_queries_are_named(tmp_path):
    beir_set = load_beir(beir_folder(tmp_path, qrels="q1\td1\t0\nq9\td1\t1\nq2\td2\t1\nq8\td2\t1\n"))
    assert beir_set.unknown_query_ids == ("q9", "q8")
    assert set(beir_set.qrels) == {query.id for query in beir_set.queries} == {"q1", "q2"}
    assert beir_set.queries_without_relevant == ("q1",)


def test_integer_ids_become_decimal_strings(tmp_path):
    big = 12345678901234567890123
    corpus = f'{{"id": {big}, "text": "a"}}\n{{"_id": "07", "text": "b"}}\n'
    beir_set = load_beir(beir_folder(tmp_path, corpus=corpus, queries='{"_id": 1, "text": "x"}', qrels=f"1\t{big}\t1"))
    assert [document.id for document in beir_set.documents()] == [str(big), "07"]
    assert beir_set.qrels == {"1": {str(big): 1}}


def test_without_qrels_all_queries_count(tmp_path):
    folder = beir_folder(tmp_path, qrels=None)
    (folder / "qrels").rmdir()
    beir_set = load_beir(folder, split="whatever")
    assert beir_set.qrels is None
    assert [query.id for query in beir_set.queries] == ["q3", "q1", "q2"]


def test_a_folder_without_corpus_serves_queries_but_no_documents(tmp_path):
    beir_set = load_beir(beir_folder(tmp_path, corpus=None))
    assert len(beir_set.queries) == 2
    with pytest.raises(DatasetError, match=r"toy: the BEIR folder has no corpus\.jsonl"):
        list(beir_set.documents())


def test_a_missing_split_is_answered_with_those_there_are(tmp_path):
    folder = beir_folder(tmp_path)
    (folder / "qrels" / "dev.tsv").write_text(QRELS)
    with pytest.raises(DatasetError, match="there is no split 'train', but dev, test"):
        load_beir(folder, split="train")
    with pytest.raises(DatasetError, match="there is no split"):
        load_beir(folder, split="../qrels/test")
    with pytest.raises(DatasetError, match="no such folder; check the path of the BEIR folder"):
        load_beir(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"corpus": ""}, "corpus.jsonl: the file has no documents"),
        ({"corpus": "\n \r\n"}, "corpus.jsonl: the file has no documents"),
        ({"corpus": '{"_id": "a", "text": "x"\n'}, "corpus.jsonl:1: not a JSON object"),
        ({"corpus": "\n[1]\n"}, "corpus.jsonl:2: the line is a list, not a JSON object"),
        ({"corpus": "[" * 100_000}, "corpus.jsonl:1: not a JSON object (RecursionError)"),
        ({"corpus": '{"text": "x"}'}, "corpus.jsonl:1: the id is missing"),
        ({"corpus": '{"_id": null, "text": "x"}'}, "the id is null"),
        ({"corpus": '{"_id": true, "text": "x"}'}, "the id is a boolean"),
        ({"corpus": '{"_id": 1.5, "text": "x"}'}, "the id is a number"),
        ({"corpus": '{"_id": "", "text": "x"}'}, "the id is an empty text"),
        ({"corpus": '{"_id": "a"}'}, 'corpus.jsonl:1: "text" is missing'),
        ({"corpus": '{"_id": "a", "text": 3}'}, '"text" is a number'),
        ({"corpus": '{"_id": "a", "text": "x", "title": []}'}, '"title" is a list'),
        ({"corpus": '{"_id": "a", "text": "x", "metadata": "m"}'}, 'the "metadata" is a text, not an object'),
        ({"corpus": '{"_id": "a", "text": "\\ud83d"}'}, "the text holds half a surrogate pair (U+D83D)"),
        ({"corpus": CORPUS + '{"_id": "d1", "text": "x"}'}, "corpus.jsonl:4: the document id 'd1' appears twice"),
        ({"corpus": CORPUS.encode() + b'{"_id": "\xe9"}'}, "corpus.jsonl:4: not UTF-8 (byte 0xe9"),
        ({"queries": None}, "queries.jsonl: no such file"),
        ({"queries": "\n"}, "queries.jsonl: the file has no queries"),
        ({"queries": '{"_id": "q1", "text": " "}'}, "queries.jsonl:1: query 'q1' has a blank text"),
        ({"queries": QUERIES + '{"_id": "q1", "text": "x"}'}, "queries.jsonl:4: the query id 'q1' appears twice"),
        ({"queries": '{"_id": "q7", "text": "x"}'}, "none of the 2 queries that split 'test' judges"),
        ({"qrels": None}, "there is no split 'test', but no splits at all"),
        ({"qrels": "query-id\tcorpus-id\tscore\n"}, "test.tsv: the file has no judgements"),
        ({"qrels": "q1\td1\n"}, "is not query-id, corpus-id and score divided by tabs"),
        ({"qrels": "q1\t0\td1\t1\t7\n"}, "is not query-id, corpus-id and score divided by tabs"),
        ({"qrels": "q1\t\t1\n"}, "is not query-id, corpus-id and score divided by tabs"),
        ({"qrels": QRELS + "q2\td3\tyes\n"}, "test.tsv:5: the grade 'yes' is not a whole number"),
        ({"qrels": "q1\td1\tyes\n"}, "test.tsv:1: the grade 'yes' is not a whole number"),
        ({"qrels": QRELS + "q2\td3\t1000000000\n"}, "the grade '1000000000' is not a whole number of up to nine"),
        ({"qrels": QRELS + "q2\td3\t0.5\n"}, "test.tsv:5: the grade '0.5' is not a whole number"),
        ({"qrels": QRELS + "q2\td3\t9999999999\n"}, "is not a whole number"),
        ({"qrels": QRELS + "q1\td1\t1\n"}, "test.tsv:5: query 'q1' and document 'd1' have two grades, 2"),
        ({"qrels": QRELS + QRELS}, "test.tsv:5: the grade 'score' is not a whole number"),
    ],
)
def test_a_fault_is_one_line_with_place_expected_and_found(tmp_path, parts, message):
    folder = beir_folder(tmp_path, **parts)
    with pytest.raises(DatasetError) as caught:
        list(load_beir(folder).documents())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_the_system_refuses_to_read_is_no_fault_of_the_data(tmp_path, monkeypatch):
    folder = beir_folder(tmp_path)

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("migrate.files.os.open", refuse)
    with pytest.raises(OutputError, match=r"cannot read .*queries\.jsonl: Permission denied"):
        load_beir(folder)


def many_documents(root: Path, n: int) -> Path:
    corpus = "".join(f'{{"_id": "d{i}", "text": "text {i}"}}\n' for i in range(n))
    return beir_folder(root, corpus=corpus, qrels="q1\td90\t1\nq1\td5\t0\nq2\td50\t2\nq2\tgone\t1\n")


def test_a_cap_keeps_the_relevant_documents_and_the_order_of_the_corpus_and_draws_by_its_seed(tmp_path):
    folder = many_documents(tmp_path, 100)
    drawn = [[d.id for d in load_beir(folder, max_docs=10, seed=seed).documents()] for seed in (3, 3, 1)]
    numbers = [int(doc_id[1:]) for doc_id in drawn[0]]
    assert len(numbers) == 10 and {50, 90} < set(numbers) and numbers == sorted(numbers)
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(list(load_beir(folder, max_docs=20_000).documents())) == 100


def test_the_rest_under_a_cap_is_drawn_uniformly(tmp_path):
    folder = many_documents(tmp_path, 20 + 80)
    rows = [row for seed in range(200) for row in load_beir(folder, max_docs=12, seed=seed).kept_rows]
    drawn = [rows.count(row) for row in range(100) if row not in (50, 90)]
    # 200 draws of 10 among 98: mean 20.4, standard deviation 4.3
    assert min(drawn) >= 4
    assert max(drawn) <= 40
    assert rows.count(50) == rows.count(90) == 200


@pytest.mark.parametrize(
    ("max_docs", "message"), [(1, "max_docs: 1 is too few for the 2 relevant documents"), (0, "at least 1")]
)
def test_a_cap_without_room_is_refused(tmp_path, max_docs, message):
    with pytest.raises(UsageError, match=message):
        load_beir(many_documents(tmp_path, 100), max_docs=max_docs)


def test_what_is_written_is_read_again(tmp_path):
    documents = [Document("a\tb", "first\n\u2028text", {"title": "T", "n": [1]}), Document("é 2", "x")]
    queries = [Query("q:1", 'say "so"'), Query("q 2", "ü")]
    qrels = {"q:1": {"é 2": 3, "x": 0}, "q 2": {"é 2": 1}}
    write_beir(tmp_path / "out", documents, queries, qrels)
    beir_set = load_beir(tmp_path / "out")
    assert list(beir_set.documents()) == documents
    assert list(beir_set.queries) == queries
    assert beir_set.qrels == qrels


@pytest.mark.parametrize(
    ("documents", "qrels", "message"),
    [
        ([Document("a", "x")], {"q\t1": {"a": 1}}, "the id 'q\\t1' holds a tab or a line end"),
        ([Document("a", "x")], {"q": {"a\n": 1}}, "the id 'a\\n' holds a tab or a line end"),
        ([Document("a", "x", {"when": object()})], {"q": {"a": 1}}, "record 'a': cannot be written as JSON"),
        ([Document("a", "\ud83d")], {"q": {"a": 1}}, "record 'a': cannot be written as JSON"),
    ],
)
def test_what_a_beir_folder_cannot_spell_is_refused_and_leaves_nothing(tmp_path, documents, qrels, message):
    with pytest.raises(DatasetError, match=re.escape(message)):
        write_beir(tmp_path / "out", documents, [Query("q", "x")], qrels)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_replaced_only_by_force(tmp_path):
    queries, qrels = [Query("q", "x")], {"q": {"a": 1}}
    write_beir(tmp_path / "out", [Document("a", "one")], queries, qrels)
    with pytest.raises(LeadMigrateError, match="exists"):
        write_beir(tmp_path / "out", [Document("a", "two")], queries, qrels)
    assert [d.text for d in load_beir(tmp_path / "out").documents()] == ["one"]
    write_beir(tmp_path / "out", [Document("a", "two")], queries, qrels, force=True)
    assert [d.text for d in load_beir(tmp_path / "out").documents()] == ["two"]


@pytest.mark.skipif(not (SHARED / "scifact").is_dir(), reason="BEIR data are not here")
def test_counts_of_scifact_are_the_published_ones():
    test, train = (load_beir(SHARED / "scifact", split=split) for split in ("test", "train"))
    assert (len(test.queries), len(train.queries)) == (300, 809)
    assert sum(map(len, test.qrels.values())) == 339
    assert sum(1 for _ in test.documents()) == 5183
    assert {doc_id for grades in test.qrels.values() for doc_id in grades} <= {d.id for d in test.documents()}
    assert test.unknown_query_ids == test.queries_without_relevant == ()
