"""Every mistake of `mistakes.py`, through the command: what the audit says, and that none of them ends in SAFE."""

import json
import shutil
from dataclasses import replace

import faiss
import ir_measures
import numpy as np
import pytest
from mistakes import (
    DIM,
    Agreed,
    Choosers,
    Copies,
    Files,
    Harmless,
    Honest,
    Indexes,
    Judgements,
    Questions,
    References,
    Targets,
    build,
    names,
    trusted,
)

pytestmark = pytest.mark.slow

SAID_OF_QUESTIONS = {
    "five_queries_forty_times": (3, "5 queries are too few for a verdict"),
    "spellings_of_few_queries": (3, "the margin of 95 % lies within the bounds"),
    "judgements_of_another_set": (4, "none of the judged documents is in the stores"),
    "judgements_of_another_set_by_the_same_numbers": (3, "not significantly better than documents drawn at random"),
    "documents_as_queries": (3, "300 of 300 queries are a stored document, whole or nearly"),
}


BY_LABELS = ("half_of_another_model", "the_translated_store_with_noise", "another_order")
"""References by which `labels` is run too: it proves a reference as an audit does."""

UNJUDGED = ("please", "words_in_another_order", "pieces_of_eight_words")
"""Copies that ask where nothing is judged too: a text is compared in one way, whoever says with which documents."""


@pytest.fixture
def audited(told):
    def audit(mistake, *options):
        return told(*mistake.command(), "--two-stage", "none", "--json", *options)

    return audit


@pytest.fixture(scope="module")
def labels(good, tmp_path_factory):
    """A label of each document that true vectors tell."""
    is_far = good.true[:, 0] > np.median(good.true[:, 0])
    path = tmp_path_factory.mktemp("labels") / "labels.tsv"
    path.write_text("".join(f"{document.id}\t{far}\n" for document, far in zip(good.documents, is_far, strict=True)))
    return path


def is_believed(report):
    """Whether the reference is not doubted, and next to nothing is lost; its model is a small one, BM25 may beat it.

    The 300 queries are in some 210 groups: docstrings of functions that do nearly the same.
    """
    others = [doubt for doubt in report["reference"]["doubts"] if "significantly worse than BM25" not in doubt]
    return report["reference"]["proven"] and not others and report["verdict"]["retention"]["lower"] >= 0.9


def test_the_right_reference_is_believed(good, labels, audited, told):
    code, report, _ = audited(good.right())
    assert code in (0, 3) and is_believed(report)
    assert report["reference"]["evidence"]
    code, report, said = told(*good.right().command("--labels", labels), "--json")
    assert code in (0, 1, 3) and report["doubts"] == [], said


@pytest.mark.parametrize("name", names(References))
def test_a_wrong_reference_is_refused_stamped_or_not_and_by_labels_too(name, good, labels, audited, told, tmp_path):
    mistake = build(References, name, good, tmp_path)
    code, report, said = audited(mistake)
    assert code == 4 and report is None, report and report["verdict"]
    assert said.count("\n") == 1 and "; " in said
    stamped = trusted(mistake, tmp_path)
    code, report, _ = audited(stamped)
    assert code == 4, report and report["verdict"]
    if name in BY_LABELS:
        code, report, said = told(*stamped.command("--labels", labels), "--json")
        assert code == 4 and report is None and said.count("\n") == 1, report


@pytest.mark.parametrize("name", names(Harmless))
def test_a_reference_that_only_looks_odd_is_not_refused(name, good, labels, audited, told, tmp_path):
    mistake = build(Harmless, name, good, tmp_path)
    code, report, said = audited(mistake)
    assert code in (0, 3) and is_believed(report), said
    if name in BY_LABELS:
        code, report, said = told(*mistake.command("--labels", labels), "--json")
        assert code in (0, 1, 3) and report["doubts"] == [], said


# How a store is searched is one code, whatever it is compared with
@pytest.mark.parametrize(
    ("name", "reference"), [*((name, "reference") for name in names(Indexes)), ("a_graph_of_few_links", "pool")]
)
def test_an_index_that_misses_what_its_vectors_would_find_is_not_safe(name, reference, good, audited, tmp_path):
    mistake = build(Indexes, name, good, tmp_path)
    truth = kept_by_faiss(mistake.translated, good)
    assert truth < 0.95
    code, report, said = audited(mistake if reference == "reference" else replace(mistake, reference="pool"))
    assert code in (1, 3), said
    assert report["verdict"]["retention"]["estimate"] == pytest.approx(truth, abs=1e-6)
    (search,) = report["searches"]
    assert search["is_safe_exactly"] and search["exactly"] > 0.99
    assert search["sentence"] in report["verdict"]["caveats"]


