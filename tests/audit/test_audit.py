"""An audit by a full re-embed: its arms and figures, what it says of itself, and what it refuses."""

import numpy as np
import pytest
import topics
from ir_measures import RR, R, calc_aggregate, nDCG
from topics import (
    DIM,
    DOCUMENTS,
    N_DOCUMENTS,
    N_QUERIES,
    OF_TARGET,
    QRELS,
    QUERIES,
    SOURCE,
    TARGET,
    Topics,
    audit,
    copy_store,
    halves,
    make_store,
    noisy,
)

from migrate.audit.bounds import Outcome
from migrate.audit.keys import document_keys
from migrate.audit.query_set import QuerySet
from migrate.audit.results import (
    BM25,
    FULL,
    HYBRID,
    HYBRID_FULL,
    MEAN,
    RANDOM,
    STAY,
    TOGETHER,
    TRANSLATED,
    win_tie_loss,
)
from migrate.audit.step import Audit
from migrate.errors import InputError, StoreError, VectorError
from migrate.manifest import Manifest, ModelIdentity
from migrate.vectors import Document, Query

OVERLAPS = {"overlap@1", "overlap@10", "overlap@100", "RBO"}
MEASURES = {"nDCG@10", "recall@100", "MRR@10", "judged@10", *OVERLAPS}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores that nobody writes to: of the model, of the old one, and a translation that is not perfect."""
    folder = tmp_path_factory.mktemp("stores")
    reference, source = make_store(folder / "reference"), make_store(folder / "source", SOURCE)
    return reference, source, make_store(folder / "translated", vectors=noisy(1.0))


@pytest.fixture(scope="module")
def reference(stores):
    return stores[0]


@pytest.fixture(scope="module")
def source(stores):
    return stores[1]


@pytest.fixture(scope="module")
def translated(stores):
    return stores[2]


@pytest.fixture(scope="module")
def perfect(reference):
    return copy_store(reference)


def test_a_request_is_what_was_asked_for_and_can_be_opened_again(source, translated):
    """Nothing is kept in it: each time it is opened the stores are looked at as they are then."""
    places = {"store": str(translated.folder), "reference": "pool", "source": str(source.folder)}
    query_set = QuerySet(QUERIES, QRELS, "topics")
    request = Audit(**places, judged=query_set, target=TARGET, source_model=SOURCE, two_stage="50,20")
    asked = dict(vars(request))
    jobs = [request.open() for _ in range(2)]
    assert vars(request) == asked and {name: getattr(request, name) for name in places} == places
    first, second = (job.inputs for job in jobs)
    assert first.translated is not second.translated and first.source.info == second.source.info
    assert list(first.settings.stages) == [50, 20] and first.full is None and not first.builds_reference


def test_what_is_open_already_is_taken_as_it_is(reference, source, translated):
    asked = {"judged": QuerySet(QUERIES, QRELS, "topics"), "source": source, "source_model": SOURCE}
    inputs = Audit(translated, reference, target=TARGET, **asked).open().inputs
    assert (inputs.translated, inputs.full, inputs.source) == (translated, reference, source)
    assert (inputs.embedder, inputs.source_embedder) == (TARGET, SOURCE)


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_a_perfect_translation_retains_everything(metric, tmp_path):
    first, second = (make_store(tmp_path / name, metric=metric) for name in ("one", "two"))
    report = audit(first, second, margin=0.5)
    assert report.verdict.retention.lower < report.verdict.retention.estimate == 1 < report.verdict.retention.upper
    assert report.verdict.outcome is Outcome.SAFE
    assert all(report.arm(TRANSLATED).mean(measure) == pytest.approx(1) for measure in OVERLAPS)
    assert report.arm(FULL).mean("nDCG@10") > 0.5
    comparison = report.comparisons[TRANSLATED]
    assert (comparison.wins, comparison.ties, comparison.losses) == (0, N_QUERIES, 0)


def test_every_arm_that_can_be_had_is_there(reference, source, translated):
    report = audit(translated, reference, source=source, source_model=SOURCE)
    arms = [arm.name for arm in report.arms]
    assert arms == [FULL, TRANSLATED, STAY, HYBRID, HYBRID_FULL, BM25, MEAN, RANDOM, TOGETHER]
    assert list(report.comparisons) == arms[1:]
    assert all(set(arm.scores) == MEASURES for arm in report.arms)
    assert all(scores.shape == (N_QUERIES,) for arm in report.arms for scores in arm.scores.values())
    assert report.verdict.gain_over_stay is not None
    with pytest.raises(KeyError):
        report.arm("no such arm")


def test_a_full_re_embed_that_is_worse_than_words_is_doubted(tmp_path):
    """Its two stores agree, and are of little use: the topic of a query stands in its words."""
    poor = Topics(blur=1.0)
    vectors = poor.embed_documents(DOCUMENTS)
    translated = make_store(tmp_path / "translated", vectors=vectors * np.float32(1.01))
    for by in (make_store(tmp_path / "reference", poor), topics.pool(150)):
        report = audit(translated, by, embedder=poor, margin=0.8)
        assert report.verdict.retention.lower > 0.8
        assert report.verdict.outcome is Outcome.INCONCLUSIVE
        assert "significantly worse than BM25" in report.verdict.sentence


def brute_ranking(query, documents, vectors, metric="ip"):
    scores = vectors.astype(float) @ query if metric == "ip" else -np.square(vectors.astype(float) - query).sum(axis=1)
    return {document.id: float(score) for document, score in zip(documents, scores, strict=True)}


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_the_means_are_those_of_a_brute_force_run_judged_by_ir_measures(metric, tmp_path):
    vectors = {FULL: TARGET.embed_documents(DOCUMENTS), TRANSLATED: noisy(1.0), STAY: SOURCE.embed_documents(DOCUMENTS)}
    stores = {name: make_store(tmp_path / name, vectors=rows, metric=metric) for name, rows in vectors.items()}
    report = audit(stores[TRANSLATED], stores[FULL], source=stores[STAY], source_model=SOURCE)
    for name, rows in vectors.items():
        asked = (SOURCE if name == STAY else TARGET).embed_queries(QUERIES).astype(float)
        run = {query.id: brute_ranking(asked[i], DOCUMENTS, rows, metric) for i, query in enumerate(QUERIES)}
        judged = calc_aggregate([nDCG @ 10, R @ 100, RR @ 10], QRELS, run)
        found = [report.arm(name).mean(measure) for measure in ("nDCG@10", "recall@100", "MRR@10")]
        assert found == pytest.approx([judged[nDCG @ 10], judged[R @ 100], judged[RR @ 10]])
    full, arm, stay = (report.arm(name).mean("nDCG@10") for name in (FULL, TRANSLATED, STAY))
    assert full > arm
    assert report.verdict.retention.estimate == report.comparisons[TRANSLATED].retention.estimate
    assert report.verdict.retention.estimate == pytest.approx(arm / full)
    assert report.comparisons[STAY].retention.estimate == pytest.approx(stay / full)
    assert report.verdict.gain_over_stay.estimate == pytest.approx(arm - stay)


def test_the_mean_arm_answers_all_queries_with_the_first_documents(reference, perfect):
    qrels = {query.id: {"d000": 1, "d140": 1} for query in QUERIES}
    report = audit(perfect, reference, QuerySet(QUERIES, qrels, "x"))
    assert report.arm(MEAN).mean("MRR@10") == 1
    assert report.arm(MEAN).mean("recall@100") == 0.5


def test_queries_that_are_not_judged_count_as_unanswered(reference, perfect):
    half = {query.id: QRELS[query.id] for query in QUERIES[::2]}
    report = audit(perfect, reference, QuerySet(QUERIES, half, "half"))
    assert not report.arm(FULL).scores["nDCG@10"][1::2].any()
    assert report.arm(FULL).scores["nDCG@10"][::2].any()
    assert report.verdict.observations.queries == N_QUERIES


def test_a_query_with_the_id_of_a_document_does_not_find_it_when_told(reference, perfect):
    own = [Query(document.id, f"{document.text}, and what else there is to know") for document in DOCUMENTS[:20]]
    qrels = {query.id: {query.id: 1} for query in own}
    kept, dropped = (
        audit(perfect, reference, QuerySet(own, qrels, "own", exclude_self=told)) for told in (False, True)
    )
    assert kept.arm(FULL).mean("recall@100") > 0.9
    assert {arm.mean("recall@100") for arm in dropped.arms} == {0}
    assert dropped.arm(TRANSLATED).mean("overlap@100") == 1


def test_a_document_that_is_dropped_gives_its_place_to_the_next(tmp_path):
    """Recall at 100 needs 100 documents besides the query's own."""
    documents = [Document(f"d{row:03}", f"t0 n{row}") for row in range(101)]
    first, second = (make_store(tmp_path / name, documents=documents) for name in ("one", "two"))
    own = [Query(document.id, document.text) for document in documents[:9]]
    qrels = {query.id: {document.id: 1 for document in documents if document.id != query.id} for query in own}
    report = audit(first, second, QuerySet(own, qrels, "own", exclude_self=True))
    assert {arm.mean("recall@100") for arm in report.arms} == {1}


