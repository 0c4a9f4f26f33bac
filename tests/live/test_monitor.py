"""What the monitor says of served queries, held against a full re-embed of the same documents."""

import json
from dataclasses import replace

import numpy as np
import pytest
from stores_tools import make_store

from migrate.audit.bounds import Outcome
from migrate.audit.verdict import FEWEST_DOCUMENTS
from migrate.embedders.base import Embedder
from migrate.live.monitor import CALIBRATION, DEPTHS, Monitor, ServedPool
from migrate.live.state import ServedQuery
from migrate.manifest import ModelIdentity
from migrate.vectors import Document, unit_rows

pytestmark = pytest.mark.slow

COUNT, DIM = 1_500, 16
TRUE = unit_rows(np.random.default_rng(0).normal(size=(COUNT, DIM)).astype(np.float32))
DOCUMENTS = [Document(f"d{row:04}", f"text {row}") for row in range(COUNT)]


class Table(Embedder):
    """A model that knows the true vector of each document, and counts what it is asked for."""

    def __init__(self):
        self.asked = []

    @property
    def identity(self):
        return ModelIdentity("table", DIM, True)

    def embed(self, texts, role, *, progress=None):
        self.asked += [text.id for text in texts]
        return TRUE[[int(text.text.split()[1]) for text in texts]]


def translated(noise, n_true=0):
    vectors = TRUE + np.float32(noise) * np.random.default_rng(1).normal(size=TRUE.shape).astype(np.float32)
    vectors[:n_true] = TRUE[:n_true]
    return unit_rows(vectors)


def directions(n, seed=2):
    return unit_rows(np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32))


def answered(vectors, queries, *, rerank=0):
    """The answers to queries: by the store's vectors, the first `rerank` ranked again by true ones."""
    answers = []
    for number, query in enumerate(queries, start=1):
        first = np.argsort(-(vectors @ query), kind="stable")[: max(rerank, 10)]
        if rerank:
            first = first[np.argsort(-(TRUE[first] @ query), kind="stable")]
        ids = tuple(DOCUMENTS[row].id for row in first[:10])
        answers.append(ServedQuery(query, ids, np.zeros(10, dtype=np.float32), number=number))
    return answers


def serve(vectors, n, *, rerank=0):
    return answered(vectors, directions(n), rerank=rerank)


def true_agreement(answers, temperature):
    """By all true vectors, straight from the definition."""
    discounts = 1 / np.log2(np.arange(2, 12))
    values = []
    for answer in answers:
        scores = TRUE @ answer.vector
        best = np.sort(scores)[::-1][:10]
        own = scores[[int(doc_id[1:]) for doc_id in answer.ids]]
        gains = [discounts[: len(part)] @ np.exp((part - best[0]) / temperature) for part in (own, best)]
        values.append(gains[0] / gains[1])
    return np.array(values)


def look(monitor, store, answers, is_true=None, embedder=None):
    is_true = np.zeros(COUNT, dtype=bool) if is_true is None else is_true
    return monitor.judged(ServedPool(store, embedder or Table(), answers, is_true))


@pytest.fixture
def watch(tmp_path):
    """Called with vectors and answers: the store, the monitor once it is calibrated, and once it has seen the rest."""

    def watch(vectors, answers, *known):
        store = make_store(tmp_path / f"store {len(list(tmp_path.iterdir()))}", DOCUMENTS, vectors)
        calibrated = look(Monitor(), store, answers[:CALIBRATION], *known)
        return store, calibrated, look(calibrated, store, answers[CALIBRATION:], *known)

    return watch


@pytest.mark.parametrize("noise", [0.05, 0.1])
def test_the_truth_lies_between_the_two_scores(watch, noise):
    vectors = translated(noise)
    answers = serve(vectors, CALIBRATION + 100, rerank=20)
    _, calibrated, monitor = watch(vectors, answers)
    truth = true_agreement(answers[CALIBRATION:], calibrated.calibration.temperature)
    assert monitor.high.count == 100
    assert monitor.high.mean >= truth.mean() - 1e-6  # the guarantee
    assert monitor.low.mean <= truth.mean() + 1e-6  # the estimate, with its margin
    assert monitor.low.mean >= truth.mean() - 0.03  # which is of use


def test_each_query_agrees_no_less_in_the_pool_than_in_truth(watch):
    vectors = translated(0.3)
    answers = serve(vectors, CALIBRATION + 12)
    store, monitor, _ = watch(vectors, answers)
    for answer in answers[CALIBRATION:]:
        (truth,) = true_agreement([answer], monitor.calibration.temperature)
        one = look(monitor, store, [answer])
        assert one.high.mean >= truth - 1e-6
        assert one.low.mean <= one.high.mean


