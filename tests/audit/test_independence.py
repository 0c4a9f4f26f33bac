"""Mistakes about queries and documents that would make an audit look surer than it is: none may end in SAFE."""

import json

import numpy as np
import pytest
from topics import (
    DOCUMENTS,
    OF_TARGET,
    QRELS,
    QUERIES,
    QUESTIONS,
    TARGET,
    Topics,
    audit,
    make_store,
    noisy,
    shown,
    ways_out,
)

from migrate.audit.bounds import Outcome
from migrate.audit.document import report_of
from migrate.audit.query_set import QuerySet, independent
from migrate.audit.recommendation import recommend
from migrate.audit.results import FULL, TRANSLATED
from migrate.errors import InconclusiveError, ManifestError
from migrate.manifest import Manifest, StoreFacts
from migrate.selection.choosers import digests_of
from migrate.stores import open_store
from migrate.vectors import Query, query_key

pytestmark = pytest.mark.slow

SAFE_MARGIN = 0.5
"""At which a perfect translation is SAFE with the 60 queries of `topics`."""


def spelled(query, number):
    forms = (str, str.upper, str.title, lambda text: f"  {text}\n", lambda text: text.replace(" ", "\t "))
    return Query(f"{query.id}.{number}", forms[number % len(forms)](query.text))


def repeated(queries, times, qrels=QRELS):
    asked = [spelled(query, number) for number in range(times) for query in queries]
    return QuerySet(asked, qrels and {query.id: qrels[query.id.split(".")[0]] for query in asked}, "repeated")


class Caseless(Topics):
    """A model that does not tell capitals, as `topics` would."""

    def _one(self, text, role):
        return super()._one(text.lower(), role)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("full") / "reference")


@pytest.fixture
def perfect(tmp_path):
    return make_store(tmp_path / "perfect")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("how to?", " HOW  to?\n", True),
        ("Straße", "STRASSE", True),
        ("caf\u00e9", "CAFE\u0301", True),
        ("how to?", "h\u043ew t\u03bf?", True),
        ("how to?", "how \U0001f600\ufe0f t\u200bo", True),
        ("how to?", "how too?", False),
        ("5 \u03bcg", "5 mg", False),
    ],
)
def test_texts_ask_the_same_but_for_case_and_white_space(one, other, same):
    assert (query_key(one) == query_key(other)) == same
    assert (digests_of([Query("a", one)]) == digests_of([Query("b", other)])) == same


@pytest.mark.parametrize(("texts", "times", "qrels"), [(20, 10, None), (3, 40, QRELS), (19, 2, None), (60, 3, QRELS)])
def test_repeating_queries_changes_no_bound_and_no_verdict(texts, times, qrels, reference, tmp_path):
    translated = make_store(tmp_path / "translated", vectors=noisy(0.3))
    once, often = (
        audit(translated, reference, repeated(QUERIES[:texts], n, qrels), Caseless(), margin=0.9, two_stage=[50])
        for n in (1, times)
    )
    for report in (once, often):
        assert report.verdict.observations.queries == texts == len(report.data.query_ids)
        assert report.verdict.outcome is not Outcome.SAFE
    # Other than by rounding, and by what is drawn at random for each query, nothing may differ.
    assert often.verdict.retention.lower == pytest.approx(once.verdict.retention.lower)
    assert often.verdict.retention.upper == pytest.approx(once.verdict.retention.upper)
    assert often.verdict.queries_needed == once.verdict.queries_needed
    assert often.family["two-stage 50"].lower == pytest.approx(once.family["two-stage 50"].lower)
    assert ways_out(often) == ways_out(once)
    for name in (TRANSLATED, FULL):
        for measure, scores in once.arm(name).scores.items():
            assert often.arm(name).scores[measure] == pytest.approx(scores)
    texts_of = [[one.text for one in report.examination.diagnostics.regressions] for report in (once, often)]
    assert texts_of[0] == texts_of[1] and len(set(texts_of[1])) == len(texts_of[1])
    sizes = [
        [(one.by, one.value, one.queries) for one in report.examination.diagnostics.slices] for report in (once, often)
    ]
    assert sizes[0] == sizes[1]
    note = f"{texts * (times - 1):,} of {texts * times:,} queries repeat the text of another"
    assert any(note in one for one in often.examination.notes)
    assert not any("repeat" in one for one in once.examination.notes)


def test_one_text_with_several_judgements_counts_once_by_the_mean(reference, tmp_path):
    translated = make_store(tmp_path / "translated", vectors=noisy(1.0))
    twice = [QUERIES[0], Query("again", f" {QUERIES[0].text}"), *QUERIES[1:]]
    qrels = {**QRELS, "again": {"d000": 2, "d007": 1}}
    report = audit(translated, reference, QuerySet(twice, qrels, "twice"))
    assert report.data.query_ids == tuple(query.id for query in QUERIES)
    alone = (QuerySet([query], {query.id: qrels[query.id]}, "alone") for query in twice[:2])
    single = [audit(translated, reference, one).arm(FULL).scores["nDCG@10"][0] for one in alone]
    assert single[0] != single[1]
    assert report.arm(FULL).scores["nDCG@10"][0] == pytest.approx(np.mean(single))
    document = report_of(report).document
    assert document["dataset"]["queries"] == document["verdict"]["queries"] == len(document["query_ids"]) == 60
    assert {len(values) for arm in document["arms"] for values in arm["per_query"].values()} == {60}