def test_chunks_are_judged_as_the_documents_they_were_cut_from(reference, tmp_path):
    first, second = (make_store(tmp_path / name, documents=halves()) for name in ("one", "two"))
    report = audit(first, second)
    assert report.data.n_documents == N_DOCUMENTS
    assert report.arm(FULL).mean("nDCG@10") > 0.5
    keys, own_keys = document_keys(first), document_keys(first, "nothing")
    row = keys.ids.rows_of(["d003#1"])
    assert keys.documents.take(row) == ["d003"]
    assert own_keys.documents.take(row) == ["d003#1"]
    assert audit(reference, first).arm(TRANSLATED).mean("nDCG@10") > 0.5, "chunked another way, but the same documents"


@pytest.mark.parametrize("which", ["translated", "source"])
@pytest.mark.parametrize("change", ["fewer", "more", "other"])
def test_other_documents_are_refused(which, change, reference, perfect, tmp_path):
    strange = Document("strange", "t0 n0")
    documents = {"fewer": DOCUMENTS[:-1], "more": [*DOCUMENTS, strange], "other": [*DOCUMENTS[:-1], strange]}[change]
    embedder = TARGET if which == "translated" else SOURCE
    other = make_store(tmp_path / "other", embedder, documents)
    stores = {"translated": perfect, "source": None, which: other}
    words = r"and .*reference hold different documents: only one of them has [12], "
    with pytest.raises(StoreError, match=words) as caught:
        audit(stores["translated"], reference, source=stores["source"], source_model=SOURCE)
    assert ("strange" if change == "more" else "d149") in str(caught.value)
    assert str(other.info.location) in str(caught.value)


