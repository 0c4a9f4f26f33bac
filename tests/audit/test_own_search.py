"""The verdict is of what a store answers by its own index; the report tells what exact search would keep."""

import faiss
import numpy as np
import pytest
from faiss_tools import empty_index
from topics import (
    DIM,
    OF_TARGET,
    QRELS,
    QUERIES,
    QUESTIONS,
    SOURCE_DIM,
    TARGET,
    UNJUDGED,
    Topics,
    halves,
    make_store,
    page_of,
    shown,
)
from topics import audit as audit_by
from topics import pool as by_pool

from migrate.audit.bounds import Outcome
from migrate.audit.document import report_of
from migrate.audit.recommendation import recommend
from migrate.audit.results import FULL, STAY, TOGETHER, TRANSLATED
from migrate.errors import RemoteError, UsageError
from migrate.report.summary import audit_summary
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.faiss.search import FaissSearcher
from migrate.stores.faiss.store import FaissStore

pytestmark = pytest.mark.slow

SOURCE = Topics(SOURCE_DIM, seed=1)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("reference") / "reference", metric="l2", manifest=OF_TARGET)


def audit_of(*arguments, **options):
    """An audit at a margin that 60 queries can show to be kept."""
    return audit_by(*arguments, **{"margin": 0.8, **options})


def indexed(folder, kind="IVF75,Flat", *, embedder=TARGET, documents=None, **settings):
    """A store of true vectors in an index of that kind: a translation that loses nothing."""
    options = {} if documents is None else {"documents": documents}
    manifest = OF_TARGET if embedder is TARGET else None
    store = make_store(folder, embedder, **options, metric="l2", manifest=manifest)
    flat = faiss.read_index(str(folder / "index.faiss"))
    vectors = flat.reconstruct_n(0, flat.ntotal)
    index = empty_index(kind, store.info.dim)
    index.train(vectors)
    index.add(vectors)
    for name, value in settings.items():
        faiss.ParameterSpace().set_index_parameter(index, name, value)
    faiss.write_index(index, str(folder / "index.faiss"))
    return open_store(folder)


def true_score(folder, depth=10):
    """NDCG@10 of what FAISS itself finds when it is asked for ten, without a line of the product."""
    index = faiss.read_index(str(folder / "index.faiss"))
    ids = [f"d{row:03}" for row in range(index.ntotal)]
    _, labels = index.search(TARGET.embed_queries(QUERIES), depth)
    discounts = 1 / np.log2(np.arange(2, depth + 2))
    scores = []
    for query, row in zip(QUERIES, labels, strict=True):
        grades = [QRELS[query.id].get(ids[label], 0) if label >= 0 else 0 for label in row]
        best = sorted(QRELS[query.id].values(), reverse=True)[:depth]
        scores.append(np.dot(grades, discounts) / np.dot(best, discounts[: len(best)]))
    return float(np.mean(scores))


# What an index finds is the pool's too, whatever the kind
@pytest.mark.parametrize(
    ("kind", "settings", "pooled"),
    [
        ("IVF75,Flat", {"nprobe": 1}, True),
        ("HNSW2", {"efSearch": 1}, False),
        ("IVF75,SQ8", {"nprobe": 1}, False),
    ],
)
def test_the_verdict_is_of_what_the_index_finds(kind, settings, pooled, reference, tmp_path):
    store = indexed(tmp_path / "new", kind, **settings)
    report = audit_of(store, by_pool(20) if pooled else reference)
    (found,) = report.examination.searches
    assert report.arm(TRANSLATED).mean("nDCG@10") == pytest.approx(true_score(tmp_path / "new"))
    assert report.verdict.outcome is not Outcome.SAFE
    assert found.is_safe_exactly and found.exactly == pytest.approx(1, abs=0.02)
    assert found.by_index == report.verdict.retention.estimate < 0.8
    assert found.sentence in report.examination.caveats and found.sentence in shown(report)


