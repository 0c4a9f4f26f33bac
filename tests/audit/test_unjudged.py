"""Audits of queries that nobody has judged: the measure, its limits, the queries, and what a user is told."""

import json
import math
import re
import shutil
import statistics
from xml.etree import ElementTree

import numpy as np
import pytest
from paired_scores import judge
from topics import (
    DOCUMENTS,
    N_DOCUMENTS,
    QRELS,
    QUERIES,
    SOURCE,
    TARGET,
    audit,
    halves,
    make_store,
    noisy,
    page_of,
    shown,
)
from topics import UNJUDGED as LOG

from migrate import fit, translate
from migrate.audit.bounds import Outcome
from migrate.audit.document import report_of
from migrate.audit.query_set import QuerySet, load_questions, load_unjudged, synthetic_queries
from migrate.audit.results import FULL, RANDOM, STAY, TRANSLATED
from migrate.audit.unjudged import LOSS_AT_LEAST, LOSS_AT_MOST, agreement, limits_of
from migrate.cli.main import run
from migrate.datasets.beir import write_beir
from migrate.datasets.synthetic import make_queries
from migrate.embedders import load_embedder
from migrate.errors import DatasetError, InconclusiveError, StoreError
from migrate.report.suite import audit_suite, junit_xml
from migrate.stores import open_store
from migrate.vectors import Document, Query, query_key

pytestmark = pytest.mark.slow

K = 10
LIMITS = limits_of(0.95)


def plainly(arm, full):
    """The definition in `docs/statistics.md`, one document at a time."""
    spread = statistics.median([ranking[0] - ranking[-1] for ranking in full])
    found = []
    for own, best in zip(arm, full, strict=True):
        sums = []
        for ranking in (own, best):
            total = 0.0
            for place, score in enumerate(ranking, start=1):
                total += math.exp((score - best[0]) / (0.15 * spread)) / math.log2(place + 1)
            sums.append(total)
        found.append(sums[0] / sums[1])
    return found


def drawn(seed, queries=40, documents=200):
    """True scores of all documents for each query."""
    return np.random.default_rng(seed).normal(0.3, 0.1, size=(queries, documents))


def best_of(scores):
    return -np.sort(-scores, axis=1)[:, :K]


def ranked(scores, by):
    return np.take_along_axis(scores, np.argsort(-by, axis=1)[:, :K], axis=1)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_the_definition_says(seed):
    scores = drawn(seed)
    arm = ranked(scores, scores + np.random.default_rng([seed, 1]).normal(0, 0.05, size=scores.shape))
    found = agreement(arm, best_of(scores))
    assert found == pytest.approx(plainly(arm, best_of(scores)), rel=1e-12)
    assert 0.1 < found.mean() < 0.9


def test_documents_of_equal_scores_stand_for_each_other():
    full = np.array([[0.9, 0.5, 0.5, 0.5, 0.1]])
    assert agreement(full[:, [0, 2, 3, 1, 4]], full) == pytest.approx(1)
    assert agreement(full[:, [1, 0, 2, 3, 4]], full) < 0.8
    equal = np.full((3, K), 0.7)
    assert (agreement(equal, equal) == 1).all(), "where everything ties there is nothing to lose"
    assert (agreement(equal - 0.1, equal) == 0).all()


def test_a_document_above_the_best_of_the_full_reembed_gains_no_more_than_that():
    full = np.array([[0.9, 0.5, 0.1]])
    above, equal = (np.array([[best, -np.inf, -np.inf]]) for best in (1.5, 0.9))
    assert agreement(above, full) == agreement(equal, full) < 1


def test_what_is_not_answered_scores_0():
    full = np.array([[0.9, 0.5, 0.1], [-np.inf] * 3, [0.8, 0.7, -np.inf]])
    arm = np.array([[-np.inf] * 3, [-np.inf] * 3, [0.8, -np.inf, -np.inf]])
    found = agreement(arm, full)
    assert found[:2].tolist() == [0, 0] and 0 < found[2] < 1
    assert agreement(full, full).tolist() == [1, 0, 1]
    assert agreement(np.empty((4, 0)), np.empty((4, 0))).tolist() == [0] * 4


