"""The arms of a translated store and the old one together, against loops in numpy."""

from dataclasses import replace

import numpy as np
import pytest
from topics import DOCUMENTS, QRELS, QUERIES, SOURCE, SOURCE_DIM, TARGET, Topics, audit, make_store, noisy, shown

from migrate.audit.locations import locations_of
from migrate.audit.results import TRANSLATED
from migrate.embedders import load_embedder
from migrate.errors import UsageError

pytestmark = pytest.mark.slow


class Alike(Topics):
    """An old model that finds much of what the target finds."""

    @property
    def identity(self):
        return replace(super().identity, spec="alike")

    def _one(self, text, role):
        """The target's vector, and as much of another topics model of `blur` as is said."""
        return TARGET._one(text, role) + self.blur * super()._one(text, role)


STRANGER, SOURCE = SOURCE, Alike(seed=1, blur=0.4)
IDS = np.array([document.id for document in DOCUMENTS])
TRUTH = TARGET.embed_documents(DOCUMENTS).astype(float)
ASKED = TARGET.embed_queries(QUERIES).astype(float)
OLD = SOURCE.embed_documents(DOCUMENTS).astype(float)
ASKED_OLD = SOURCE.embed_queries(QUERIES).astype(float)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A translated store, a full re-embed and the old store."""
    folder = tmp_path_factory.mktemp("stores")
    translated = make_store(folder / "translated", vectors=noisy(1.0))
    return translated, make_store(folder / "reference"), make_store(folder / "old", SOURCE)


@pytest.fixture
def judge(stores):
    translated, reference, old = stores

    def run(by=reference, **options):
        return audit(translated, by, source=old, source_model=SOURCE, **options)

    return run


def fused(depth):
    """The rows of each query by the sum of 1 / (60 + rank) over the first `depth` of both stores."""
    new, old = (
        np.argsort(-(asked @ vectors.T), axis=1)[:, :depth]
        for asked, vectors in ((ASKED, noisy(1.0).astype(float)), (ASKED_OLD, OLD))
    )
    for first, other in zip(new, old, strict=True):
        scores = np.zeros(len(DOCUMENTS))
        for ranking in (first, other):
            scores[ranking] += 1 / (60 + np.arange(1, depth + 1))
        yield np.lexsort((IDS, -scores))[: np.count_nonzero(scores)]


def ndcg(rows, query):
    gains = [QRELS[query.id].get(IDS[row], 0) for row in rows[:10]]
    ideal = sorted(QRELS[query.id].values(), reverse=True)[:10]
    discounts = 1 / np.log2(np.arange(2, 12))
    return np.dot(gains, discounts[: len(gains)]) / np.dot(ideal, discounts[: len(ideal)])


def test_ranks_of_both_stores_are_fused(judge):
    report = judge()
    scores = [ndcg(rows, query) for rows, query in zip(fused(100), QUERIES, strict=True)]
    assert report.arm("together").mean("nDCG@10") == pytest.approx(np.mean(scores))
    assert report.arm("together").tokens == report.arm(TRANSLATED).tokens == 0, "nothing is embedded for it"
    assert "together" in report.family and "together 20" not in report.family
    assert report.arm("together").meaning.endswith("two query embeddings")


def test_ranks_of_an_old_model_that_finds_less_than_the_translation_do_not_count(stores, tmp_path):
    translated, reference, _ = stores
    report = audit(translated, reference, source=make_store(tmp_path / "old", STRANGER), source_model=STRANGER)
    assert (
        report.arm("together").mean("nDCG@10")
        == report.arm(TRANSLATED).mean("nDCG@10")
        != report.arm("stay").mean("nDCG@10")
    )


def test_the_reference_does_not_teach_the_weight_that_it_judges(stores, tmp_path):
    """An old model that is nearly the target counts as one that agrees as much: not more."""
    near = Alike(seed=1, blur=0.4)
    far_off = make_store(tmp_path / "translated", vectors=noisy(3.0))
    report = audit(far_off, stores[1], source=make_store(tmp_path / "old", near), source_model=near)
    together, stay, alone = (report.arm(name).mean("nDCG@10") for name in ("together", "stay", TRANSLATED))
    assert together == alone < stay - 0.1


@pytest.mark.parametrize("depth", [7, 50])
def test_the_first_of_both_are_ranked_by_true_vectors(depth, judge):
    report = judge(two_stage=[depth])
    firsts = [rows[:depth] for rows in fused(depth)]
    rankings = [first[np.argsort(-TRUTH[first] @ asked)] for first, asked in zip(firsts, ASKED, strict=True)]
    arm = report.arm(f"together {depth}")
    assert arm.mean("nDCG@10") == pytest.approx(np.mean([ndcg(*pair) for pair in zip(rankings, QUERIES, strict=True)]))
    embedded = len(set(np.concatenate(firsts).tolist()))
    assert arm.reranking.documents_per_query == pytest.approx(embedded / len(QUERIES))


def test_without_the_old_store_the_report_says_what_is_missing(stores):
    translated, reference, old = stores
    report = audit(translated, reference)
    assert report.skipped_arms["together"].startswith("needs the store before the migration")
    with pytest.raises(UsageError, match=r"'together' .*the store before"):
        audit(translated, reference, plan="together")
    report = audit(translated, reference, source=old, source_model=SOURCE, two_stage=None)
    assert report.skipped_arms["together N"].endswith("--two-stage 20,50")


def test_the_exit_code_may_be_about_both(judge):
    report = judge(plan="together-20")
    assert report.plan == "together 20" and report.outcome is report.outcome_of("together 20")
    assert "together 20" in shown(report)


def test_an_old_model_that_embeds_no_new_queries_serves_nothing_unless_it_is_asked_for(stores, tmp_path):
    """Its arm is shown, and makes no bound wider."""
    translated, reference, old = stores
    ids, asked = ([one.id for one in many] for many in (DOCUMENTS, QUERIES))
    np.savez(tmp_path / "old.npz", doc_ids=ids, docs=OLD, query_ids=asked, queries=ASKED_OLD)
    options = {"source": old, "two_stage": [20]}
    recorded = audit(translated, reference, source_model=load_embedder(f"file:{tmp_path / 'old.npz'}"), **options)
    assert {"together", "together 20"} <= {arm.name for arm in recorded.arms}
    assert list(recorded.family) == ["two-stage 20"]
    answering = audit(translated, reference, source_model=SOURCE, **options)
    assert answering.family["two-stage 20"].lower < recorded.family["two-stage 20"].lower
    model = load_embedder(f"file:{tmp_path / 'old.npz'}")
    assert audit(translated, reference, source_model=model, plan="together", **options).plan == "together"


class Prefixed(Topics):
    @property
    def identity(self):
        return replace(super().identity, spec="sentence-transformers:own", query_prefix="ask: ")


def test_the_old_model_is_named_with_its_prefixes(stores):
    translated, _, old = stores
    model = Prefixed(SOURCE_DIM, blur=0.9, seed=1)
    assert locations_of(translated, old, TARGET, model).old_model == "sentence-transformers:own,query-prefix=ask: "
    assert locations_of(translated, old, TARGET, STRANGER).old_model == "topics-1"
