import numpy as np
import pytest
from topics import DOCUMENTS, QRELS, QUERIES, TARGET, UNJUDGED, audit, make_store, noisy

from migrate.audit.measures import ndcg
from migrate.audit.query_set import QuerySet
from migrate.audit.results import TRANSLATED
from migrate.search.runs import search
from migrate.stores import open_store
from migrate.vectors import Batch

TRUE = np.arange(0, 150, 2)


def patched(folder, true=TRUE):
    """A noisy store whose every other document has its true vector, and says so."""
    vectors = noisy(2.0)
    vectors[true] = TARGET.embed_documents(DOCUMENTS)[true]
    store = make_store(folder, vectors=vectors)
    confidence = np.full(150, 0.7, dtype="<f4")
    confidence[true] = 1
    np.save(folder / "confidence.npy", confidence)
    return store


@pytest.fixture
def reference(tmp_path):
    return make_store(tmp_path / "reference")


def test_true_documents_are_taken_out_of_stores_and_judgements(reference, tmp_path):
    report = audit(patched(tmp_path / "translated"), reference)
    found = report.examination.held_out
    gone = {DOCUMENTS[row].id for row in TRUE}
    left = {q: {d: g for d, g in grades.items() if d not in gone} for q, grades in QRELS.items()}
    asked = [query for query in QUERIES if any(left[query.id].values())]
    assert (found.documents, found.queries) == (75, len(asked))
    assert found.relevant == len({d for grades in QRELS.values() for d, g in grades.items() if g} & gone)
    rows = [row for row in range(150) if row not in set(TRUE.tolist())]
    ids = [DOCUMENTS[row].id for row in rows]
    means = []
    for vectors in (noisy(2.0), TARGET.embed_documents(DOCUMENTS)):
        run = search([Batch(ids, vectors[rows])], [q.id for q in asked], TARGET.embed_queries(asked), metric="ip")
        means.append(ndcg(run, left, [q.id for q in asked], 10).mean())
    assert found.verdict.retention.estimate == pytest.approx(means[0] / means[1])
    assert found.verdict.retention != report.comparisons[TRANSLATED].retention
    assert "75 documents that have true vectors" in found.sentence


def test_without_judgements_agreement_is_taken_of_what_is_left(reference, tmp_path):
    found = audit(patched(tmp_path / "translated"), reference, UNJUDGED).examination.held_out
    assert (found.documents, found.relevant, found.queries) == (75, 0, len(QUERIES))
    assert found.verdict.scale.provisional
    assert f"{found.verdict.outcome}, agreement@10 0." in found.sentence
    assert 0 < found.verdict.retention.estimate < 1


@pytest.mark.parametrize("true", [np.arange(0), np.arange(150)])
def test_there_is_nothing_to_hold_out_where_none_or_all_are_true(true, reference, tmp_path):
    store = patched(tmp_path / "translated", true)
    assert audit(store, reference).examination.held_out is None
    (store.folder / "confidence.npy").unlink()
    assert audit(store, reference).examination.held_out is None, "nothing says which are true"


def test_documents_whose_vectors_equal_those_of_the_reference_have_true_ones(reference, tmp_path):
    """Nothing says which are true, nor who chose them."""
    store = patched(tmp_path / "translated")
    (store.folder / "confidence.npy").unlink()
    doubts = audit(open_store(store.folder), reference, margin=0.5).examination.doubts
    assert any(doubt.startswith("75 documents have true vectors") for doubt in doubts)


def test_queries_whose_only_relevant_document_is_gone_are_not_asked(reference, tmp_path):
    qrels = {**QRELS, "q0": {"d000": 1}, "q1": {"d001": 1, "d000": 2}, "q3": {"d003": 0}}
    found = audit(patched(tmp_path / "translated"), reference, QuerySet(QUERIES, qrels, "few")).examination.held_out
    gone = {DOCUMENTS[row].id for row in TRUE}  # those of even topics
    relevant = {doc_id for grades in qrels.values() for doc_id, grade in grades.items() if grade}
    assert (found.queries, found.relevant) == (29, len(relevant & gone))