def test_limits_follow_from_the_margin():
    limits = limits_of(0.95)
    assert limits.safe == pytest.approx(1 - 0.05 / LOSS_AT_MOST)
    assert limits.harmful == pytest.approx(1 - 0.05 / LOSS_AT_LEAST)
    assert limits_of(0.5).harmful == 0 and limits_of(0.5).safe > 0.5
    assert (limits.safe, limits.harmful) == pytest.approx((0.9615, 0.875), abs=1e-4), "as the documentation has them"


@pytest.mark.parametrize(
    ("level", "outcome", "says"),
    [
        (1.0, Outcome.SAFE, "which stands for a retention of 95 %"),
        ((LIMITS.safe + LIMITS.harmful) / 2, Outcome.INCONCLUSIVE, "and no number of queries decides"),
        (LIMITS.harmful - 0.1, Outcome.NOT_SAFE, "which stands for a retention below 95 %"),
    ],
)
def test_between_the_limits_only_judgements_help(level, outcome, says):
    verdict = judge(np.full(2_000, level), np.ones(2_000), provisional=True, resamples=500)
    assert verdict.outcome is outcome and says in verdict.sentence
    assert verdict.sentence.startswith("agreement@10 ")
    assert verdict.queries_needed is None


@pytest.mark.parametrize(
    ("margin", "harm"),
    [
        (0.95, "below 0.875 is NOT SAFE"),
        (0.7, "below 0.250 is NOT SAFE"),
        (0.6, "none is NOT SAFE by agreement at this margin"),
        (0.5, "none is NOT SAFE by agreement at this margin"),
    ],
)
def test_at_any_margin_the_sentence_says_what_is_not_safe(margin, harm):
    limits = limits_of(margin)
    level = (limits.safe + limits.harmful) / 2
    verdict = judge(np.full(2_000, level), np.ones(2_000), margin=margin, provisional=True, resamples=500)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert f"; SAFE needs at least {limits.safe:.3f}, {harm}, and no number of queries decides" in verdict.sentence


@pytest.mark.parametrize("level", [LIMITS.safe + 0.01, LIMITS.harmful - 0.01])
def test_near_a_limit_more_queries_help(level):
    scores = np.clip(level + np.random.default_rng(0).normal(0, 0.2, 60), 0, 1)
    verdict = judge(scores + level - scores.mean(), np.ones(60), provisional=True, resamples=500)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.queries_needed > 60
    assert f"about {verdict.queries_needed:,} queries would settle 8 of 10" in verdict.sentence


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_every_arm_is_scored_by_the_target_model(metric, tmp_path):
    """By brute force, over all documents; some that an arm finds are not among the reference's first hundred."""
    true, old = TARGET.embed_documents(DOCUMENTS).astype(float), SOURCE.embed_documents(DOCUMENTS).astype(float)
    vectors = {FULL: true, TRANSLATED: noisy(2.0).astype(float), STAY: old}
    full, translated, stay = (
        make_store(tmp_path / name, vectors=rows.astype(np.float32), metric=metric) for name, rows in vectors.items()
    )
    report = audit(translated, full, LOG, source=stay, source_model=SOURCE)
    assert report.data.measure == "agreement@10"
    assert report.verdict.scale.provisional and report.verdict.gain_over_stay is None
    overlaps = {"overlap@1", "overlap@10", "overlap@100", "RBO"}
    assert all(set(arm.scores) == {"agreement@10", *overlaps} for arm in report.arms)
    assert report.arm(TRANSLATED).mean("nDCG@10") is None
    assert report.verdict.retention.estimate == pytest.approx(report.arm(TRANSLATED).mean("agreement@10"))

    def nearness(asked, rows):
        if metric == "ip":
            return asked @ rows.T
        return -np.square(asked[:, None, :] - rows[None]).sum(axis=2)

    target, source = (model.embed_queries(QUERIES).astype(float) for model in (TARGET, SOURCE))
    scores = nearness(target, true)
    for name, rows in vectors.items():
        arm = ranked(scores, nearness(source if name == STAY else target, rows))
        assert report.arm(name).scores["agreement@10"] == pytest.approx(plainly(arm, best_of(scores)), rel=1e-5)
    assert report.arm(FULL).mean("agreement@10") == 1
    assert report.arm(RANDOM).mean("agreement@10") < report.arm(TRANSLATED).mean("agreement@10") < 1


