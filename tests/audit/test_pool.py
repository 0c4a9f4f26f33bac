"""The pool in the place of a full re-embed: what it guarantees, what it embeds, when it stops, what it refuses."""

import json
from dataclasses import replace

import numpy as np
import pytest
import topics
from topics import OF_TARGET, QUERIES, Topics, make_store, noisy, page_of, shown
from topics import pool as by_pool

from migrate.audit.bootstrap import Bootstrap, Floor
from migrate.audit.bounds import Outcome
from migrate.audit.document import report_of
from migrate.audit.inclusion import draw_queries
from migrate.audit.inputs import prepare_audit
from migrate.audit.measures import CUT, ndcg
from migrate.audit.outside import (
    ErrorTail,
    Lately,
    Others,
    Relevant,
    Room,
    discount_after,
    look_around,
    rank_rows,
    score_rows,
)
from migrate.audit.pool import expected_documents, grow_pool
from migrate.audit.query_set import QuerySet
from migrate.audit.results import BM25, FULL, HYBRID, HYBRID_FULL, MEAN, RANDOM, STAY, TRANSLATED
from migrate.audit.retrieval import fuse, search_stores
from migrate.audit.scoring import agreement_temperature, true_scores
from migrate.audit.unjudged import LOSS_AT_MOST, agreement
from migrate.cost.meter import SpendingCap, put_meter
from migrate.embedders import load_embedder
from migrate.embedders.base import WrappedEmbedder
from migrate.embedders.cache import CachedEmbedder
from migrate.errors import SpendingError, StoreError, UsageError
from migrate.manifest import Manifest
from migrate.report.summary import audit_summary
from migrate.search.runs import Rankings, search
from migrate.steps.base import Announce, RunContext
from migrate.stores import open_store
from migrate.vectors import Batch, Document, Query, no_progress

pytestmark = pytest.mark.slow

COUNT, DIM = 2_000, 24


class ManyTopics(Topics):
    """As `Topics`, with as many topics as there are documents."""

    def __init__(self, dim=DIM, blur=0.5, seed=0):
        super().__init__(dim, blur, seed)
        self.centres = np.random.default_rng(seed).normal(size=(COUNT, dim))


N_PARENTS = COUNT // 2
TARGET, SOURCE = ManyTopics(), ManyTopics(12, blur=0.9, seed=1)
DOCUMENTS = [Document(f"d{row:04}", f"t{row if row >= 150 else row % 50} n{row} word{row % 9}") for row in range(COUNT)]
QRELS = {query.id: {f"d{row % 50 + 50 * part:04}": part for part in range(3)} for row, query in enumerate(QUERIES)}
QUERY_SET = QuerySet(QUERIES, QRELS, "many topics")
UNJUDGED = QuerySet(QUERIES, None, "unjudged")
FEWER = QuerySet(QUERIES[:40], QRELS, "fewer")
"""Not so many that the pool of a poor store ends as all documents."""

VECTORS = TARGET.embed_documents(DOCUMENTS)
MANIFEST = Manifest("store", TARGET.identity, details={"index": "index.faiss"})
ASKED = TARGET.embed_queries(QUERIES)
NOISE = np.random.default_rng(3).normal(size=VECTORS.shape).astype(np.float32)
judged_or_not = pytest.mark.parametrize("query_set", [QUERY_SET, UNJUDGED], ids=["judged", "unjudged"])


def soon_settled(query_set):
    """A margin for which a poor store needs no pool of all documents."""
    return 0.95 if query_set.qrels is None else 0.3


def audit(translated, by, query_set=QUERY_SET, **options):
    return topics.audit(translated, by, query_set, **{"embedder": TARGET, **options})


def moved(folder, scale, **options):
    vectors = VECTORS + np.float32(scale) * NOISE
    return make_store(folder, **{"documents": DOCUMENTS, "vectors": vectors, "manifest": MANIFEST, **options})


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("full") / "reference", documents=DOCUMENTS, vectors=VECTORS)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("source") / "source", SOURCE, DOCUMENTS)


@pytest.fixture(scope="module")
def near(tmp_path_factory):
    return moved(tmp_path_factory.mktemp("near") / "translated", 0.05)


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    return moved(tmp_path_factory.mktemp("far") / "translated", 1.0)


class Rows(ManyTopics):
    """As `ManyTopics`, with these vectors of documents."""

    def __init__(self, true):
        super().__init__()
        self.true = true

    def embed(self, texts, role, *, progress=None):
        return super().embed(texts, role) if role == "query" else self.true[[int(text.id[1:]) for text in texts]]