def kept_by_faiss(folder, good):
    """The share of the full re-embed's nDCG@10 that an index has whom FAISS itself asks for ten."""
    index, exact = faiss.read_index(str(folder / "index.faiss")), faiss.IndexFlatIP(DIM)
    exact.add(np.ascontiguousarray(good.true))
    asked = good.model([query.text for query in good.queries])
    means = []
    for searched in (index, exact):
        _, labels = searched.search(asked, 10)
        found = {
            query.id: {good.documents[label].id: 10.0 - rank for rank, label in enumerate(row) if label >= 0}
            for query, row in zip(good.queries, labels, strict=True)
        }
        values = ir_measures.iter_calc([ir_measures.nDCG @ 10], good.qrels, found)
        means.append(sum(value.value for value in values) / len(good.queries))
    return means[0] / means[1]


@pytest.mark.parametrize("name", names(Questions))
def test_queries_that_prove_nothing_are_not_safe(name, good, audited, tmp_path):
    mistake = build(Questions, name, good, tmp_path)
    code, report, said = audited(mistake)
    expected, why = SAID_OF_QUESTIONS[name]
    assert code == expected
    assert why in (report["verdict"]["sentence"] if report else said)
    code, report, said = audited(replace(mistake, reference="pool"))
    assert code in ({1, 3} if report else {3, 4}), said


COPIES = (
    "are a stored document, whole or nearly",
    "times nearer to the document that they look for",
    "are a piece of the document",
)


@pytest.mark.parametrize("name", names(Copies))
def test_queries_that_are_documents_do_not_judge(name, poor, audited, tmp_path):
    """By these figures the store would keep 90 %; by those of people it does not."""
    code, report, said = audited(build(Copies, name, poor, tmp_path), "--margin", "0.9")
    told = str(report["notes"] + report["reference"]["doubts"]) if report else said
    assert code == 3 and any(why in told for why in COPIES), told


@pytest.mark.parametrize("name", UNJUDGED)
def test_nor_do_they_where_nothing_is_judged(name, poor, told, tmp_path):
    mistake = build(Copies, name, poor, tmp_path)
    log = tmp_path / "log.jsonl"
    log.write_bytes((mistake.beir / "queries.jsonl").read_bytes())
    code, report, said = told(*mistake.command("--queries", log), "--two-stage", "none", "--json", "--margin", "0.9")
    answer = str(report["notes"] + report["reference"]["doubts"]) if report else said
    assert code == 3 and any(why in answer for why in COPIES), answer


def test_the_questions_among_them_judge_alone(poor, audited, tmp_path):
    code, report, _ = audited(build(Copies, "among_a_few_questions", poor, tmp_path), "--margin", "0.9")
    assert code == 3 and report["verdict"]["queries"] == 40
    assert any(note.startswith("130 of 170 queries are a stored document") for note in report["notes"])


@pytest.mark.parametrize("name", names(Choosers))
def test_choosers_in_other_words_do_not_judge(name, lossy, audited, tmp_path):
    """By the other half of the queries the store keeps 83 %."""
    code, report, _ = audited(build(Choosers, name, lossy, tmp_path), "--margin", "0.84")
    assert code == 3 and report["verdict"]["retention"]["lower"] > 0.82
    assert any("look for a document with a true vector" in doubt for doubt in report["reference"]["doubts"])


def test_others_judge_what_a_log_chose(lossy, audited, tmp_path):
    code, report, _ = audited(build(Honest, "judgements_of_others_than_the_choosers", lossy, tmp_path))
    assert code == 1 and report["verdict"]["retention"]["estimate"] < 0.85
    assert not any("look for a document" in doubt for doubt in report["reference"]["doubts"])


@pytest.mark.parametrize("name", names(Agreed))
def test_judgements_that_both_rankings_agree_on_are_doubted(name, poor, audited, tmp_path):
    code, report, _ = audited(build(Agreed, name, poor, tmp_path), "--margin", "0.9")
    assert code == 3 and report["verdict"]["retention"]["lower"] >= 0.9
    assert any("made from what both agree on" in doubt for doubt in report["reference"]["doubts"])