def test_chunks_score_as_the_documents_they_were_cut_from(tmp_path):
    vectors = TARGET.embed_documents(halves())
    spoilt = vectors + np.random.default_rng(0).normal(size=vectors.shape).astype(np.float32)
    new, full = (
        make_store(tmp_path / n, documents=halves(), vectors=v) for n, v in (("new", spoilt), ("full", vectors))
    )
    asked = TARGET.embed_queries(QUERIES).astype(float)
    scores, by = ((asked @ rows.astype(float).T).reshape(len(QUERIES), -1, 2).max(axis=2) for rows in (vectors, spoilt))
    found = audit(new, full, LOG).arm(TRANSLATED).scores["agreement@10"]
    assert found == pytest.approx(plainly(ranked(scores, by), best_of(scores)), rel=1e-5)


@pytest.mark.parametrize(("scale", "outcome"), [(0.0, "INCONCLUSIVE"), (5.0, "NOT SAFE")])
def test_a_provisional_verdict_is_never_read_as_a_full_one(scale, outcome, tmp_path):
    new, full = (make_store(tmp_path / name, vectors=noisy(s)) for name, s in (("new", scale), ("full", 0.0)))
    report = audit(new, full, QuerySet(QUERIES, None, "log", made_from="60 titles"))
    basis = "nothing is judged, so this rests on agreement@10 with the full re-embed, by synthetic queries (60 titles)"
    assert shown(report).startswith(f"provisional: {basis} log: 60 queries")
    assert f"{outcome} (provisional: {basis}): agreement@10 " in shown(report)
    verdict = report_of(report).document["verdict"]
    assert (verdict["provisional"], verdict["basis"], verdict["measure"]) == (True, basis, "agreement@10")
    assert verdict["margin"] == 0.95 and verdict["not_safe_below"] < verdict["safe_from"]
    assert f"{outcome}, provisional" in page_of(report) and basis in page_of(report)
    suite = ElementTree.fromstring(junit_xml(audit_suite(report_of(report))))
    assert f"{outcome} (provisional: {basis})" in "".join(suite.itertext())
    assert suite.find(".//property[@name='provisional']").get("value") == basis
    mark = "❌" if outcome == "NOT SAFE" else "⚠️"
    heading = f"## {mark} lead-migrate: `{report.locations.translated}`: {outcome} (p"
    assert audit_suite(report_of(report)).markdown.startswith(heading)
    assert repr(report_of(report)).startswith(f"<AuditReport {outcome} (provisional: ")


@pytest.mark.parametrize(
    ("share", "exclude_self", "outcome"), [(0.6, False, "INCONCLUSIVE"), (0.05, False, "SAFE"), (0.6, True, "SAFE")]
)
def test_queries_that_quote_their_document_prove_nothing(share, exclude_self, outcome, tmp_path):
    quotes = {one.id: one.text.replace("word", "said of word") for one in DOCUMENTS}  # of five words
    documents = [Document(doc_id, f"{quote} beside much that is of no matter") for doc_id, quote in quotes.items()]
    new, full = (make_store(tmp_path / name, documents=documents) for name in ("new", "full"))
    quoted = int(share * 150)
    own = [Query(document.id, quotes[document.id]) for document in documents[:quoted]]
    others = [Query(f"q{row}", f"t{row % 50} n{1000 + row} what is not said anywhere") for row in range(150 - quoted)]
    asked = QuerySet([*own, *others], None, "log", exclude_self=exclude_self)
    report = audit(new, full, asked, margin=0.9)  # of 150 queries, three to a topic
    assert report.verdict.outcome.value == outcome
    copied = "are a piece of the document that they look for, word for word"
    assert any(copied in doubt for doubt in report.examination.doubts) == (outcome != "SAFE")