class Counting(WrappedEmbedder):
    """Counts documents, and breaks off when it has embedded so many."""

    def __init__(self, embedder, most=10**9):
        super().__init__(embedder)
        self.most = most
        self.embedded = []

    def around(self, embedder):
        return Counting(embedder, self.most)

    def embed(self, texts, role, *, progress=no_progress):
        if role == "document":
            if len(self.embedded) + len(texts) > self.most:
                raise KeyboardInterrupt
            self.embedded += [text.id for text in texts]
        return self.embedder.embed(texts, role, progress=progress)


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("seed", range(8))
def test_no_query_scores_less_and_no_two_stage_arm_keeps_more_in_a_pool_than_in_truth(seed, metric):
    """Whatever else is in the pool: all judged documents are, and the candidates of the arm."""
    rng = np.random.default_rng(seed)
    count, names = int(rng.integers(40, 200)), [f"q{number}" for number in range(20)]
    ids = [f"d{number:03}" for number in rng.permutation(count)]
    row_of = {doc: row for row, doc in enumerate(ids)}
    true = rng.integers(-2, 3, size=(count, 4)).astype(np.float32)  # with many ties
    translated = true + rng.normal(scale=rng.uniform(0.1, 2), size=true.shape).astype(np.float32)
    queries = dict(zip(names, rng.normal(size=(len(names), 4)).astype(np.float32), strict=True))
    judged = {name: rng.permutation(ids)[: rng.integers(1, 15)].tolist() for name in names}
    qrels = {name: {doc: int(rng.integers(-1, 4)) for doc in docs} for name, docs in judged.items()}

    def ranked(vectors, rows, asked=names):
        found = [Batch([ids[row] for row in rows], vectors[rows])]
        return search(found, asked, np.stack([queries[name] for name in asked]), metric=metric)

    def scores(run):
        return ndcg(run, qrels, names, 10)

    def reranked(candidates):
        """Each query's candidates in the order of their true vectors."""
        runs = {name: ranked(true, rows, [name]).rankings[name] for name, rows in candidates.items()}
        return scores(Rankings(runs))

    first = ranked(translated, np.arange(count))
    firsts = {
        n: {name: np.array([row_of[doc] for doc in first.top(name, n)]) for name in names} for n in (1, 5, 12, 30)
    }
    arms = {str(n): reranked(candidates) for n, candidates in firsts.items()}
    chance = scores(Rankings({name: tuple(rng.permutation(ids)[:10]) for name in names}))
    full = scores(ranked(true, np.arange(count)))
    bootstrap = Bootstrap(seed=1, resamples=300)
    theirs = {**bootstrap.family(arms, full), "chance": bootstrap.retention(chance, full)}
    needed = {row_of[doc] for docs in judged.values() for doc in docs}
    for reached in range(len(firsts) + 1):
        near = {row for n in list(firsts)[:reached] for rows in firsts[n].values() for row in rows.tolist()}
        pool = [row for row in range(count) if row in needed or row in near or rng.random() < 0.1]
        within = scores(ranked(true, np.array(pool)))
        assert (within >= full - 1e-12).all()
        some = dict(list(arms.items())[:reached])
        ours = {**bootstrap.family(some, within, n_others=len(arms) - reached)}
        ours["chance"] = bootstrap.retention(chance, within)
        for name, found in ours.items():
            assert found.estimate <= theirs[name].estimate + 1e-12 and found.lower <= theirs[name].lower + 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_a_floor_lies_below_what_any_others_leave_on_average(seed):
    rng = np.random.default_rng(seed)
    for rank in range(1, CUT + 1):
        others = rng.poisson(rng.exponential(3), size=500)
        kept = [1 / np.log2(rank + n + 1) if rank + n <= CUT else 0 for n in others]
        assert discount_after(rank, 0) == pytest.approx(1 / np.log2(rank + 1))
        assert discount_after(rank, float(others.mean())) <= np.mean(kept) + 1e-12
    assert discount_after(11, 0) == 0


def test_a_floor_widens_the_upper_bound_only_and_one_of_shares_the_lower():
    arm, full = np.random.default_rng(0).uniform(0, 1, (2, 200))
    plain = Bootstrap().retention(arm, full)
    wide = Bootstrap(floor=Floor(full * 0.9, full * 0.8)).retention(arm, full)
    assert wide.lower == plain.lower
    assert wide.estimate == pytest.approx(plain.estimate / 0.9)
    assert wide.upper > Bootstrap().retention(arm, full * 0.8).upper > plain.upper
    shared = Bootstrap(confidence=0.96)  # a fifth of the error of 0.05 is the floor's
    assert wide.upper == shared.retention(arm, full * 0.8).upper
    arm, full = np.random.default_rng(0).uniform(0.8, 1, 200), np.ones(200)
    floor = Floor(np.full(200, 0.98), np.full(200, 0.95), is_share=True)
    plain, wide = Bootstrap().retention(arm, full), Bootstrap(floor=floor).retention(arm, full)
    assert wide.upper == plain.upper
    assert wide.estimate == pytest.approx(0.98 * plain.estimate)
    assert wide.lower < Bootstrap().retention(arm * 0.95, full).lower < plain.lower
    assert wide.lower == shared.retention(arm * 0.95, full).lower


def test_the_tail_of_errors_is_counted_within_them_and_falls_beyond():
    errors = np.random.default_rng(0).normal(scale=0.05, size=400)
    tail = ErrorTail.of(errors)
    gaps = np.linspace(-0.3, 0.6, 200)
    chances = tail(gaps)
    assert (np.diff(chances) <= 1e-12).all() and chances[0] == 1
    inside = gaps <= np.quantile(errors, 0.85)
    assert chances[inside] == pytest.approx([(errors >= gap).mean() for gap in gaps[inside]])
    assert 0 < chances[-1] < 1e-4
    assert (chances >= [(errors >= gap).mean() for gap in gaps]).all()
    assert (ErrorTail.of(np.empty(0))(gaps) == 1).all()


def test_the_sample_is_of_every_band_outside_the_pool_and_counts_are_right(tmp_path):
    count = 3_000
    vectors = np.random.default_rng(0).normal(size=(count, DIM)).astype(np.float32)
    documents = [Document(f"e{row}", "") for row in range(count)]
    store = make_store(tmp_path / "random", documents=documents, vectors=vectors)
    ranked = rank_rows(store, ASKED, 30, progress=no_progress)
    outside = np.random.default_rng(1).random(count) < 0.9
    found, again, other = (
        look_around(store, ASKED, ranked, outside, seed=seed, progress=no_progress) for seed in (0, 0, 1)
    )
    assert (found.rows == again.rows).all() and set(found.rows) != set(other.rows)
    assert (found.counts.sum(axis=1) == outside.sum()).all()
    scores = score_rows(ASKED, store.get(np.arange(count)).vectors, "ip")
    rank_of = (-scores).argsort(axis=1).argsort(axis=1)
    for part, (low, high) in zip(found.drawn, [(0, 40), (40, 160), (160, 640), (640, count)], strict=True):
        assert outside[part.rows].all()
        assert part.scores == pytest.approx(scores[part.queries, part.rows], rel=1e-5, abs=1e-5)
        ranks = rank_of[part.queries, part.rows]
        assert low <= ranks.min() and ranks.max() < high
        assert len(part.rows) == len(QUERIES) * (300 if high == count else 5)
    left = found.without(scores[:, found.rows])
    assert (left.counts.sum(axis=1) == outside.sum() - len(found.rows)).all() and (left.counts >= 0).all()
    same = make_store(tmp_path / "store", documents=DOCUMENTS[:300], vectors=np.ones((300, DIM), dtype=np.float32))
    ranked = rank_rows(same, ASKED, 10, progress=no_progress)
    found = look_around(same, ASKED, ranked, np.ones(300, dtype=bool), seed=0, progress=no_progress)
    assert (found.counts.sum(axis=1) == 300).all() and all(
        np.isfinite(found.tops(query)).all() for query in range(len(found.counts))
    )


def gains_of(scores, temperature):
    """The discounted gains of the first ten, each for itself."""
    first = np.sort(scores)[::-1][:CUT]
    return sum(np.exp(score / temperature) / np.log2(place + 2) for place, score in enumerate(first))


