"""Queries to judge next: drawn by an audit, graded, and audited again, through the command."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from migrate.audit.drawn_queries import FLOOR
from migrate.audit.findings import alike_grades, one_sided, sampled
from migrate.audit.query_set import QuerySet
from migrate.audit.step import Audit
from migrate.datasets.graded import read_graded, seal_of
from migrate.errors import DatasetError
from migrate.search.runs import Rankings
from migrate.stores import open_store
from migrate.vectors import Query

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_words")]


@pytest.fixture
def audited(good, told):
    def audit(*options):
        return told(*good.right().command(*options), "--two-stage", "none", "--json", quiet=False)

    return audit


@pytest.fixture
def log(good):
    return good.beir / "queries.jsonl"


@pytest.fixture(scope="module")
def drawn_once(good, tmp_path_factory):
    """A file to grade, of queries of the log, which nobody writes to."""
    path = tmp_path_factory.mktemp("drawn") / "next.jsonl"
    stores = open_store(good.translated), open_store(good.reference)
    options = {"two_stage": (), "no_bm25": True, "judge_next": path}
    Audit(*stores, target=good.embedder, queries=good.beir / "queries.jsonl", **options).execute()
    return path


@pytest.fixture
def drawn(drawn_once, tmp_path):
    return Path(shutil.copy(drawn_once, tmp_path))


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def grade(path, qrels, count=None):
    records = read_lines(path)
    for record in records[:count]:
        for document in record["documents"]:
            document["grade"] = qrels[record["_id"]].get(document["_id"], 0)
    write_lines(path, records)
    return records


def grade_by(path, grade_of):
    """What a person does who does not read: `grade_of` is called with a query's place and a document's."""
    records = read_lines(path)
    for query, record in enumerate(records):
        for place, document in enumerate(record["documents"]):
            document["grade"] = int(grade_of(query, place))
    write_lines(path, records)
    return records


def make_beir(log, lines, folder):
    (folder / "qrels").mkdir(parents=True)
    (folder / "queries.jsonl").write_bytes(log.read_bytes())
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines, ""]))
    return folder


def as_beir(records, log, folder):
    lines = [f"{one['_id']}\t{d['_id']}\t{d['grade']}" for one in records for d in one["documents"]]
    return make_beir(log, lines, folder)


def test_queries_are_drawn_with_their_candidates_and_judge_when_they_are_graded(
    good, log, drawn_once, audited, tmp_path
):
    drawn = tmp_path / "next.jsonl"
    _, _, messages = audited("--queries", log, "--judge-next", drawn)
    assert "grade the documents of its" in messages and f"--judged {drawn}" in messages
    assert "replace each null by a whole number, 0 for not relevant" in messages
    assert drawn.read_bytes() == drawn_once.read_bytes()
    records = grade(drawn, good.qrels)
    chances = [record["chance"] for record in records]
    assert 20 < len(records) < len(good.queries)
    assert min(chances) == FLOOR < max(chances) <= 1
    ids = [[document["_id"] for document in record["documents"]] for record in records]
    assert all(10 <= len(one) <= 20 and one == sorted(one) for one in ids)
    assert all(document["text"] for record in records for document in record["documents"])
    _, evenly, _ = audited("--judged", good.beir)
    code, report, _ = audited("--judged", drawn)
    assert code in (0, 3) and report["reference"]["doubts"] == []
    assert report["verdict"]["queries"] == len(records)
    assert not report["verdict"]["provisional"]
    found, all_of_them = (one["verdict"]["retention"] for one in (report, evenly))
    assert 0.9 < found["lower"] < all_of_them["estimate"] < found["upper"]
    assert any("were drawn by what judgements could change; means are of all" in note for note in report["notes"])
    means, means_of_all = ({arm["name"]: arm["means"]["nDCG@10"] for arm in one["arms"]} for one in (report, evenly))
    assert means["full re-embed"] == pytest.approx(means_of_all["full re-embed"], abs=0.1)


def test_grades_that_are_all_alike_make_no_store_safe(log, drawn, audited, tmp_path):
    """Every ranking of them is perfect, whatever the store has lost."""
    records = grade_by(drawn, lambda query, place: 1)
    n = len(records)
    for judged in (drawn, as_beir(records, log, tmp_path / "beir")):
        code, report, _ = audited("--judged", judged)
        assert code == 3 and report["verdict"]["retention"]["lower"] > 0.9
        assert f"in {n} of {n} queries with relevant documents all candidates" in report["verdict"]["sentence"]
        assert report["recommendation"]["plan"] is None
        assert report["recommendation"]["command"][-2:] == ["--judged", "DIR"], "a file has no vectors of new queries"


def test_grades_for_most_queries_that_are_alike_hide_what_the_others_show(good, drawn, audited):
    honest = grade(drawn, good.qrels)
    grades = [[document["grade"] for document in record["documents"]] for record in honest]
    n = len(honest)
    grade_by(drawn, lambda query, place: 1 if query < 0.3 * n else grades[query][place])
    assert "all candidates have the same grade" not in str(audited("--judged", drawn)[1]["reference"]["doubts"])
    grade_by(drawn, lambda query, place: 1 if query < 0.75 * n else grades[query][place])
    code, report, _ = audited("--judged", drawn)
    assert code == 3 and "all candidates have the same grade" in report["verdict"]["sentence"]


@pytest.mark.parametrize("highest", [1, 2])
def test_grades_at_random_make_no_store_safe_and_no_more_of_them_would(highest, log, drawn, audited, tmp_path):
    rng = np.random.default_rng(5)
    records = grade_by(drawn, lambda query, place: rng.integers(highest + 1))
    for judged in (drawn, as_beir(records, log, tmp_path / "beir")):
        code, report, _ = audited("--judged", judged)
        assert code == 3 and "the grades look unrelated to the rankings" in report["verdict"]["sentence"]
        assert report["verdict"]["queries_needed"] is None
        assert report["recommendation"]["headline"].startswith("nothing is shown to be SAFE; clear up first: ")


def test_queries_that_were_drawn_for_another_store_have_wider_bounds(good, drawn, audited):
    grade(drawn, good.qrels)
    _, own, _ = audited("--judged", drawn)
    others = [{**line, "chance": max(line["chance"] - 0.01, FLOOR)} for line in read_lines(drawn)]
    write_lines(drawn, sealed([without(line, "place", "seal") for line in others]))
    _, other, _ = audited("--judged", drawn)
    assert any("drawn for other rankings" in note for note in other["notes"])
    assert other["verdict"]["retention"]["lower"] < own["verdict"]["retention"]["lower"]


def test_queries_that_are_judged_already_or_made_up_are_not_drawn(good, audited, tmp_path):
    path = tmp_path / "next.jsonl"
    for asked, why in (
        (("--judged", good.beir), "are judged already"),
        (("--queries", "synthetic"), "made from them; give --queries FILE"),
    ):
        code, report, messages = audited(*asked, "--judge-next", path)
        assert (code, report) == (2, None) and why in messages and not path.exists()


def test_what_was_drawn_judges_no_pool(good, drawn, audited):
    grade(drawn, good.qrels)
    code, report, messages = audited("--judged", drawn, "--reference", "pool")
    assert (code, report) == (2, None) and "which a pool lacks" in messages


def test_an_audit_that_settles_nothing_names_the_cheapest_way_on(good, log, drawn, audited, tmp_path):
    judged = (good.beir / "qrels" / "test.tsv").read_text().splitlines()
    code, _, messages = audited("--judged", make_beir(log, judged[1:26], tmp_path / "few"))
    assert code == 3 and "let the audit draw what to judge: --queries LOG --judge-next FILE" in messages
    grade(drawn, good.qrels, 19)
    code, _, messages = audited("--judged", drawn)
    assert code == 3 and "--judge-next" not in messages


def test_a_reordered_file_is_refused_by_the_command(good, drawn, audited):
    write_lines(drawn, reversed(grade(drawn, good.qrels)))
    code, report, messages = audited("--judged", drawn)
    assert (code, report) == (4, None) and "in the place of number 1 is the query" in messages
    assert messages.count("\n") == 1


LINE = {"_id": "q1", "text": "first", "chance": 0.5, "documents": [{"_id": "d1", "text": "", "grade": 1}]}


def other(**changes):
    return {**LINE, "_id": "q2", **changes}


def sealed(lines):
    """The lines as they would have been drawn."""
    before = ""
    for place, line in enumerate(lines, start=1):
        ids = [document["_id"] for document in line["documents"]] if isinstance(line["documents"], list) else []
        before = seal_of(before, Query(line["_id"], line["text"]), line["chance"] or 0, ids)
        yield {"place": place, "seal": before, **line}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([other(documents=[{"_id": "d1", "grade": None}]), LINE], "'q2' before it is not"),
        ([other(documents=[{"_id": "d1", "grade": 1}, {"_id": "d2", "grade": None}])], "'d2' is not a whole number"),
        ([other(documents=[{"_id": "d1", "grade": True}])], "'d1' is not a whole number"),
        ([other(documents=[{"_id": "d1", "grade": None}])], "no query is graded"),
        ([other(documents=[])], "no list of documents"),
        ([other(documents={"_id": "d1"})], "no list of documents"),
        ([other(chance=1e-320)], "the chance is not a number"),
        ([other(chance=1.5)], "the chance is not a number"),
        ([other(chance=None)], "the chance is not a number"),
        ([LINE, LINE], "appears twice"),
    ],
)
def test_files_that_were_not_graded_as_they_should_be_are_refused(lines, why, tmp_path):
    write_lines(tmp_path / "next.jsonl", sealed(lines))
    with pytest.raises(DatasetError, match=why):
        read_graded(tmp_path / "next.jsonl")


def test_grades_are_read_up_to_where_a_person_stopped(tmp_path):
    write_lines(tmp_path / "next.jsonl", sealed([LINE, other(documents=[{"_id": "d", "grade": None}])]))
    graded = read_graded(tmp_path / "next.jsonl")
    assert [query.id for query in graded.queries] == ["q1"]
    assert (graded.qrels, graded.chances, graded.ungraded) == ({"q1": {"d1": 1}}, {"q1": 0.5}, 1)


DRAWN = [
    {
        "_id": f"q{number}",
        "text": f"text {number}",
        "chance": 0.1 + number / 17,
        "documents": [{"_id": f"d{place}", "text": "", "grade": place % 2} for place in range(3)],
    }
    for number in range(8)
]


def without(record, *names):
    return {key: value for key, value in record.items() if key not in names}


def ungraded(record):
    return {**record, "documents": [{**one, "grade": None} for one in record["documents"]]}


def with_documents(record, change):
    return {**record, "documents": change(record["documents"])}


TAMPERED = {
    "two queries changed places": (lambda r: [*r[:2], r[3], r[2], *r[4:]], "the query that was drawn as number 4"),
    "sorted by chance": (lambda r: r[::-1], "the query that was drawn as number 8"),
    "the first one dropped": (lambda r: r[1:], "the query that was drawn as number 2"),
    "one in the middle dropped": (lambda r: [*r[:4], *r[5:]], "the query that was drawn as number 6"),
    "numbered anew after one was dropped": (
        lambda r: [{**one, "place": place} for place, one in enumerate([*r[:4], *r[5:]], start=1)],
        "'q5' is not as it was drawn",
    ),
    "graded from the middle on": (lambda r: [*map(ungraded, r[:3]), *r[3:]], "'q0' before it is not"),
    "a gap": (lambda r: [*r[:3], ungraded(r[3]), *r[4:]], "'q3' before it is not"),
    "a chance edited": (lambda r: [r[0], {**r[1], "chance": 1.0}, *r[2:]], "'q1' is not as it was drawn"),
    "a text edited": (lambda r: [{**r[0], "text": "easier"}, *r[1:]], "'q0' is not as it was drawn"),
    "a candidate dropped": (
        lambda r: [*r[:5], with_documents(r[5], lambda known: known[1:]), *r[6:]], "'q5' is not as it was drawn"
    ),
    "a candidate added": (
        lambda r: [*r[:5], with_documents(r[5], lambda known: [*known, {"_id": "mine", "grade": 3}]), *r[6:]],
        "'q5' is not as it was drawn",
    ),
    "the end of another draw": (
        lambda r: [*r[:4], *list(sealed([{**one, "text": "another"} for one in DRAWN]))[4:]],
        "'q4' is not as it was drawn",
    ),
    "written by an older version": (
        lambda r: [without(one, "seal", "place") for one in r], "the place or the seal of the query is missing"
    ),
    "a seal dropped": (lambda r: [*r[:7], without(r[7], "seal")], "the place or the seal of the query is missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERED)
def test_a_file_that_is_no_sample_any_more_is_refused(name, tmp_path):
    tamper, why = TAMPERED[name]
    write_lines(tmp_path / "next.jsonl", tamper(list(sealed(DRAWN))))
    with pytest.raises(DatasetError, match=why) as refused:
        read_graded(tmp_path / "next.jsonl")
    assert "\n" not in str(refused.value) and "; " in str(refused.value)


def test_a_file_that_an_editor_has_written_anew_is_read(tmp_path):
    """Other keys first, other escapes, blank lines, more digits; and what was left ungraded cut off, or texts of it."""
    records = [
        dict(reversed(record.items())) for record in sealed([{**one, "text": "é" + one["text"]} for one in DRAWN])
    ]
    path = tmp_path / "next.jsonl"
    for record in records:
        record["documents"] = [without(one, "text") for one in reversed(record["documents"])]
    lines = [json.dumps(record).replace(str(record["chance"]), f"{record['chance']:.17f}") for record in records]
    path.write_text("\n\n".join(lines[:6]) + "\n")
    graded = read_graded(path)
    assert [query.id for query in graded.queries] == [f"q{number}" for number in range(6)] and graded.ungraded == 0


RANKINGS = [Rankings({f"q{row}": tuple(f"d{place}" for place in range(12)) for row in range(40)})] * 2


def judged(grades_of):
    queries = tuple(Query(f"q{row}", f"text {row}") for row in range(40))
    return QuerySet(queries, {f"q{row}": grades_of(row) for row in range(40)}, "x")


def test_judgements_of_relevant_documents_alone_are_not_alike():
    """As in most BEIR sets: what is not judged is not relevant."""
    for grades_of in (
        lambda row: {"d3": 1},
        lambda row: {f"d{place}": 1 for place in range(9)},
        lambda row: {f"d{place}": 0 for place in range(9)},
        lambda row: {f"d{place}": 2 + place % 2 for place in range(10)},
        lambda row: {f"d{place}": row % 2 for place in range(9)} | {"d9": 1},
    ):
        assert alike_grades(judged(grades_of), RANKINGS) == []
    (doubt,) = alike_grades(judged(lambda row: {f"d{place}": 2 for place in range(10)} if row % 10 else {}), RANKINGS)
    assert doubt.text.startswith("in 36 of 36 queries with relevant documents")


def runs(own, full):
    return Rankings({f"q{row}": own(row) for row in range(40)}), Rankings({f"q{row}": full(row) for row in range(40)})


DIFFERENT = runs(lambda row: [f"d{i}" for i in range(10)], lambda row: [f"d{i}" for i in range(5, 15)])


@pytest.mark.parametrize(
    ("grades_of", "doubts"),
    [
        (lambda row: {"d2": 1}, 1),
        (lambda row: {f"d{i}": int(i == 7) for i in range(10)}, 1),  # shown, and one that both find clicked
        (lambda row: {"d12": 1}, 0),
        (lambda row: {f"d{i}": int(i == 7) for i in range(5, 15)}, 0),
        (lambda row: {"d2": 1} if row % 2 else {"d12": 1}, 0),
        (lambda row: {f"d{i}": int(i == (2 if row % 2 else 12)) for i in range(15)}, 0),
        (lambda row: {"d5": 1}, 0),  # both find it: the full re-embed higher up
        (lambda row: {"d2": 1} if row < 3 else {"d5": 1}, 1),
        (lambda row: {"d2": 1} if row < 3 else {"d5": 1} if row < 30 else {"far": 1}, 0),
    ],
)
def test_judgements_that_lie_with_one_ranking_are_doubted(grades_of, doubts):
    assert len(one_sided(judged(grades_of), *DIFFERENT)) == doubts


@pytest.mark.parametrize(
    ("in_sample", "elsewhere", "n_true", "is_safe", "doubts"),
    [
        (20, 0, 100, False, 1),
        (20, 0, 100, True, 0),
        (12, 8, 100, False, 1),
        (9, 11, 100, False, 0),
        (20, 0, 950, False, 0),
        (0, 20, 100, False, 0),
    ],
)
def test_judgements_of_the_sample_are_doubted(in_sample, elsewhere, n_true, is_safe, doubts):
    true = {f"d{row}" for row in range(n_true)}
    relevant = {*(f"d{row}" for row in range(in_sample)), *(f"d{999 - row}" for row in range(elsewhere))}
    assert len(sampled(relevant, true, 1_000, is_safe_without=is_safe)) == doubts