@pytest.mark.parametrize("has_more", [False, True])
def test_queries_that_are_documents_leave_the_verdict_to_the_others(has_more, tmp_path):
    """Of a short document all has to be there, and little else."""
    new, full = (make_store(tmp_path / name) for name in ("new", "full"))
    words = " and a question of many other words that hides it" if has_more else ", please"
    copies = [Query(document.id, f"{document.text}{words}") for document in DOCUMENTS[:100]]
    qrels = {**QRELS, **{query.id: {query.id: 1} for query in copies}}
    report = audit(new, full, QuerySet([*copies, *QUERIES], qrels, "log"))
    assert report.verdict.observations.queries == (160 if has_more else 60)
    note = "100 of 160 queries are a stored document, whole or nearly, which every model finds; they do not judge"
    assert (note in report.examination.notes) != has_more


def test_synthetic_queries_are_titles_or_first_sentences():
    documents = [
        Document("a", "Tea. Green tea lowers blood pressure. So does rest."),
        Document("b", "Black tea does not.", {"title": "On black tea"}),
        Document("c", "Nor does white tea.", {"title": "on  BLACK tea"}),
        Document("d", "Too short."),
        Document("e", "green tea lowers blood pressure."),
        Document("f", " ".join(["word"] * 99)),
        Document("g", "3 + 4 = 7. 12 13 14 15. And then some words"),
        Document("b", "Another part of the same document"),
    ]
    found = {own: (query.text, query.origin) for own, query in make_queries(documents, lambda document: document.id)}
    assert found == {
        "a": ("Green tea lowers blood pressure.", "first sentence"),
        "b": ("On black tea", "title"),
        "c": ("Nor does white tea.", "first sentence"),
        "f": (" ".join(["word"] * 15), "first sentence"),
        "g": ("And then some words", "first sentence"),
    }


def test_synthetic_queries_are_drawn_by_the_seed_and_asked_without_their_own_document(tmp_path):
    documents = [
        Document(f"{row}#{part}", f"t{row % 50} n{row} is part {part} of {row}", {"parent_id": f"d{row}"})
        for row in range(N_DOCUMENTS)
        for part in range(2)
    ]
    new, full = (make_store(tmp_path / name, documents=documents) for name in ("new", "full"))
    first, again, other = (synthetic_queries(new, count=60, seed=seed) for seed in (0, 0, 1))
    assert first == again != other
    assert len({query_key(query.text) for query in first.queries}) == len({q.id for q in first.queries}) == 60
    assert first.exclude_self and first.made_from == "60 first sentences"
    assert {query.id for query in first.queries} <= {f"d{row}" for row in range(N_DOCUMENTS)}
    assert len(synthetic_queries(new, count=9_999).queries) == N_DOCUMENTS, "one a document, not one a chunk"
    report = audit(new, full, first)
    assert not report.examination.diagnostics.regressions and report.arm(TRANSLATED).mean("agreement@10") == 1
    assert report.data.made_from == "60 first sentences"
    assert any("synthetic" in note and "without its own document" in note for note in report.examination.notes)


def test_stores_without_texts_or_with_too_few_make_no_queries(tmp_path):
    with pytest.raises(StoreError, match=r"bare has no texts .*--queries FILE"):
        synthetic_queries(make_store(tmp_path / "bare", texts=False))
    few = make_store(tmp_path / "few", documents=[Document(f"d{row}", f"t1 n{row} a b c") for row in range(19)])
    with pytest.raises(InconclusiveError, match=r"few has 19 documents .*20 are needed"):
        synthetic_queries(few)


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        (b"", DatasetError, "the file has no queries; write one a line"),
        (b'[\n  {"text": "a"}\n]', DatasetError, "holds one JSON value"),
        (b"IxFI\x80\x01\x00\xff", DatasetError, "not UTF-8 (byte 0x80 at column 5); convert the file to UTF-8"),
        (None, DatasetError, "is a folder, not a file of queries; one in the form of BEIR is for --judged"),
        (
            b'{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}',
            DatasetError,
            "duplicate query id 'a' for 'x' and 'y'; rename one",
        ),
        (b"one\ntwo\nONE\n", InconclusiveError, "has 2 different queries, and a verdict needs 20; add"),
    ],
)
def test_wrong_files_end_in_one_line(content, error, says, tmp_path):
    path = tmp_path / "queries"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(error) as caught:
        load_unjudged(path)
    assert says in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def migrated(source_folder, tmp_path_factory):
    """A store that is translated from TF-IDF to TF-IDF of fewer dimensions: `rough` by a stitch, `true` in full."""
    folder, source = tmp_path_factory.mktemp("migrated"), open_store(source_folder)
    target = load_embedder("tfidf:24")
    target.fit(source.documents())
    for name, sample, kind in (("rough", 30, "mean"), ("true", 150, "ridge")):
        translate(source, fit(source, target, sample=sample, kind=kind), folder / name)
    return folder


