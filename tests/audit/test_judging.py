"""Judgements that say nothing of a store, in audits through the command, and by the functions that find them."""

import numpy as np
import pytest

from migrate.audit.findings import alike_grades, one_sided, sampled
from migrate.audit.query_set import QuerySet
from migrate.datasets.beir import write_beir
from migrate.search.runs import Rankings, search
from migrate.stores import open_store
from migrate.vectors import Query

pytestmark = pytest.mark.slow

N_JUDGED = 120


@pytest.fixture
def audited(good, told):
    def audit(*options):
        return told(*good.right().command(*options), "--two-stage", "none", "--json", quiet=False)

    return audit


@pytest.fixture(scope="module")
def candidates(good):
    """The first documents of both rankings for some queries, by query id, as a person is shown them."""
    queries = good.queries[:N_JUDGED]
    vectors = good.model([query.text for query in queries])
    ids = [query.id for query in queries]
    stores = [open_store(path) for path in (good.translated, good.reference)]
    runs = [search(store.scan(), ids, vectors, metric=store.info.metric) for store in stores]
    return {query_id: sorted({doc_id for run in runs for doc_id in run.top(query_id, 10)}) for query_id in ids}


@pytest.fixture
def graded(good, candidates, tmp_path):
    """Writes what a person does who does not read: `grade_of` is called with a query's place and a document's."""

    def write(grade_of):
        folder = tmp_path / "graded"
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        (folder / "queries.jsonl").write_bytes((good.beir / "queries.jsonl").read_bytes())
        lines = [
            f"{query_id}\t{doc_id}\t{int(grade_of(query, place))}"
            for query, (query_id, doc_ids) in enumerate(candidates.items())
            for place, doc_id in enumerate(doc_ids)
        ]
        (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines, ""]))
        return folder

    return write


def test_grades_that_are_all_alike_make_no_store_safe(graded, audited):
    """Every ranking of them is perfect, whatever the store has lost."""
    code, report, _ = audited("--judged", graded(lambda query, place: 1))
    assert code == 3 and report["verdict"]["retention"]["lower"] > 0.9
    said = f"in {N_JUDGED} of {N_JUDGED} queries with relevant documents all candidates"
    assert said in report["verdict"]["sentence"]
    assert report["recommendation"]["plan"] is None
    assert report["recommendation"]["command"][-2:] == ["--judged", "DIR"], "a file has no vectors of new queries"


@pytest.mark.parametrize("count", [1, 3, 10])
def test_a_few_judged_queries_are_told_before_anything_is_embedded_and_are_the_only_cause(count, good, told, tmp_path):
    queries = good.queries[:count]
    write_beir(tmp_path / "few", good.documents, queries, {query.id: good.qrels[query.id] for query in queries})
    code, report, said = told(*good.by_pool().command("--judged", tmp_path / "few"), "--json", quiet=False)
    few = "1 query" if count == 1 else f"{count} queries"
    assert code == 3 and f"{few} cannot settle a verdict, which needs at least 20" in said
    assert report["reference"]["doubts"] == []
    assert f"{few} {'is' if count == 1 else 'are'} too few for a verdict" in report["verdict"]["sentence"]


def test_grades_for_most_queries_that_are_alike_hide_what_the_others_show(good, candidates, graded, audited):
    honest = [[good.qrels[query_id].get(doc_id, 0) for doc_id in doc_ids] for query_id, doc_ids in candidates.items()]
    few = graded(lambda query, place: 1 if query < 0.3 * N_JUDGED else honest[query][place])
    assert "all candidates have the same grade" not in str(audited("--judged", few)[1]["reference"]["doubts"])
    most = graded(lambda query, place: 1 if query < 0.75 * N_JUDGED else honest[query][place])
    code, report, _ = audited("--judged", most)
    assert code == 3 and "all candidates have the same grade" in report["verdict"]["sentence"]


@pytest.mark.parametrize("highest", [1, 2])
def test_grades_at_random_make_no_store_safe_and_no_more_of_them_would(highest, graded, audited):
    rng = np.random.default_rng(5)
    code, report, _ = audited("--judged", graded(lambda query, place: rng.integers(highest + 1)))
    assert code == 3 and "the grades look unrelated to the rankings" in report["verdict"]["sentence"]
    assert report["verdict"]["queries_needed"] is None
    assert report["recommendation"]["headline"].startswith("nothing is shown to be SAFE; clear up first: ")


def test_a_graded_file_of_an_earlier_version_is_refused_in_one_line(good, audited, tmp_path):
    path = tmp_path / "next.jsonl"
    path.write_text('{"place": 1, "_id": "q", "text": "t", "chance": 1.0, "documents": [{"_id": "d", "grade": 1}]}\n')
    code, report, messages = audited("--judged", path)
    assert (code, report) == (4, None) and messages.count("\n") == 1
    assert f"{path} is a file, where --judged takes a BEIR folder; " in messages
    assert "the commit 0a3df1b0" in messages


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