@pytest.mark.parametrize("seed", range(4))
def test_the_share_that_errors_predict_is_no_less_than_what_they_take(seed):
    """Errors of their own for each document, and many times anew; some are as large as the temperature."""
    rng = np.random.default_rng(seed)
    pool, outside = np.sort(rng.normal(1, 0.3, size=CUT))[::-1], rng.normal(-0.5, 0.5, size=500)
    errors = rng.exponential(0.2, size=2_000) * rng.choice([-1, 1], size=2_000)
    room, tail = Room(pool, 0.15), ErrorTail.of(errors)
    grid = room.grid(float(outside.max() + tail.reach(10)))
    predicted = room.share_lost(grid, tail(grid[:, None] - outside).sum(axis=1))
    before = gains_of(pool, 0.15)
    taken = []
    for _ in range(400):
        true = outside + rng.choice(errors, size=len(outside))
        taken.append(1 - before / gains_of([*pool, *true], 0.15))
    assert np.mean(taken) - 2 * np.std(taken) / 20 <= predicted <= 3 * np.mean(taken) + 0.01


def test_a_grid_of_scores_reaches_from_the_tenth_to_the_highest_that_is_expected():
    errors = np.random.default_rng(0).normal(scale=0.1, size=200)
    tail, tops = ErrorTail.of(errors), np.linspace(-1, 0.5, 30)
    others = Others([(tail, tops, np.ones(30)), (ErrorTail.of(np.empty(0)), np.empty(0), np.empty(0))])
    assert others.highest == pytest.approx(0.5 + tail.reach(10)) and tail.reach(10) > errors.max()
    assert others.expected(np.array([others.highest]))[0] < 1e-3 < others.expected(np.array([0.5]))[0]
    assert Others([]).highest == -np.inf
    room = Room(np.linspace(1, 0.1, CUT), 0.2)
    for highest in (others.highest, 5.0):
        grid = room.grid(highest)
        assert (np.diff(grid) > 0).all() or highest < grid[0] + 1.3
        assert grid[0] == pytest.approx(0.1) and grid[-1] == pytest.approx(max(highest, 1.4))
    short = Room(np.array([1.0, 0.8] + [-np.inf] * 8), 0.2)
    assert short.grid(3.0)[0] == pytest.approx(0.8 - 10 * 0.2), "there next to nothing is gained"


def test_what_the_last_documents_took_is_counted_by_ranks_with_and_without_them():
    relevant = Relevant(np.array([0.5, 0.3, 0.2]), np.array([2, 4, 12]), np.array([0.8, 0.5, 0.1]))
    before, loss = relevant.without(Lately(np.zeros(3), np.array([0.9, 0.6, 0.05])))
    discount = [0, *(1 / np.log2(rank + 1) for rank in range(1, 11))]
    assert before.ranks.tolist() == [1, 2, 10] and before.gains.tolist() == [0.5, 0.3, 0.2]
    taken = 0.5 * (1 - discount[2]) + 0.3 * (discount[2] - discount[4]) + 0.2 * discount[10]
    assert loss == pytest.approx(taken)


def unjudged_pool(store, query_set=UNJUDGED, with_words=False, **options):
    """A pool of what the vectors find; with words, BM25 finds some more."""
    asked = topics.asked(store, by_pool(20), query_set, TARGET, **options)
    inputs = asked.open().inputs
    prepared = prepare_audit(inputs)
    experiment = replace(prepared.experiment, ranks_words=with_words)
    runs = search_stores(experiment, for_pool=True)
    return grow_pool(experiment, runs, prepared.costs, inputs.embedder)


ONE_RELEVANT = {query: {max(grades, key=grades.get): 1} for query, grades in QRELS.items()}
ONE_EACH = QuerySet(QUERIES, ONE_RELEVANT, "one relevant document each")
SEVERAL = QuerySet(QUERIES, QRELS, "several relevant documents each")


def kept_at_least(scale, depth, qrels):
    """What two stages keep at least, by brute force: g / (g + b), of all documents and not of a pool."""
    near = np.argsort(-(ASKED @ (VECTORS + np.float32(scale) * NOISE).T), axis=1)[:, :depth]
    true = ASKED @ VECTORS.T
    gained = lost = 0.0
    for number, query in enumerate(QUERIES):
        discount = 1 / np.log2(np.arange(CUT) + 2)
        gains = {int(name[1:]): max(grade, 0) for name, grade in qrels[query.id].items()}
        ideal = np.sort(list(gains.values()))[::-1][:CUT] @ discount[: len(gains)]
        first = set(near[number].tolist())
        for rows, is_arm in ((near[number], True), (np.arange(len(VECTORS)), False)):
            order = rows[np.argsort(-true[number][rows])][:CUT].tolist()
            of_rank = {row: gains.get(row, 0) * each / ideal for row, each in zip(order, discount, strict=False)}
            if is_arm:
                gained += sum(of_rank.values())
            else:
                lost += sum(gain for row, gain in of_rank.items() if row not in first)
    assert lost > 0.02 * len(QUERIES)
    return gained / (gained + lost)


@pytest.mark.parametrize("query_set", [ONE_EACH, SEVERAL], ids=["one each", "several"])
@pytest.mark.parametrize("margin", [0.01, 1.0], ids=["at once", "after all steps"])
def test_all_queries_say_no_more_of_two_stages_than_is_true(far, margin, query_set):
    report = audit(far, by_pool(12), query_set, plan="two-stage-12", margin=margin, ranked_queries=len(QUERIES) - 1)
    kept = report.family["two-stage 12"]
    # One query is not ranked, which makes up to one in 60 of what is gained
    assert 0 < kept.lower < kept.estimate < kept_at_least(1.0, 12, query_set.qrels) + 0.01


def test_both_stores_together_are_judged_by_many_queries_as_two_stages_are(far, source, reference):
    options = {"plan": "together-12", "source": source, "source_model": SOURCE, "margin": 1.0}
    report = audit(far, by_pool(12), ONE_EACH, ranked_queries=len(QUERIES) - 1, **options)
    full = audit(far, reference, ONE_EACH, **options).family["together 12"]
    assert list(report.family) == ["together 12"]
    assert 0 < report.family["together 12"].lower < full.lower and report.family["together 12"].estimate < full.estimate
    assert report.pool.documents < COUNT