@pytest.fixture
def log(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "log.txt").write_text("\n".join(" ".join(query.text.split()) for query in corpus.queries))
    return tmp_path / "log.txt"


@pytest.fixture
def audited(log, capsys):
    """Runs an audit: exit code, and what it shows in one line."""

    def audit(store, queries, *options):
        command = ["audit", store, "--reference", "build", "--queries", queries, "--two-stage", "none", *options]
        return run([*map(str, command), "-q", "-v"]), " ".join(capsys.readouterr().out.split())

    return audit


@pytest.mark.parametrize(("store", "code", "outcome"), [("true", 0, "SAFE"), ("rough", 1, "NOT SAFE")])
def test_audit_of_a_file_of_queries(store, code, outcome, migrated, log, audited):
    found, text = audited(migrated / store, log)
    assert found == code
    assert "provisional: " in text and "agreement@10 with the full re-embed log.txt:" in text
    assert f"{outcome} (provisional: nothing is judged" in text
    assert "every vector is the model's own" in text or outcome != "SAFE"


def test_audit_of_synthetic_queries(migrated, audited, tmp_path):
    report, page = tmp_path / "report.json", tmp_path / "page.html"
    code, text = audited(migrated / "true", "synthetic", "--report", report, "--report", page)
    verdict = json.loads(report.read_text())["verdict"]
    assert (code, verdict["outcome"]) == (0, "SAFE")
    assert "by synthetic queries (" in verdict["basis"] and verdict["basis"] in text
    assert "first sentences" in text
    assert "synthetic queries" in page.read_text()


def test_run_takes_them_too_and_says_what_to_type_next(source_folder, log, tmp_path, capsys):
    command = [
        "run",
        source_folder,
        "--reference",
        "pool",
        "--target",
        "tfidf:24",
        "--queries",
        "synthetic",
        "--sample",
        "30",
        "-o",
    ]
    words = [*map(str, command), str(tmp_path / "out"), "--kind", "mean"]
    assert run(words) == 1
    captured = capsys.readouterr()
    assert "NOT SAFE (provisional: " in captured.out
    line = captured.err.splitlines()[-1]
    assert line.startswith(f"next: lead-migrate reembed {source_folder} --target tfidf:24 -o ")
    assert run(words) == 1
    assert "its verdict is printed again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ([], 2, "no queries are named: give judged ones with --judged DIR or any with --queries FILE"),
        (
            ["--judged", "{beir}", "--queries", "synthetic"],
            2,
            "--judged and --queries exclude each other; leave one out",
        ),
        (["--queries", "nowhere"], 4, "nowhere: no such file; check the path"),
        (["--queries", "{beir}"], 4, "is a folder, not a file of queries"),
        (["--queries", "{beir}/qrels/test.tsv", "--margin", "2"], 2, "--margin"),
    ],
)
def test_wrong_options_end_in_one_line(options, code, says, migrated, beir, told):
    words = [option.format(beir=beir) for option in options]
    found, _, message = told("audit", migrated / "true", "--reference", "build", *words)
    assert found == code and says in " ".join(message.split())


def test_a_beir_folder_without_qrels_is_named_with_what_its_queries_are_for(tmp_path):
    write_beir(tmp_path / "log", DOCUMENTS, QUERIES, {query.id: {DOCUMENTS[0].id: 1} for query in QUERIES})
    shutil.rmtree(tmp_path / "log" / "qrels")
    folder = tmp_path / "log"
    told = f"{folder} has no judgements in qrels/test.tsv; "
    with pytest.raises(DatasetError, match=re.escape(told) + f".* --queries {re.escape(str(folder))}/queries.jsonl$"):
        load_questions(str(folder))
    assert len(load_unjudged(folder / "queries.jsonl").queries) == len(QUERIES)