def test_a_store_of_another_dimension_is_refused(reference, source, perfect, tmp_path):
    for translated, standard in ((source, reference), (reference, source)):
        with pytest.raises(VectorError, match=r"its vectors have dimension 6, those of topics-0 8"):
            audit(translated, standard)
    with pytest.raises(VectorError, match=r"its vectors have dimension 8, those of topics-1 6"):
        audit(perfect, reference, source=make_store(tmp_path / "eight"), source_model=SOURCE)


@pytest.mark.parametrize("value", [0, np.nan])
def test_a_bad_vector_in_a_store_is_named(value, reference, tmp_path):
    vectors = noisy(0)
    vectors[77] = value
    with pytest.raises(VectorError, match=r"broken: .*'d077'"):
        audit(make_store(tmp_path / "broken", vectors=vectors), reference)


def test_the_report_says_what_it_was_made_from(reference, perfect, tmp_path):
    facts = {"counts": {"true vectors": 40}, "details": {"index": "index.faiss"}}
    known = Manifest("store", TARGET.identity, source_model=SOURCE.identity, **facts)
    translated = make_store(tmp_path / "known", manifest=known)
    report = audit(translated, reference, seed=12, margin=0.8)
    assert report.data.name == "topics"
    assert report.data.query_ids == tuple(query.id for query in QUERIES)
    assert report.verdict.scale.safe == 0.8
    assert report.manifest.kind == "report"
    assert (report.manifest.model, report.manifest.source_model) == (TARGET.identity, SOURCE.identity)
    assert report.manifest.seed == 12
    assert report.manifest.counts == {"queries": N_QUERIES, "documents": N_DOCUMENTS}
    assert report.manifest.details == {"dataset": "topics", "resamples": 10_000}
    true, proof, groups, exactly = report.examination.notes
    assert "searched exactly" in exactly
    assert groups.startswith("60 queries are in 58 independent groups") and "largest of 2" in groups
    assert true.startswith("40 of 150 vectors")
    assert proof == report.examination.reference.findings[0].text
    assert audit(perfect, reference).examination.notes == (proof, groups, exactly)


@pytest.mark.slow
@pytest.mark.parametrize("translated_by", ["topics-0", None, "file:a"])
def test_a_reference_of_another_model_is_refused(translated_by, tmp_path):
    stores = []
    for name, spec in (("translated", translated_by), ("reference", "other")):
        model = ModelIdentity(spec, DIM, False) if spec else None
        stores.append(make_store(tmp_path / name, manifest=Manifest("store", model, details={"index": "index.faiss"})))
    with pytest.raises(StoreError, match=r"reference .* topics-0 .*'other'"):
        audit(*stores)
    right = make_store(tmp_path / "right", manifest=OF_TARGET)
    assert audit(stores[0], right).arm(TRANSLATED).mean("overlap@10") == 1


def test_judgements_of_documents_that_are_not_there_are_counted(reference, perfect):
    qrels = {"q0": {"d000": 1, "gone": 1, "zero": 0}, "q1": {"away": 2, "gone": 1}}
    report = audit(perfect, reference, QuerySet(QUERIES, qrels, "x", notes=("a note",)))
    assert report.examination.notes[0] == "a note"
    (caveat,) = report.examination.caveats
    assert "2 of 3 relevant documents" in caveat and "1 of 2 queries" in caveat
    assert audit(perfect, reference).examination.caveats == ()
    target = Topics()
    with pytest.raises(InputError, match=r"^x: none of the judged documents is in the stores"):
        audit(perfect, reference, QuerySet(QUERIES, {"q0": {"gone": 1, "d000": 0}}, "x"), target)
    with pytest.raises(InputError, match=r"^empty has no queries to audit with"):
        audit(perfect, reference, QuerySet([], QRELS, "empty"), target)
    assert target.asked == [], "refused before a query is paid for"


def test_queries_are_won_tied_and_lost():
    assert win_tie_loss(np.array([1, 0, 0.5]), np.array([0, 1, 0.5])) == (1, 1, 1)
    assert win_tie_loss(np.array([0.1 + 0.2]), np.array([0.3])) == (0, 1, 0)
    assert win_tie_loss(np.empty(0), np.empty(0)) == (0, 0, 0)
