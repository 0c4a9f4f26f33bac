"""Queries to judge next: drawn by an audit, graded, and audited again, through the command."""

import json

import pytest

from migrate.audit.drawn_queries import FLOOR
from migrate.cli.main import run
from migrate.datasets.graded import read_graded
from migrate.errors import DatasetError

pytestmark = pytest.mark.slow


def audit(good, capsys, beir, *options):
    """Exit code, report where there is one, and the messages."""
    queries = ["--beir", beir] if beir else []
    arguments = [good.translated, "--reference", good.reference, "--target", good.target, *queries]
    code = run([*map(str, ["audit", *arguments]), "--no-bm25", "--two-stage", "none", "--json", *map(str, options)])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


@pytest.fixture
def drawn(good, tmp_path, capsys):
    """A file to grade, of the queries of the good migration without their judgements."""
    path = tmp_path / "next.jsonl"
    _, _, messages = audit(good, capsys, None, "--queries", good.beir / "queries.jsonl", "--judge-next", path)
    assert "grade the documents of its" in messages and f"--beir {path}" in messages
    return path


def grade(path, qrels, count=None):
    """What a person does who knows the judgements."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records[:count]:
        for document in record["documents"]:
            document["grade"] = qrels[record["_id"]].get(document["_id"], 0)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return records


def test_queries_are_drawn_with_their_candidates_and_judge_when_they_are_graded(good, drawn, capsys):
    records = grade(drawn, good.qrels)
    chances = [record["chance"] for record in records]
    assert 20 < len(records) < len(good.queries)
    assert min(chances) == FLOOR < max(chances) <= 1
    ids = [[document["_id"] for document in record["documents"]] for record in records]
    assert all(10 <= len(one) <= 20 and one == sorted(one) for one in ids)
    assert all(document["text"] for record in records for document in record["documents"])
    _, evenly, _ = audit(good, capsys, good.beir)
    _, report, _ = audit(good, capsys, drawn)
    assert report["verdict"]["queries"] == len(records)
    assert not report["verdict"]["provisional"]
    found, all_of_them = (one["verdict"]["retention"] for one in (report, evenly))
    assert found["lower"] < all_of_them["estimate"] < found["upper"]
    assert any("were drawn by what judgements could change; means are of all" in note for note in report["notes"])
    means = [
        next(arm["means"]["nDCG@10"] for arm in one["arms"] if arm["name"] == "full re-embed")
        for one in (report, evenly)
    ]
    assert means[0] == pytest.approx(means[1], abs=0.1)


def test_whoever_stops_early_has_judged_a_sample(good, drawn, capsys):
    grade(drawn, good.qrels, 30)
    _, report, _ = audit(good, capsys, drawn)
    assert report["verdict"]["queries"] == 30


def test_queries_that_were_drawn_for_another_store_have_wider_bounds(good, drawn, capsys):
    grade(drawn, good.qrels)
    lines = [json.loads(line) for line in drawn.read_text().splitlines()]
    _, own, _ = audit(good, capsys, drawn)
    drawn.write_text(
        "".join(json.dumps({**line, "chance": max(line["chance"] - 0.01, FLOOR)}) + "\n" for line in lines)
    )
    _, other, _ = audit(good, capsys, drawn)
    assert any("drawn for other rankings" in note for note in other["notes"])
    assert other["verdict"]["retention"]["lower"] < own["verdict"]["retention"]["lower"]


def test_queries_that_are_judged_already_are_not_drawn(good, tmp_path, capsys):
    code, report, messages = audit(good, capsys, good.beir, "--judge-next", tmp_path / "next.jsonl")
    assert (code, report) == (2, None)
    assert "are judged already" in messages and not (tmp_path / "next.jsonl").exists()
    code, report, messages = audit(
        good, capsys, None, "--queries", "synthetic", "--judge-next", tmp_path / "next.jsonl"
    )
    assert (code, report) == (2, None) and "made from them; give --queries FILE" in messages


def test_what_was_drawn_for_one_store_does_not_judge_a_frontier(good, drawn, capsys):
    grade(drawn, good.qrels)
    frontier = ("--frontier", "60%", "--source", good.source, "--stitch", good.stitch)
    code, report, messages = audit(good, capsys, drawn, *frontier)
    assert (code, report) == (2, None) and "were drawn to judge one store" in messages


def test_what_was_drawn_by_a_full_re_embed_does_not_judge_by_a_pool(good, drawn, capsys):
    grade(drawn, good.qrels)
    code, report, messages = audit(good, capsys, drawn, "--reference", "pool")
    assert (code, report) == (2, None) and "which a pool lacks" in messages


def test_an_audit_that_settles_nothing_names_the_cheapest_way_on(good, drawn, tmp_path, capsys):
    few = tmp_path / "few"
    (few / "qrels").mkdir(parents=True)
    (few / "queries.jsonl").write_bytes((good.beir / "queries.jsonl").read_bytes())
    lines = (good.beir / "qrels" / "test.tsv").read_text().splitlines(keepends=True)
    (few / "qrels" / "test.tsv").write_text("".join(lines[:26]))
    code, _, messages = audit(good, capsys, few)
    assert code == 3 and "let the audit draw what to judge: --queries LOG --judge-next FILE" in messages
    grade(drawn, good.qrels, 19)
    code, _, messages = audit(good, capsys, drawn)
    assert code == 3 and "--judge-next" not in messages


LINE = {"_id": "q1", "text": "first", "chance": 0.5, "documents": [{"_id": "d1", "text": "", "grade": 1}]}


def other(**changes):
    return {**LINE, "_id": "q2", **changes}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([other(documents=[{"_id": "d1", "grade": None}]), LINE], "'q2' before it is not"),
        ([other(documents=[{"_id": "d1", "grade": 1}, {"_id": "d2", "grade": None}])], "'d2' is no whole number"),
        ([other(documents=[{"_id": "d1", "grade": True}])], "'d1' is no whole number"),
        ([other(documents=[{"_id": "d1", "grade": None}])], "no query is graded"),
        ([other(documents=[])], "no list of documents"),
        ([other(documents={"_id": "d1"})], "no list of documents"),
        ([other(chance=1e-320)], "the chance is no number"),
        ([other(chance=1.5)], "the chance is no number"),
        ([other(chance=None)], "the chance is no number"),
        ([LINE, LINE], "appears twice"),
    ],
)
def test_files_that_were_not_graded_as_they_should_be_are_refused(lines, why, tmp_path):
    path = tmp_path / "next.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(DatasetError, match=why):
        read_graded(path)


def test_grades_are_read_up_to_where_a_person_stopped(tmp_path):
    path = tmp_path / "next.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (LINE, other(documents=[{"_id": "d", "grade": None}]))))
    graded = read_graded(path)
    assert [query.id for query in graded.queries] == ["q1"]
    assert (graded.qrels, graded.chances) == ({"q1": {"d1": 1}}, {"q1": 0.5})
