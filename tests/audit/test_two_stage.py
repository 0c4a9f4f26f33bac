import numpy as np
import pytest
from topics import DOCUMENTS, N_DOCUMENTS, N_QUERIES, QRELS, QUERIES, TARGET, audit, halves, make_store, noisy, shown

from migrate.audit.arms import WITHOUT_TWO_STAGE
from migrate.audit.document import report_of
from migrate.audit.results import BM25, FULL, HYBRID, HYBRID_FULL, MEAN, RANDOM, TRANSLATED
from migrate.cost.count import count_texts

pytestmark = pytest.mark.slow

ARMS = [FULL, TRANSLATED, HYBRID, HYBRID_FULL, BM25, MEAN, RANDOM, "two-stage 20", "two-stage 100"]
TRUTH = TARGET.embed_documents(DOCUMENTS).astype(float)
ASKED = TARGET.embed_queries(QUERIES).astype(float)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("full") / "reference")


@pytest.fixture(scope="module")
def translated(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("new") / "translated", vectors=noisy(1.0))


def brute(depth):
    """Each query's first `depth` of the noisy vectors, in the order of the true ones."""
    firsts = np.argsort(-(ASKED @ noisy(1.0).T), axis=1)[:, :depth]
    return [first[np.argsort(-TRUTH[first] @ asked)] for first, asked in zip(firsts, ASKED, strict=True)]


@pytest.mark.parametrize("depth", [1, 7, 50])
def test_the_first_documents_are_ranked_by_their_true_vectors(depth, translated, reference):
    arm = audit(translated, reference, two_stage=[depth]).arm(f"two-stage {depth}")
    full = np.argsort(-(ASKED @ TRUTH.T), axis=1)
    shares = [len(set(mine[:10]) & set(best[:10])) / 10 for mine, best in zip(brute(depth), full, strict=True)]
    assert arm.scores["overlap@10"].tolist() == pytest.approx(shares)
    relevant = [{doc_id for doc_id, grade in QRELS[query.id].items() if grade} for query in QUERIES]
    first = [
        next((1 / rank for rank, row in enumerate(mine[:10], 1) if DOCUMENTS[row].id in wanted), 0)
        for mine, wanted in zip(brute(depth), relevant, strict=True)
    ]
    assert arm.scores["MRR@10"].tolist() == pytest.approx(first)


def test_more_documents_come_nearer_to_the_full_re_embed(translated, reference):
    report = audit(translated, reference, two_stage=[20, 100])
    assert [arm.name for arm in report.arms] == ARMS
    kept = [report.arm(name).mean("overlap@10") for name in (TRANSLATED, "two-stage 20", "two-stage 100", FULL)]
    assert kept == sorted(kept) and kept[0] < kept[1] < kept[2]
    assert "two-stage 100" in report.comparisons
    names = [arm.name for arm in audit(translated, reference, two_stage=[N_DOCUMENTS, 149, 149, 500]).arms]
    assert [name for name in names if "stage" in name] == ["two-stage 149"], "what embeds the whole store is no arm"


def test_a_document_is_paid_for_once(translated, reference):
    found = audit(translated, reference, two_stage=[7], price=10.0).arm("two-stage 7").reranking
    embedded = set(np.concatenate(brute(7)).tolist())
    tokens = count_texts((DOCUMENTS[row] for row in embedded), TARGET.profile).tokens_read
    assert found.documents_per_query == pytest.approx(len(embedded) / N_QUERIES)
    assert found.tokens_per_query == pytest.approx(tokens / N_QUERIES)
    assert found.tokens_first == pytest.approx(7 * tokens / len(embedded))
    assert found.usd_per_query == pytest.approx(found.tokens_per_query * 1e-5)
    assert found.usd_first == pytest.approx(found.tokens_first * 1e-5)
    assert found.cached_share == pytest.approx(len(embedded) / N_DOCUMENTS)
    assert found.documents_per_query < 7, "a document is paid for once"
    rows, times = np.unique(np.concatenate(brute(7)), return_counts=True)
    assert found.tokens_further == pytest.approx(tokens / N_QUERIES * (times == 1).sum() / len(rows))
    assert 0 < found.tokens_further < found.tokens_per_query and found.usd_further < found.usd_per_query


def test_the_cost_stands_in_the_report(translated, reference):
    report = audit(translated, reference, two_stage=[7])
    assert "two-stage 7 embeds 7 documents" in shown(report)
    assert "$" not in shown(report), "no price is known"
    documents = {arm["name"]: arm for arm in report_of(report).document["arms"]}
    assert documents["two-stage 7"]["reranking"]["depth"] == 7
    assert "reranking" not in documents[TRANSLATED]


def test_documents_are_found_by_id_and_a_reference_of_other_chunks_has_none_to_find(translated, reference, tmp_path):
    turned = make_store(tmp_path / "turned", documents=DOCUMENTS[::-1])
    one, other = (audit(translated, store, two_stage=[7]).arm("two-stage 7") for store in (reference, turned))
    assert one.scores["overlap@10"].tolist() == other.scores["overlap@10"].tolist()
    report = audit(translated, make_store(tmp_path / "chunks", documents=halves()), two_stage=[7])
    assert not any("stage" in arm.name for arm in report.arms)
    assert report.skipped_arms["two-stage"] == WITHOUT_TWO_STAGE