def test_the_smallest_setting_that_keeps_enough_is_named_and_does_so(reference, tmp_path):
    store = indexed(tmp_path / "new", nprobe=1)
    report = audit_of(store, reference)
    (found,) = report.examination.searches
    assert found.setting in (2, 4, 8, 16, 32, 64, 75) and found.setting_keeps >= 0.99
    assert f"index.nprobe = {found.setting}" in found.remedy
    assert f"--search-effort {found.setting}" in recommend(report).headline
    index = faiss.read_index(str(tmp_path / "new" / "index.faiss"))
    exact = true_score(reference.folder)
    kept = []
    for value in (found.setting // 2, found.setting):
        index.nprobe = value
        faiss.write_index(index, str(tmp_path / "new" / "index.faiss"))
        kept.append(true_score(tmp_path / "new") / exact)
    assert kept[0] < 0.99 <= kept[1] and kept[1] == pytest.approx(found.setting_keeps)
    told = audit_of(indexed(tmp_path / "again", nprobe=1), reference, search_effort=found.setting)
    assert told.verdict.outcome is Outcome.SAFE and told.examination.searches[0].remedy is None
    assert f"nprobe {found.setting}" in told.examination.searches[0].index


def test_where_no_setting_is_enough_another_index_is_named(reference, tmp_path):
    (found,) = audit_of(indexed(tmp_path / "new", "PQ2x4"), reference).examination.searches
    assert found.of_exact == pytest.approx(1)  # codes are read as they are searched: the vectors themselves are worse
    graph = indexed(tmp_path / "graph", "HNSW2", efSearch=1)
    (found,) = audit_of(graph, reference).examination.searches
    if found.setting is None:
        assert "?index=HNSW32" in found.remedy
    else:
        assert f"index.hnsw.efSearch = {found.setting}" in found.remedy


def test_stores_without_an_index_are_searched_exactly_and_that_is_told_once(reference, tmp_path):
    flat = make_store(tmp_path / "flat", metric="l2", manifest=OF_TARGET)
    report = audit_of(flat, reference, source=make_store(tmp_path / "old", SOURCE, metric="l2"), source_model=SOURCE)
    assert report.examination.searches == ()
    notes = [note for note in report.examination.notes if "searched exactly" in note]
    (note,) = notes
    assert "the translated store" in note and "the old store" in note


def test_staying_and_both_stores_together_answer_by_the_index_too(reference, tmp_path):
    old = indexed(tmp_path / "old", "IVF75,Flat", embedder=SOURCE, nprobe=1)
    exactly = make_store(tmp_path / "flat", SOURCE, metric="l2")
    new = make_store(tmp_path / "new", metric="l2", manifest=OF_TARGET)
    options = {"source_model": SOURCE, "two_stage": (20,)}
    reports = [audit_of(new, reference, source=source, **options) for source in (old, exactly)]
    by_index, by_vectors = ([report.arm(name).mean("nDCG@10") for report in reports] for name in (STAY, TOGETHER))
    assert by_index[0] < by_index[1] and by_vectors[0] != by_vectors[1]
    assert [search.arm for search in reports[0].examination.searches] == [STAY]
    assert reports[0].arm(FULL).mean("nDCG@10") == reports[1].arm(FULL).mean("nDCG@10")


def test_two_stages_rank_what_the_index_finds(reference, tmp_path):
    store = indexed(tmp_path / "new", nprobe=1)
    for by in (reference, by_pool(20)):
        report = audit_of(store, by, two_stage=(20,))
        assert report.arm("two-stage 20").mean("nDCG@10") < 0.95 * report.arm(FULL).mean("nDCG@10")


def test_chunks_are_found_as_deep_as_their_documents_take(tmp_path):
    documents = halves()
    reference = make_store(tmp_path / "reference", documents=documents, metric="l2", manifest=OF_TARGET)
    whole = audit_of(indexed(tmp_path / "all", documents=documents, nprobe=75), reference)
    flat = audit_of(make_store(tmp_path / "flat", documents=documents, metric="l2", manifest=OF_TARGET), reference)
    assert whole.arm(TRANSLATED).scores["recall@100"].tolist() == flat.arm(TRANSLATED).scores["recall@100"].tolist()
    assert whole.verdict.retention == flat.verdict.retention
    (search,) = whole.examination.searches
    assert search.of_exact == 1 and search.sentence in whole.examination.notes


@pytest.mark.parametrize("questions", [QUESTIONS, UNJUDGED])
def test_the_pool_has_what_the_index_finds_and_its_safe_is_no_weaker(questions, reference, tmp_path):
    """An index that finds documents far from the nearest: their true vectors are in the pool."""
    store = indexed(tmp_path / "new", nprobe=1)
    pooled = audit_of(store, by_pool(20), questions)
    full = audit_of(store, reference, questions)
    assert pooled.verdict.outcome is not Outcome.SAFE
    if questions.is_judged:
        assert pooled.verdict.retention.lower <= full.verdict.retention.lower + 1e-9
    else:
        assert pooled.verdict.retention.upper >= full.verdict.retention.upper - 1e-9


def test_the_document_and_the_page_have_both_figures(reference, tmp_path):
    report = audit_of(indexed(tmp_path / "new", nprobe=1), reference)
    (found,) = report_of(report).document["searches"]
    assert found["exactly"] > found["by_index"] and found["sentence"] in report.examination.caveats
    assert "searched exactly" in page_of(report) and "by its own search" in page_of(report)
    assert "by its own search" in " ".join(audit_summary(report_of(report)).split())


def test_a_search_that_fails_ends_the_audit_by_its_own_error(reference, tmp_path):
    class Failing(FaissSearcher):
        def search_index(self, queries, k, effort=None):
            raise RemoteError("the server is gone; start it")

    class Unreachable(FaissStore):
        def searcher(self):
            return Failing(self, self.index_path, None)

    indexed(tmp_path / "new", nprobe=1)
    with pytest.raises(RemoteError, match="the server is gone"):
        audit_of(Unreachable(tmp_path / "new", tmp_path / "new" / "index.faiss"), reference)


def test_a_setting_that_searches_have_not_is_refused(reference, tmp_path):
    flat = make_store(tmp_path / "flat", metric="l2", manifest=OF_TARGET)
    with pytest.raises(UsageError, match="have no setting"):
        audit_of(flat, reference, search_effort=4)
    assert isinstance(flat, Store) and flat.info.dim == DIM


@pytest.mark.parametrize("candidates", [150, 400])
def test_no_greater_setting_is_named_than_there_is(candidates, reference, tmp_path):
    """All documents are candidates already: what is missed has no link."""
    store = indexed(tmp_path / "new", "HNSW2", efSearch=candidates)
    (search,) = audit_of(store, reference).examination.searches
    assert search.of_exact < 0.99
    assert "another index" in search.remedy


def test_a_program_may_look_into_fewer_lists_than_are_stored(reference, tmp_path):
    store = indexed(tmp_path / "new", "IVF75,Flat", nprobe=75)
    (stored,), (set_by_program,) = (audit_of(store, reference, search_effort=n).examination.searches for n in (None, 1))
    assert stored.of_exact == pytest.approx(1) and set_by_program.of_exact < 0.9