def chosen(store, queries):
    """The store as a migration leaves it whose documents some queries chose."""
    details = StoreFacts(index="index.faiss", chosen_by=tuple(digests_of(queries))).as_details()
    Manifest("store", TARGET.identity, details=details).write(store.folder)
    return open_store(store.folder)


@pytest.mark.parametrize(("chose", "left"), [(60, 0), (41, 19)])
def test_where_too_few_are_left_nothing_is_asked(chose, left, reference, perfect, tmp_path):
    target = Topics()
    with pytest.raises(InconclusiveError, match=f"^INCONCLUSIVE: topics: {chose} of 60 .* {left} others are left"):
        audit(chosen(perfect, QUERIES[:chose]), reference, embedder=target, margin=SAFE_MARGIN)
    assert target.asked == []
    older = make_store(tmp_path / "older", manifest=OF_TARGET)
    assert audit(older, reference).verdict.observations.queries == 60, "an older version remembers no queries"
    assert audit(chosen(perfect, QUERIES[:40]), reference, margin=0.1).verdict.observations.queries == 20


def test_judgements_and_repeats_of_queries_that_chose_do_not_count():
    kept = independent(QUESTIONS, digests_of(QUERIES[:5]))
    assert set(kept.qrels) == {query.id for query in QUERIES[5:]}
    assert independent(kept, digests_of(QUERIES[:5])) is kept, "told once"
    assert independent(QUESTIONS, frozenset()) is QUESTIONS
    with pytest.raises(InconclusiveError, match=r"40 of 100 queries .* 15 others are left"):
        independent(repeated(QUERIES[:25], 4), digests_of(QUERIES[:10]))


@pytest.mark.parametrize("value", ["abc", [1], {"a": 1}, None])
def test_a_manifest_with_something_else_for_hashes_is_refused(value, reference, perfect):
    translated = chosen(perfect, QUERIES[:5])
    path = translated.folder / "lead-migrate.json"
    facts = json.loads(path.read_text())
    facts["details"]["chosen by queries"] = value
    del facts["manifest_sha256"]
    path.write_text(json.dumps(facts))
    with pytest.raises(ManifestError, match=r"in its details 'chosen by queries.*' must be "):
        audit(open_store(translated.folder), reference)


def few(count, qrels=None):
    """Queries about the first documents of `topics`, and these."""
    kept = {document.id for document in DOCUMENTS[:count]}
    judged = qrels and {q: {d: g for d, g in grades.items() if d in kept} for q, grades in qrels.items()}
    return DOCUMENTS[:count], QuerySet(QUERIES, judged, "few")


def ruined(folder, documents):
    vectors = np.random.default_rng(0).normal(size=(len(documents), TARGET.dim)).astype(np.float32)
    return make_store(folder, documents=documents, vectors=vectors)


@pytest.mark.parametrize(
    ("count", "outcome"), [(8, "INCONCLUSIVE"), (10, "INCONCLUSIVE"), (99, "INCONCLUSIVE"), (100, "SAFE")]
)
def test_the_first_ten_of_a_handful_are_no_selection(count, outcome, tmp_path):
    documents, questions = few(count)
    translated, reference = (make_store(tmp_path / name, documents=documents) for name in ("one", "two"))
    report = audit(translated, reference, questions, margin=0.9)
    assert report.verdict.retention.estimate == 1
    assert report.verdict.outcome.value == outcome
    if outcome == "INCONCLUSIVE":
        told = f"the first 10 of {count} documents are hardly a selection: SAFE needs at least 100 documents"
        assert told in shown(report)
        assert recommend(report).plan == "full re-embed"
        assert report.verdict.queries_needed is None and not ways_out(report)


@pytest.mark.parametrize(("count", "qrels", "outcome"), [(10, None, "INCONCLUSIVE"), (90, QRELS, "NOT SAFE")])
def test_ruined_vectors_of_a_handful_are_not_safe_by_overlap_and_harm_that_shows_is_told(
    count, qrels, outcome, tmp_path
):
    """All of ten documents are found, whatever the vectors."""
    documents, questions = few(count, qrels)
    reference = make_store(tmp_path / "two", documents=documents)
    report = audit(ruined(tmp_path / "one", documents), reference, questions, margin=0.9)
    assert report.verdict.outcome.value == outcome
    assert (report.verdict.retention.lower > 0.9) == (outcome == "INCONCLUSIVE")


def with_true(store, count):
    """The store, which says that its first vectors are true ones."""
    confidence = np.full(150, 0.7, dtype="<f4")
    confidence[:count] = 1
    np.save(store.folder / "confidence.npy", confidence)
    return store


@pytest.mark.parametrize(("true", "outcome"), [(144, "INCONCLUSIVE"), (51, "INCONCLUSIVE"), (50, "SAFE")])
def test_what_is_held_out_is_not_safe_by_a_handful(true, outcome, reference, perfect):
    found = audit(with_true(perfect, true), reference, QuerySet(QUERIES, None, "log"), margin=0.9).examination.held_out
    assert found.documents == true and found.verdict.retention.estimate == 1
    assert found.verdict.outcome.value == outcome
    assert f"60 queries left): {outcome}, " in found.sentence
    told = f"the first 10 of the {150 - true} documents left are hardly a selection"
    assert (told in found.sentence) == (outcome == "INCONCLUSIVE")


def test_what_is_held_out_counts_each_text_once(reference, perfect):
    report = audit(with_true(perfect, 50), reference, repeated(QUERIES[:19], 10), Caseless(), margin=0.1)
    found = report.examination.held_out
    assert found.queries == found.verdict.observations.queries <= 19
    assert found.verdict.outcome is Outcome.INCONCLUSIVE