def test_relevant_documents_that_are_not_embedded_count_as_found_by_a_full_reembed(far):
    estimates = [
        audit(far, by_pool(12), ONE_EACH, plan="two-stage-12", margin=margin, ranked_queries=40)
        .family["two-stage 12"]
        .estimate
        for margin in (0.01, 1.0)
    ]
    # The first stops before any of them is embedded
    assert estimates[0] < estimates[1] < 1


def test_queries_that_are_not_ranked_need_documents_only_where_the_plan_may_lose_them(far):
    # A margin that is not reached, so that all steps are made
    options = {"plan": "two-stage-12", "margin": 1.0}
    every = audit(far, by_pool(12), ONE_EACH, **options)
    embedder = Counting(TARGET)
    some = audit(far, by_pool(12), ONE_EACH, embedder=embedder, ranked_queries=30, **options)
    assert some.pool.documents == len(set(embedder.embedded)) < every.pool.documents
    assert f"by {len(QUERIES)} queries, of which 30, drawn at random" in shown(some)


def test_few_ranked_queries_call_nothing_safe_but_the_plan(tmp_path):
    store = moved(tmp_path / "translated", 0.5)
    report = audit(store, by_pool(12), ONE_EACH, plan="two-stage-12", margin=0.5, ranked_queries=30)
    assert report.outcome is Outcome.SAFE, report.examination.doubts
    assert report.verdict.outcome is Outcome.INCONCLUSIVE and list(report.family) == ["two-stage 12"]
    assert "--ranked-queries" in report.verdict.sentence


def test_judgements_that_show_no_loss_may_not_be_able_to(near):
    report = audit(near, by_pool(12), ONE_EACH, plan="two-stage-12", margin=0.5, ranked_queries=30)
    assert report.family["two-stage 12"].lower > 0.5
    assert report.outcome is Outcome.INCONCLUSIVE
    assert any("too few to tell a plan that loses nothing" in each for each in report.examination.doubts)


def test_judgements_of_what_the_store_finds_show_nothing(far):
    found = np.argsort(-(ASKED @ (VECTORS + NOISE).T), axis=1)
    ids = far.ids(range(len(VECTORS)))
    clicked = {query.id: {ids[found[number, number % 10]]: 1} for number, query in enumerate(QUERIES)}
    clicks = QuerySet(QUERIES, clicked, "clicks")
    report = audit(far, by_pool(12), clicks, plan="two-stage-12", margin=0.5, ranked_queries=30)
    assert report.family["two-stage 12"].lower > 0.5
    assert report.outcome is Outcome.INCONCLUSIVE
    assert any("made from what the store finds" in each for each in report.examination.doubts)
    assert any("such as clicks" in each for each in report.examination.caveats)


@pytest.mark.parametrize(
    "options",
    [
        {"ranked_queries": 10, "plan": "two-stage-12"},
        {"ranked_queries": 40, "plan": "translated"},
        {"ranked_queries": 40, "plan": "two-stage-12", "reference": "full"},
    ],
    ids=["too few", "a plan that ranks nothing again", "no pool"],
)
def test_ranked_queries_judge_a_plan_that_ranks_again_by_a_pool(options, near):
    reference = options.pop("reference", "pool:12")
    with pytest.raises(UsageError, match="--ranked-queries"):
        topics.asked(near, {"reference": reference}, ONE_EACH, **options).check()


def test_a_text_is_drawn_no_more_often_for_being_repeated(near):
    repeated = [Query(f"again {time} {query.id}", query.text) for time in range(9) for query in QUERIES[:5]]
    grades = {query.id: ONE_RELEVANT[QUERIES[number % 5].id] for number, query in enumerate(repeated)}
    questions = QuerySet([*QUERIES, *repeated], {**ONE_RELEVANT, **grades}, "five asked ten times")
    often = {query.id for query in QUERIES[:5]}
    n_drawn = 0
    for seed in range(20):
        step = topics.asked(near, by_pool(12), questions, TARGET, plan="two-stage-12", ranked_queries=20, seed=seed)
        drawn = draw_queries(prepare_audit(step.open().inputs).experiment).query_set.distinct
        assert len(drawn) == 20
        n_drawn += len(often.intersection(query.id for query in drawn))
    # Were queries drawn and not texts, nearly all 100 would be there
    assert n_drawn < 60


def telling(steps):
    """The context of an audit that adds each step of its pool to a list, before it is embedded."""
    return RunContext(announce=Announce(pool=steps.append))


def true_scores_of(evidence, run):
    return true_scores(evidence.experiment, evidence.runs.full, run)


@pytest.mark.parametrize(("scale", "metric"), [(0.1, "ip"), (1.0, "ip"), (0.4, "l2")])
def test_true_agreement_lies_between_the_floor_and_agreement_in_the_pool(scale, metric, tmp_path):
    pool = unjudged_pool(moved(tmp_path / "store", scale, metric=metric))
    assert 0 < pool.summary.documents < 0.8 * COUNT
    evidence = pool.evidence
    arm, within = (true_scores_of(evidence, evidence.runs.by_store[name].run) for name in (TRANSLATED, FULL))
    temperature = agreement_temperature(evidence.experiment, evidence.runs.full)
    scores = score_rows(ASKED.astype(np.float64), VECTORS.astype(np.float64), metric)
    best = -np.sort(-scores, axis=1)[:, :CUT]
    assert np.isfinite(arm).all(), "the arm's first ten are in the pool"
    true, pooled = (agreement(arm, full, temperature=temperature) for full in (best, within))
    assert (pooled >= true - 1e-6).all() and pooled.mean() > true.mean()
    floor = evidence.rules.floor
    least, expected = (UNJUDGED.merged(pooled) * values for values in (floor.least, floor.expected))
    assert least.mean() <= UNJUDGED.merged(true).mean()
    assert expected.mean() == pytest.approx(UNJUDGED.merged(true).mean(), abs=0.1)


@pytest.mark.parametrize(("scale", "outcome"), [(0.0, Outcome.SAFE), (2.0, Outcome.NOT_SAFE)])
def test_a_verdict_without_judgements_is_that_of_the_full_audit(scale, outcome, reference, tmp_path):
    store = moved(tmp_path / "store", scale)
    full, pooled = (audit(store, by, UNJUDGED, margin=0.8) for by in (reference, by_pool()))
    assert (full.verdict.outcome, pooled.verdict.outcome) == (outcome, outcome)
    assert pooled.verdict.scale.provisional and pooled.pool.documents < COUNT
    assert pooled.pool.steps[0].depth == 20
    assert {RANDOM, MEAN} <= pooled.skipped_arms.keys()
    text = shown(pooled)
    assert "guaranteed, " in text and "upper bounds of agreement@10" in text
    assert "estimated: agreement@10 of the verdict" in text
    assert report_of(pooled).document["pool"]["provisional"] is True
    assert f"{outcome}, provisional" in page_of(pooled)