def test_bad_answers_become_not_safe(watch):
    bad = translated(1.0)
    *_, monitor = watch(bad, serve(bad, CALIBRATION + 60))
    assert monitor.verdict().outcome is Outcome.NOT_SAFE
    assert monitor.verdict().upper < monitor.verdict().harmful


def test_good_answers_become_safe_but_one_query_again_and_again_is_one_observation(watch):
    good = translated(0.03)
    answers = serve(good, CALIBRATION + 250, rerank=20)
    *_, monitor = watch(good, answers)
    assert monitor.verdict().outcome is Outcome.SAFE
    assert replace(monitor, n_documents=FEWEST_DOCUMENTS - 1).verdict().outcome is Outcome.INCONCLUSIVE
    few = [replace(answers[CALIBRATION + place % 19], number=answers[place].number) for place in range(len(answers))]
    *_, monitor = watch(good, few)
    assert (monitor.high.count, monitor.first_high.count) == (250, 19)
    assert monitor.verdict().outcome is Outcome.INCONCLUSIVE
    assert monitor.low.lower(0.01) > monitor.verdict().safe > monitor.verdict().lower


def test_queries_in_runs_of_one_kind_count_once_a_kind(watch):
    """By all queries it would be SAFE, by the six kinds that they are of nothing can be said."""
    good, rng = translated(0.03), np.random.default_rng(5)
    kinds = unit_rows(rng.normal(size=(6, DIM)).astype(np.float32))
    queries = unit_rows(np.repeat(kinds, 40, axis=0) + np.float32(0.02) * rng.normal(size=(240, DIM)).astype("f4"))
    answers = answered(good, [*directions(CALIBRATION), *queries], rerank=20)
    store, _, monitor = watch(good, answers)
    assert (monitor.high.count, monitor.first_high.count) == (240, 6)
    assert monitor.low.lower(0.01) > monitor.verdict().safe
    assert monitor.verdict().outcome is Outcome.INCONCLUSIVE and monitor.verdict().n_groups == 6
    kept = Monitor.of_json(json.loads(json.dumps(monitor.as_json())))
    again = look(kept, store, answers[CALIBRATION : CALIBRATION + 5])
    assert again.first_high.count == 6  # remembered from look to look


def test_a_store_that_is_all_true_leaves_nothing_open_and_embeds_nothing(watch):
    embedder = Table()
    *_, monitor = watch(TRUE, serve(TRUE, CALIBRATION + 150), np.ones(COUNT, dtype=bool), embedder)
    assert (monitor.low.mean, monitor.high.mean) == pytest.approx((1.0, 1.0), abs=1e-5)
    assert monitor.verdict().outcome is Outcome.SAFE
    assert embedder.asked == []


def test_documents_that_are_true_in_the_store_count_however_low_it_ranks_them(watch):
    """Translated ones that are far too long fill the store's first documents; the better true ones come after them."""
    vectors = translated(0.2, n_true=COUNT // 2)
    vectors[COUNT // 2 :] *= 3
    answers = serve(vectors, CALIBRATION + 40)
    store, monitor, judged = watch(vectors, answers, np.arange(COUNT) < COUNT // 2)
    without = look(monitor, store, answers[CALIBRATION:])
    truth = true_agreement(answers[CALIBRATION:], monitor.calibration.temperature).mean()
    assert truth - 1e-6 <= judged.high.mean < without.high.mean


def test_the_pool_is_what_was_served_and_what_is_found_first_and_documents_that_are_gone_are_passed_over(watch):
    vectors, embedder = translated(0.2), Table()
    answers = serve(vectors, CALIBRATION + 5, rerank=20)
    store, monitor, _ = watch(vectors, answers)
    look(monitor, store, answers[CALIBRATION:], embedder=embedder)
    assert 0 < len(set(embedder.asked)) <= 5 * max(DEPTHS)
    gone = ServedQuery(answers[-1].vector, ("gone",), np.zeros(1, dtype=np.float32), number=999)
    after = look(monitor, store, [gone])
    assert (after.high.count, after.last) == (0, 999)


def test_what_is_kept_as_json_goes_on_as_it_was(watch):
    vectors = translated(0.1)
    answers = serve(vectors, CALIBRATION + 30, rerank=20)
    store, monitor, judged = watch(vectors, answers)
    again = Monitor.of_json(json.loads(json.dumps(monitor.as_json())))
    assert look(again, store, answers[CALIBRATION:]) == judged