@pytest.mark.parametrize("judged_by", [("--judged", "beir"), ("--queries", "beir/queries.jsonl")])
def test_a_field_of_each_query_switches_no_group_off(judged_by, good, told, tmp_path):
    lines = [json.dumps({"_id": q.id, "text": q.text, "metadata": {"session": q.id}}) for q in good.queries]
    shutil.copytree(good.beir, tmp_path / "beir")
    (tmp_path / "beir" / "queries.jsonl").write_text("".join(f"{line}\n" for line in lines))
    option, name = judged_by
    code, _, said = told(*good.right().command(option, tmp_path / name), "--group-field", "session")
    assert code == 2 and "'session' has" in said and "groups next to nothing" in said and said.count("\n") == 1


def doubts_of_judgements(report):
    signs = ("favour the translated store", "are of the sample", "the judgements show a retention")
    return [doubt for doubt in report["reference"]["doubts"] if any(sign in doubt for sign in signs)]


@pytest.mark.parametrize("name", names(Judgements))
def test_judgements_that_flatter_a_poor_store_do_not_make_it_safe(name, poor, audited, tmp_path):
    """By its figures each of them would be SAFE, or nearly, where queries are alike."""
    code, report, _ = audited(build(Judgements, name, poor, tmp_path))
    assert report["verdict"]["retention"]["lower"] >= 0.93
    doubts = doubts_of_judgements(report)
    assert code == 3 and doubts
    assert all(doubt in report["verdict"]["sentence"] and "judge what both" in doubt for doubt in doubts)


def test_clicks_on_a_store_like_it_do_not_make_it_safe_in_a_pool(poor, told, tmp_path):
    mistake = build(Judgements, "clicks_on_a_store_like_it", poor, tmp_path)
    code, report, _ = told(*replace(mistake, reference="pool").command(), "--json")
    assert code == 3 and report["verdict"]["retention"]["lower"] >= 0.95
    assert "agreement@10" in doubts_of_judgements(report)[0]


@pytest.mark.parametrize(
    ("of", "name"),
    [*(("poor", name) for name in names(Honest)[:-1]), ("good", "clicks_on_the_old_store")],
)
def test_honest_judgements_are_believed(of, name, audited, tmp_path, request):
    code, report, _ = audited(build(Honest, name, request.getfixturevalue(of), tmp_path))
    assert doubts_of_judgements(report) == []
    assert code == 1 if of == "poor" else report["verdict"]["retention"]["lower"] >= 0.9


def test_the_right_pool_is_believed(good, audited):
    code, report, said = audited(replace(good.by_pool(), reference="pool:20"))
    assert code in (0, 3) and is_believed(report), said
    assert report["reference"]["evidence"]


@pytest.mark.parametrize("name", names(Targets))
def test_a_pool_of_another_model_is_refused(name, good, audited, tmp_path):
    code, report, said = audited(good.by_pool(build(Targets, name, good, tmp_path)))
    if name == "a_target_of_translated_vectors":  # a perfect stitch would look the same
        assert code == 3 and "is the file an export of that store?" in report["verdict"]["sentence"]
        return
    assert code == 4 and report is None, report and report["verdict"]
    assert said.count("\n") == 1 and "; " in said


@pytest.mark.parametrize(
    ("name", "reference"),
    [*((name, "pool") for name in names(Files)), ("a_file_of_translated_vectors", "build")],
)
def test_another_file_is_no_evidence_beyond_the_sample(name, reference, good, audited, tmp_path):
    mistake = replace(good.by_pool(build(Files, name, good, tmp_path)), reference=reference)
    code, report, said = audited(mistake)
    assert code in ({1, 3} if report else {4}), said
    assert not report or "is not the file" in str(report["reference"]["doubts"])


def test_a_spot_check_by_another_file_is_no_evidence(good, told, tmp_path):
    target = f"file:{build(Files, 'a_file_of_translated_vectors_with_noise', good, tmp_path)}"
    reference = tmp_path / "reference"
    assert told("embed", good.beir, "--model", target, "--no-chunks", "-o", reference)[0] == 0
    (reference / "lead-migrate.json").unlink()
    code, report, _ = told(*replace(good.right(), reference=reference, target=target).command(), "--json")
    assert code in (1, 3) and not report["reference"]["proven"]