def audits_of(true, translated, depth, query_set, tmp_path):
    store, full = (
        make_store(tmp_path / name, documents=DOCUMENTS, vectors=vectors, manifest=manifest)
        for name, vectors, manifest in (("store", translated, MANIFEST), ("full", true, None))
    )
    return [audit(store, by, query_set, embedder=Rows(true)) for by in (full, by_pool(depth))]


def test_what_a_pool_misses_does_not_make_a_store_safe(tmp_path):
    """Documents that are the best for many queries are translated to anywhere: in the pool alone nothing is lost."""
    rng = np.random.default_rng(0)
    hidden = rng.permutation(np.arange(150, COUNT))[: COUNT // 10]
    true, translated = VECTORS.copy(), VECTORS.copy()
    true[hidden] = 1.5 * ASKED[rng.integers(len(ASKED), size=len(hidden))]
    translated[hidden] = rng.normal(size=(len(hidden), DIM))
    full, pooled = audits_of(true, translated, 20, UNJUDGED, tmp_path)
    assert full.verdict.outcome is not Outcome.SAFE
    assert pooled.verdict.outcome is not Outcome.SAFE
    assert pooled.verdict.retention.lower <= full.verdict.retention.estimate


def test_what_a_pool_misses_does_not_make_a_store_not_safe(tmp_path):
    """Documents that the stitch has misplaced come before the relevant ones: the full re-embed is bad, retention good.

    In a pool without them it is significantly below the margin.
    """
    rng = np.random.default_rng(0)
    hidden = rng.permutation(np.arange(150, COUNT))[: COUNT // 50]
    wanted = [int(doc[1:]) for docs in QRELS.values() for doc, grade in docs.items() if grade]
    true, translated = VECTORS.copy(), VECTORS + np.float32(0.73) * rng.normal(size=VECTORS.shape).astype(np.float32)
    true[hidden] = 1.05 * VECTORS[rng.choice(wanted, size=len(hidden))]
    translated[hidden] = rng.normal(size=(len(hidden), DIM))
    full, pooled = audits_of(true, translated, 10, QUERY_SET, tmp_path)
    assert full.verdict.outcome is not Outcome.NOT_SAFE
    biased = Bootstrap(resamples=500).retention(*(pooled.arm(name).scores["nDCG@10"] for name in (TRANSLATED, FULL)))
    assert biased.upper < full.verdict.scale.safe, "the pool alone would have said it"
    assert pooled.verdict.outcome is not Outcome.NOT_SAFE
    assert pooled.verdict.retention.upper >= full.verdict.retention.estimate


@pytest.fixture
def chunked(tmp_path):
    """A poor translation of documents of two chunks each, which lie far apart."""
    chunks = [Document(doc.id, doc.text, {"parent_id": f"p{row % N_PARENTS:03}"}) for row, doc in enumerate(DOCUMENTS)]
    return chunks, moved(tmp_path / "store", 2, documents=chunks)


def test_all_chunks_of_the_first_documents_are_in_the_pool(chunked):
    """The true score of a document is that of its best chunk."""
    evidence = unjudged_pool(chunked[1]).evidence
    run = evidence.runs.by_store[TRANSLATED].run
    scores = (ASKED @ VECTORS.T).reshape(len(QUERIES), -1, N_PARENTS).max(axis=1)
    tops = [[int(doc[1:]) for doc in run.top(query.id, CUT)] for query in QUERIES]
    assert true_scores_of(evidence, run) == pytest.approx(np.take_along_axis(scores, np.array(tops), axis=1), rel=1e-5)


def test_all_chunks_of_a_judged_document_are_in_the_pool(chunked, tmp_path):
    """The full re-embed scores no less, though the arms miss many."""
    chunks, store = chunked
    qrels = {query.id: {f"p{row % 50:03}": 1, f"p{row % 50 + 50:03}": 2} for row, query in enumerate(QUERIES)}
    query_set = QuerySet(QUERIES, qrels, "chunks")
    full = audit(store, make_store(tmp_path / "full", documents=chunks, vectors=VECTORS), query_set)
    counting = Counting(TARGET)
    pooled = audit(store, by_pool(10), query_set, embedder=counting)
    assert pooled.pool.documents < COUNT and pooled.data.n_documents == full.data.n_documents == N_PARENTS
    judged = {chunk.id for chunk in chunks if int(chunk.metadata["parent_id"][1:]) < 100}
    assert judged <= set(counting.embedded)
    assert (pooled.arm(FULL).scores["nDCG@10"] >= full.arm(FULL).scores["nDCG@10"] - 1e-12).all()


def test_the_first_documents_of_every_arm_are_in_the_pool(far, source):
    evidence = unjudged_pool(far, with_words=True, source=source, source_model=SOURCE).evidence
    runs = evidence.runs
    for run in (runs.by_store[STAY], runs.bm25, fuse(evidence.experiment, runs.by_store[TRANSLATED], runs.bm25)):
        assert np.isfinite(true_scores_of(evidence, run.run)).all()


def test_a_query_is_not_answered_by_its_own_document(tmp_path):
    asked = [Query(doc.id, doc.text) for doc in DOCUMENTS[200:260]]
    store = moved(tmp_path / "store", 0.3)
    pool = unjudged_pool(store, query_set=QuerySet(asked, None, "made", exclude_self=True))
    run = pool.evidence.runs.full
    assert set(run.rankings) == {query.id for query in asked}
    assert not any(query.id in run.rankings[query.id] for query in asked)


@pytest.mark.parametrize(
    ("depth", "query_set", "options", "error", "words"),
    [
        (1, QUERY_SET, {}, UsageError, "pool:1:"),
        (10, UNJUDGED, {}, UsageError, "pool:20 or more, as nothing is"),
        (None, QUERY_SET, {"source_model": TARGET}, StoreError, "is the audited store itself"),
        (None, QUERY_SET, {"embedder": ManyTopics(seed=5)}, StoreError, "was not translated for"),
    ],
)
def test_what_no_pool_can_do_is_refused_before_it_is_paid_for(depth, query_set, options, error, words, near):
    counting = Counting(options.get("embedder", TARGET))
    source = near if "source_model" in options else None
    with pytest.raises(error, match=words):
        audit(near, by_pool(depth), query_set, source=source, **{**options, "embedder": counting})
    assert counting.embedded == []


def test_what_a_deeper_pool_may_settle_without_judgements_is_said(tmp_path):
    """Between what is certain of agreement and what it may be lies the limit: at some margin it has to."""
    store = moved(tmp_path / "store", 0.3)
    bounds = audit(store, by_pool(20), UNJUDGED).verdict.retention
    pool = unjudged_pool(store)
    within = pool.evidence.scores(pool.evidence.runs.by_store[TRANSLATED].run)
    most = Bootstrap(resamples=500).retention(within, np.ones(len(within)))
    assert bounds.lower < most.lower, "the floor costs something"
    margin = 1 - LOSS_AT_MOST * (1 - (bounds.lower + most.lower) / 2)  # the limit of SAFE is between
    report = audit(store, by_pool(20), UNJUDGED, margin=margin)
    assert report.verdict.outcome is Outcome.INCONCLUSIVE
    assert "a deeper pool may settle it" in report.verdict.sentence
    assert "which SAFE needs at least, lies within the bounds" in report.verdict.sentence


def test_a_good_translation_is_safe_by_its_first_documents(near, reference):
    full, pooled = (audit(near, by, margin=0.8) for by in (reference, by_pool()))
    assert (full.verdict.outcome, pooled.verdict.outcome) == (Outcome.SAFE, Outcome.SAFE)
    assert [step.depth for step in pooled.pool.steps] == [10], "SAFE needs no more"
    assert pooled.pool.documents < COUNT / 2 and pooled.pool.sampled > 0
    assert pooled.verdict.retention.lower <= full.verdict.retention.lower
    assert (pooled.arm(FULL).scores["nDCG@10"] >= full.arm(FULL).scores["nDCG@10"] - 1e-12).all()


def test_bounds_enclose_those_of_the_full_audit(reference, tmp_path):
    translated = moved(tmp_path / "translated", 0.3)
    full, pooled = (audit(translated, by) for by in (reference, by_pool()))
    assert pooled.verdict.retention.lower <= full.verdict.retention.lower
    assert pooled.verdict.retention.upper >= full.verdict.retention.upper - 1e-9
    for name in (TRANSLATED, BM25, HYBRID):
        assert (pooled.arm(name).scores["nDCG@10"] == full.arm(name).scores["nDCG@10"]).all()


def test_another_model_is_found_out_before_the_pool_is_paid_for(good):
    class Turned(Counting):
        def embed(self, texts, role, *, progress=no_progress):
            return np.ascontiguousarray(super().embed(texts, role, progress=progress)[:, ::-1])

    query_set = QuerySet(good.queries, good.qrels, "docstrings")
    right, turned = (kind(good.embedder) for kind in (Counting, Turned))
    audit(open_store(good.translated), by_pool(), query_set, embedder=right)
    with pytest.raises(StoreError, match=r"differs from .* true vectors of"):
        audit(open_store(good.translated), by_pool(), query_set, embedder=turned)
    assert len(turned.embedded) == 32 < len(right.embedded)


def test_the_pool_deepens_for_queries_that_matter_until_it_is_settled(far):
    steps = []
    report = audit(far, by_pool(), FEWER, context=telling(steps))
    depths = [step.depth for step in report.pool.steps]
    usual = [10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000]
    assert len(depths) > 1 and depths == usual[: len(depths)] and tuple(steps) == report.pool.steps
    assert report.verdict.outcome is Outcome.NOT_SAFE
    assert sum(step.documents for step in steps) == report.pool.documents < COUNT
    assert steps[0].queries == len(FEWER.queries) > steps[1].queries
    assert report.pool.share == report.pool.documents / COUNT
    before = audit(far, by_pool(depths[-2]), FEWER)
    assert before.verdict.outcome is Outcome.INCONCLUSIVE, "the last step has settled it"
    assert "`--reference pool:N`" in before.verdict.sentence


@pytest.mark.parametrize(("query_set", "stages"), [(QUERY_SET, ()), (QUERY_SET, (100,)), (UNJUDGED, (20,))])
def test_what_the_first_step_embeds_is_about_what_was_estimated(stages, query_set, near):
    steps = []
    options = {"two_stage": stages, "margin": 0.5}
    audit(near, by_pool(200), query_set, context=telling(steps), **options)
    embedded = sum(step.documents for step in steps if step.queries == len(QUERIES))
    expected = list(expected_documents(near, query_set, 0, stages=stages, seed=0))
    assert len(expected) == len({document.id for document in expected}) < COUNT
    assert len(expected) == pytest.approx(embedded, rel=0.35)


def test_a_deeper_pool_is_bought_neither_for_few_queries_nor_beyond_what_is_asked_for(near, far):
    report = audit(near, by_pool(), QuerySet(QUERIES[:15], QRELS, "few"))
    assert report.verdict.outcome is Outcome.INCONCLUSIVE
    assert len(report.pool.steps) == 1 and report.verdict.remedy is None
    report = audit(far, by_pool(13), margin=0.65)
    assert [step.depth for step in report.pool.steps] in ([10], [10, 13]) and report.pool.depth in (10, 13)


def test_a_store_of_few_documents_ends_as_the_full_audit_does_and_has_all_arms(tmp_path):
    few = make_store(tmp_path / "few", vectors=noisy(1.0), manifest=OF_TARGET)
    report, other = (topics.audit(few, by) for by in (by_pool(), make_store(tmp_path / "reference")))
    assert report.pool.is_exact and report.pool.documents == 150
    assert report.verdict == other.verdict
    assert [arm.name for arm in report.arms] == [arm.name for arm in other.arms]
    assert report.arm(TRANSLATED).scores.keys() == other.arm(TRANSLATED).scores.keys()
    margin = report.verdict.retention.estimate
    open_still = topics.audit(few, by_pool(), margin=margin)
    assert open_still.verdict.outcome is Outcome.INCONCLUSIVE and open_still.pool.is_exact
    assert open_still.verdict.remedy is None, "no pool is deeper than all documents"
    report = topics.audit(few, by_pool(), two_stage=(20, 149, 150))
    assert report.pool.is_exact and list(report.family) == ["two-stage 20", "two-stage 149"]
    (caveat,) = report.examination.caveats
    assert caveat.startswith("left out: two-stage 150 ")


@judged_or_not
def test_the_old_store_beside_the_new_one_scores_what_it_does_by_all_documents(query_set, far, reference, source):
    options = {"source": source, "source_model": SOURCE, "two_stage": [10], "margin": soon_settled(query_set)}
    full, pooled = (audit(far, by, query_set, **options) for by in (reference, by_pool()))
    assert not pooled.pool.is_exact
    for name in ("together", "together 10"):
        ours, whole = pooled.arm(name).scores[pooled.data.measure], full.arm(name).scores[pooled.data.measure]
        if query_set is QUERY_SET:
            assert ours.tolist() == whole.tolist()
        assert pooled.family[name].lower <= full.family[name].estimate + 1e-9


def test_without_two_stages_the_old_store_is_tried_beside_the_new_one_alone(far, source):
    shallow = audit(far, by_pool(), source=source, source_model=SOURCE, two_stage=None)
    assert "together" in shallow.family and "together 20" not in shallow.family


def test_against_staying_a_pool_is_exact(far, reference, source):
    full, pooled = (audit(far, by, source=source, source_model=SOURCE) for by in (reference, by_pool()))
    assert pooled.verdict.gain_over_stay == full.verdict.gain_over_stay
    assert STAY in {arm.name for arm in pooled.arms}


@judged_or_not
def test_two_stages_are_exact_in_a_pool(query_set, far):
    report = audit(far, by_pool(), query_set, two_stage=(7, 20, 40), margin=soon_settled(query_set))
    assert report.pool.documents < COUNT
    asked, true = ASKED.astype(float), VECTORS.astype(float)
    order = np.argsort(-(asked @ far.get(np.arange(COUNT)).vectors.astype(float).T), axis=1)
    for depth in (7, 20, 40):
        scores = report.arm(f"two-stage {depth}").scores
        if query_set.qrels is None:
            assert scores["agreement@10"].mean() > report.arm(TRANSLATED).mean("agreement@10")
            continue
        firsts = zip(QUERIES, asked, order[:, :depth], strict=True)
        run = {
            query.id: tuple(DOCUMENTS[row].id for row in first[np.argsort(-true[first] @ vector)])
            for query, vector, first in firsts
        }
        assert scores["nDCG@10"].tolist() == ndcg(Rankings(run), QRELS, list(run), 10).tolist()


def test_documents_that_tie_are_those_of_the_pool(tmp_path):
    """Many rows of one vector, whose ids are not in the order of the rows."""
    documents = [Document(f"e{COUNT - row:04}", doc.text) for row, doc in enumerate(DOCUMENTS)]
    qrels = {query.id: {documents[row].id: 1} for row, query in enumerate(QUERIES)}
    translated = np.repeat(VECTORS[::100], 100, axis=0)
    full = make_store(tmp_path / "full", documents=documents, vectors=VECTORS)
    store = make_store(tmp_path / "store", documents=documents, vectors=translated, manifest=MANIFEST)
    options = {"embedder": Rows(np.vstack([VECTORS[:1], VECTORS[::-1]])), "two_stage": (20, 30)}
    one, other = (audit(store, by, QuerySet(QUERIES, qrels, "ties"), **options) for by in (full, by_pool(30)))
    assert not other.pool.is_exact
    assert (one.arm("two-stage 20").scores["nDCG@10"] == other.arm("two-stage 20").scores["nDCG@10"]).all()


def test_the_pool_goes_as_deep_as_is_asked_for_every_query(far):
    asked, usual, none = (audit(far, by_pool(), two_stage=depths, margin=0.3) for depths in ((50,), None, ()))
    assert [(step.depth, step.queries) for step in asked.pool.steps] == [(20, len(QUERIES)), (50, len(QUERIES))]
    assert "two-stage 50" in asked.family and "left out" not in " ".join(asked.examination.caveats)
    assert [step.depth for step in usual.pool.steps] == [20]
    assert list(usual.family) == ["two-stage 20"] and "left out" not in " ".join(usual.examination.caveats)
    need = "needs the first 50 documents of every query, of which the pool has 20: `--two-stage 50`"
    assert usual.skipped_arms["two-stage 50"] == need
    assert none.pool.steps[0].depth == 10 and none.pool.documents < usual.pool.documents


def test_where_nothing_is_safe_yet_and_what_is_embedded_is_kept_two_stages_are_tried_deeper(far, tmp_path):
    by = {}
    for keeps in (False, True):
        embedder = CachedEmbedder(TARGET, tmp_path / f"{keeps}.sqlite", keeps=keeps)
        by[keeps] = audit(far, by_pool(), FEWER, embedder=embedder, two_stage=None)
        assert by[keeps].verdict.outcome is not Outcome.SAFE
    assert by[False].family["two-stage 20"].lower < 0.95 and "two-stage 50" not in by[False].family
    last = by[True].pool.steps[-1]
    assert (last.depth, last.queries) == (50, len(FEWER.queries))
    assert by[True].family["two-stage 50"].lower > by[True].family["two-stage 20"].lower
    named = audit(far, by_pool(), FEWER, embedder=embedder, two_stage=(20,))
    assert (50, len(FEWER.queries)) not in [(step.depth, step.queries) for step in named.pool.steps], (
        "others are asked for"
    )
    safe = audit(far, by_pool(), FEWER, embedder=embedder, two_stage=None, margin=0.3)
    assert safe.pool.steps[-1].depth == 20, "it is SAFE, so there is nothing to look for"


def test_an_arm_that_is_asked_for_is_not_left_out_without_a_line(far):
    report = audit(far, by_pool(10), two_stage=(10, 50))
    assert list(report.family) == ["two-stage 10"]
    need = "needs the first 50 documents of every query, of which the pool has 10: `--reference pool:50`"
    line = f"left out: two-stage 50 {need}"
    assert line in report.examination.caveats
    assert f"caveat: {line}" in audit_summary(report_of(report)).replace("\n  ", " ")
    report = audit(far, by_pool(), two_stage=(COUNT,))
    (caveat,) = report.examination.caveats
    assert caveat == f"left out: two-stage {COUNT} would embed the whole store, of 2,000 documents"


def test_an_audit_that_broke_off_embeds_nothing_twice(near, tmp_path):
    whole = Counting(TARGET)
    expected = audit(near, by_pool(), embedder=whole)
    broken, resumed = Counting(TARGET, most=len(whole.embedded) // 2), Counting(TARGET)
    broken.batch_size = 100
    cache = tmp_path / "cache.sqlite"
    with pytest.raises(KeyboardInterrupt):
        audit(near, by_pool(), embedder=CachedEmbedder(broken, cache))
    report = audit(near, by_pool(), embedder=CachedEmbedder(resumed, cache))
    assert broken.embedded and not set(broken.embedded) & set(resumed.embedded)
    assert sorted(broken.embedded + resumed.embedded) == sorted(whole.embedded)
    assert report.verdict == expected.verdict


def capped(usd):
    return put_meter(TARGET, TARGET.profile.counter, 1.0, SpendingCap(usd))


def test_a_cap_leaves_out_two_stages_with_a_line(far):
    embedder, _ = capped(10.0)
    audit(far, by_pool(), embedder=embedder, two_stage=None, margin=0.3)
    embedder, _ = capped(embedder.usd * 1.1)
    report = audit(far, by_pool(), embedder=embedder, two_stage=(20, 100), margin=0.3)
    assert list(report.family) == ["two-stage 20"] and "raise --max-cost" in report.pool.stopped
    assert "of which the pool has 20: raise `--max-cost`" in report.examination.caveats[-1]


def test_a_cap_ends_the_pool_where_it_is(far, reference):
    embedder, meter = capped(0.001)
    with pytest.raises(SpendingError, match="raise --max-cost"):
        audit(far, by_pool(), embedder=embedder)
    assert meter.usd <= 0.001, "the first step costs too much"
    truth = audit(far, reference).verdict.retention
    margin = min((truth.estimate + truth.upper) / 2, 1.0)
    assert len(audit(far, by_pool(), margin=margin).pool.steps) > 1, "the margin is too near for the first step"
    embedder, _ = capped(10.0)
    audit(far, by_pool(10), embedder=embedder, margin=margin)
    cap = embedder.usd * 1.1
    embedder, meter = capped(cap)
    report = audit(far, by_pool(), embedder=embedder, margin=margin)
    assert report.verdict.outcome is Outcome.INCONCLUSIVE
    assert meter.usd <= cap
    assert len(report.pool.steps) == 1 and "raise --max-cost" in report.pool.stopped
    assert report.pool.stopped in shown(report)


def test_without_texts_there_is_no_pool(tmp_path):
    bare = moved(tmp_path / "bare", 0.1, texts=False)
    by_row = {query: {str(int(doc[1:])): grade for doc, grade in docs.items()} for query, docs in QRELS.items()}
    with pytest.raises(StoreError, match=r"has no texts to embed for a pool.*file:PATH"):
        audit(bare, by_pool(), QuerySet(QUERIES, by_row, "rows"))


def write_file(path, ids):
    rows = [int(doc_id[1:]) for doc_id in ids]
    np.savez(path, doc_ids=ids, docs=VECTORS[rows], query_ids=[query.id for query in QUERIES], queries=ASKED)
    return load_embedder(f"file:{path}")


def test_a_file_of_vectors_serves_a_store_without_texts(tmp_path):
    bare = moved(tmp_path / "bare", 0.05)
    (bare.folder / "docs.jsonl").write_text("".join(json.dumps({"id": doc.id}) + "\n" for doc in DOCUMENTS))
    store = open_store(bare.folder)
    assert not store.info.has_texts
    embedder = write_file(tmp_path / "target.npz", [doc.id for doc in DOCUMENTS])
    report = audit(store, by_pool(), embedder=embedder, margin=0.8)
    assert report.pool.documents < COUNT and report.pool.tokens is None
    assert report.verdict.outcome is Outcome.INCONCLUSIVE, "a file does not say whose vectors it has"
    assert "file:target.npz is not the file" in report.examination.doubts[0]


def test_a_judged_document_that_is_not_in_the_store_is_said_as_ever(near, reference):
    strange = QuerySet(QUERIES, {query: {**docs, "nowhere": 1} for query, docs in QRELS.items()}, "strange")
    pooled, full = (audit(near, by, strange, margin=0.5) for by in (by_pool(), reference))
    (caveat,) = pooled.examination.caveats
    assert full.examination.caveats == (caveat,)
    assert (pooled.arm(FULL).scores["nDCG@10"] >= full.arm(FULL).scores["nDCG@10"] - 1e-12).all()


def test_a_store_that_does_not_say_its_model_is_never_safe(tmp_path):
    report = audit(moved(tmp_path / "silent", 0, manifest=None), by_pool(), margin=0.5)
    assert report.verdict.outcome is Outcome.INCONCLUSIVE
    assert any("nothing shows that topics-0 is the model" in doubt for doubt in report.examination.doubts)


def test_every_form_of_the_report_has_the_pool(near):
    report = audit(near, by_pool(), margin=0.8, price=2.0)
    text, document, page = shown(report), report_of(report).document, page_of(report)
    pool = document["pool"]
    assert f"true vectors of {pool['documents']:,} of 2,000 documents" in text
    assert "guaranteed:" in text and "estimated:" in text
    assert pool["usd"] < pool["full_usd"] and pool["share"] == pool["documents"] / COUNT
    assert pool["steps"][0]["depth"] == 10
    assert "The pool" in page and "documents embedded" in page
    assert HYBRID_FULL in document["missing"] and "--reference build" in document["missing"][HYBRID_FULL]
    assert not any("overlap" in measure for arm in document["arms"] for measure in arm["means"])
    assert document["held_out"] is None
    assert "How much of what the full re-embed finds" not in text


def test_a_fitted_translation_is_safe_in_the_pool_only_where_the_full_audit_says_it(good, monkeypatch):
    monkeypatch.setattr("migrate.audit.pool.SAMPLED", 40)
    query_set = QuerySet(good.queries[:21], good.qrels, "docstrings")
    options = {"embedder": good.embedder, "margin": 0.9}
    translated = open_store(good.translated)
    pooled, full = (audit(translated, by, query_set, **options) for by in (by_pool(), open_store(good.reference)))
    assert pooled.pool.steps[0].documents < 300
    assert pooled.examination.reference.proven
    assert pooled.verdict.retention.lower <= full.verdict.retention.lower
    assert pooled.verdict.outcome in (full.verdict.outcome, Outcome.INCONCLUSIVE)
    assert pooled.examination.held_out.verdict.retention.lower <= full.examination.held_out.verdict.retention.lower
