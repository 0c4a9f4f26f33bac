"""Every mistake of `mistakes.py`, through the command: what the audit says, and that none of them ends in SAFE."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from mistakes import (
    FILES,
    HARMLESS,
    HONEST,
    JUDGEMENTS,
    QUESTIONS,
    REFERENCES,
    TARGETS,
    build,
    by_pool,
    trusted,
)

from migrate.cli.main import run

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def without_words(audit_fields):
    """Leaves the arms of words out of what audits report."""
    audit_fields(no_bm25=True)


def audited(mistake, capsys, *options):
    """Exit code of the audit, its JSON where it came to a verdict, and what it said else."""
    arguments = mistake if isinstance(mistake, list) else mistake.arguments()
    code = run(["audit", *arguments, "--two-stage", "none", "--json", "--quiet", *options])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def is_believed(report):
    """Whether the reference is not doubted, and next to nothing is lost; its model is a small one, BM25 may beat it.

    The 300 queries are in some 210 groups: docstrings of functions that do nearly the same.
    """
    others = [doubt for doubt in report["reference"]["doubts"] if "significantly worse than BM25" not in doubt]
    return report["reference"]["proven"] and not others and report["verdict"]["retention"]["lower"] >= 0.9


def test_the_right_reference_is_believed(good, capsys):
    code, report, _ = audited(good.right(), capsys)
    assert code in (0, 3) and is_believed(report)
    assert "true vectors of the translated store agree with it" in str(report["reference"]["evidence"])


@pytest.mark.parametrize("name", REFERENCES)
def test_a_wrong_reference_is_refused(name, good, tmp_path, capsys):
    code, report, told = audited(build(name, good, tmp_path), capsys)
    print(f"{name}: {told.strip()}")
    assert code == 4 and report is None, report and report["verdict"]
    assert told.count("\n") == 1 and "; " in told and ";" in told


@pytest.mark.parametrize("name", REFERENCES)
def test_a_stamp_without_a_check_does_not_help_a_wrong_reference(name, good, tmp_path, capsys):
    code, report, _ = audited(trusted(good, build(name, good, tmp_path), tmp_path), capsys)
    assert code == 4, report and report["verdict"]


@pytest.mark.parametrize("name", HARMLESS)
def test_a_reference_that_only_looks_odd_is_not_refused(name, good, tmp_path, capsys):
    code, report, told = audited(build(name, good, tmp_path), capsys)
    assert code in (0, 3) and is_believed(report), told


SAID_OF_QUESTIONS = {
    "five_queries_forty_times": (3, "5 queries are too few for a verdict"),
    "spellings_of_few_queries": (3, "the margin of 0.95 lies between"),
    "judgements_of_another_set": (4, "none of the judged documents is in the stores"),
    "judgements_of_another_set_by_the_same_numbers": (3, "not significantly better than documents drawn at random"),
    "documents_as_queries": (3, "queries are word for word the document that they look for"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_queries_that_prove_nothing_are_not_safe(name, good, tmp_path, capsys):
    code, report, told = audited(build(name, good, tmp_path), capsys)
    expected, why = SAID_OF_QUESTIONS[name]
    assert code == expected
    assert why in (report["verdict"]["sentence"] if report else told)


def doubts_of_judgements(report):
    signs = ("favour the translated store", "are of the sample", "the judgements show a retention")
    return [doubt for doubt in report["reference"]["doubts"] if any(sign in doubt for sign in signs)]


@pytest.mark.parametrize("name", JUDGEMENTS)
def test_judgements_that_flatter_a_poor_store_do_not_make_it_safe(name, poor, tmp_path, capsys):
    """By its figures each of them would be SAFE, or nearly, where queries are alike."""
    code, report, _ = audited(build(name, poor, tmp_path), capsys)
    assert report["verdict"]["retention"]["lower"] >= 0.93
    doubts = doubts_of_judgements(report)
    assert code == 3 and doubts
    assert all(doubt in report["verdict"]["sentence"] and "--judge-next" in doubt for doubt in doubts)


def test_clicks_on_a_store_like_it_do_not_make_it_safe_in_a_pool(poor, tmp_path, capsys):
    mistake = build("clicks_on_a_store_like_it", poor, tmp_path)
    pooled = [str(mistake.translated), "--reference", "pool", "--beir", str(mistake.beir), "--target", mistake.target]
    code, report, _ = audited(pooled, capsys)
    assert code == 3 and report["verdict"]["retention"]["lower"] >= 0.95
    assert "agreement@10" in doubts_of_judgements(report)[0]


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("of", ["good", "poor"])
def test_honest_judgements_are_believed(of, name, tmp_path, capsys, request):
    migration = request.getfixturevalue(of)
    code, report, _ = audited(build(name, migration, tmp_path), capsys)
    assert doubts_of_judgements(report) == []
    assert code == 1 if of == "poor" else report["verdict"]["retention"]["lower"] >= 0.9


def test_the_right_pool_is_believed(good, audit_fields, capsys):
    audit_fields(pool_depth=20)
    code, report, told = audited(by_pool(good, good.target_file), capsys)
    assert code in (0, 3) and is_believed(report), told
    assert "true vectors of the translated store agree with it" in str(report["reference"]["evidence"])


@pytest.mark.parametrize("name", TARGETS)
def test_a_pool_of_another_model_is_refused(name, good, tmp_path, capsys):
    code, report, told = audited(by_pool(good, TARGETS[name](good, tmp_path)), capsys)
    print(f"{name}: {told.strip()}")
    if name == "a_target_of_translated_vectors":  # a perfect stitch would look the same
        assert code == 3 and "is the file an export of that store?" in report["verdict"]["sentence"]
        return
    assert code == 4 and report is None, report and report["verdict"]
    assert told.count("\n") == 1 and "; " in told


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("reference", ["pool", "build"])
def test_another_file_is_no_evidence_beyond_the_sample(reference, name, good, tmp_path, capsys):
    arguments = by_pool(good, FILES[name](good, tmp_path))
    arguments = [reference if argument == "pool" else argument for argument in arguments]
    code, report, told = audited(arguments, capsys)
    assert code in ({1, 3} if report else {4}), told
    assert not report or "is not the file that the store was translated for" in str(report["reference"]["doubts"])


def test_a_spot_check_by_another_file_is_no_evidence(good, tmp_path, capsys):
    target = FILES["a_file_of_translated_vectors_with_noise"](good, tmp_path)
    reference = tmp_path / "reference"
    assert run(["embed", str(good.beir), "--model", f"file:{target}", "--no-chunks", "-o", str(reference), "-q"]) == 0
    (reference / "lead-migrate.json").unlink()
    capsys.readouterr()
    code, report, _ = audited(
        [str(good.translated), "--reference", str(reference), "--beir", str(good.beir), "--target", f"file:{target}"],
        capsys,
    )
    assert code in (1, 3) and not report["reference"]["proven"]


@pytest.fixture(scope="module")
def labels(good, tmp_path_factory):
    """A label of each document that true vectors tell."""
    is_far = good.true[:, 0] > np.median(good.true[:, 0])
    path = tmp_path_factory.mktemp("labels") / "labels.tsv"
    path.write_text("".join(f"{document.id}\t{far}\n" for document, far in zip(good.documents, is_far, strict=True)))
    return path


def by_labels(mistake, labels, capsys):
    arguments = [str(mistake.translated), "--reference", str(mistake.reference), "--target", mistake.target]
    code = run(["audit", *arguments, "--labels", str(labels), "--json", "--quiet"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def test_labels_are_judged_by_the_right_reference(good, labels, capsys):
    code, report, told = by_labels(good.right(), labels, capsys)
    assert code in (0, 1, 3) and report["doubts"] == [], told


@pytest.mark.parametrize("stamped", [False, True])
@pytest.mark.parametrize("name", REFERENCES)
def test_labels_are_not_judged_by_a_wrong_reference(name, stamped, good, labels, tmp_path, capsys):
    mistake = build(name, good, tmp_path)
    code, report, told = by_labels(trusted(good, mistake, tmp_path) if stamped else mistake, labels, capsys)
    assert code == 4 and report is None and told.count("\n") == 1, report


@pytest.mark.parametrize("name", HARMLESS)
def test_labels_are_judged_by_a_reference_that_only_looks_odd(name, good, labels, tmp_path, capsys):
    code, report, told = by_labels(build(name, good, tmp_path), labels, capsys)
    assert code in (0, 1, 3) and report["doubts"] == [], told


@pytest.mark.parametrize("name", QUESTIONS)
def test_queries_that_prove_nothing_are_not_safe_by_a_pool_either(name, good, tmp_path, capsys):
    mistake = build(name, good, tmp_path)
    arguments = [argument if argument != str(mistake.reference) else "pool" for argument in mistake.arguments()]
    code, report, told = audited(arguments, capsys)
    assert code in ({1, 3} if report else {4}), told


def test_a_pool_needs_texts_or_a_file_of_vectors(good, tmp_path, capsys):
    bare = Path(shutil.copytree(good.translated, tmp_path / "bare"))
    ids = [json.loads(line)["id"] for line in (bare / "docs.jsonl").read_text().splitlines()]
    (bare / "docs.jsonl").write_text("".join(json.dumps({"id": doc_id}) + "\n" for doc_id in ids))
    facts = json.loads((bare / "lead-migrate.json").read_text())
    del facts["manifest_sha256"], facts["details"]["documents_sha256"]
    (bare / "lead-migrate.json").write_text(json.dumps(facts))
    code, report, told = audited(by_pool(good, good.target_file, translated=bare), capsys)
    assert code == 4 and report is None
    assert "has no texts, of which a pool is embedded" in told and told.count("\n") == 1


def test_what_a_pool_cannot_do_is_said(good, capsys):
    code, report, told = audited(
        by_pool(good, good.target_file), capsys, "--frontier", str(good.stitch), "--source", str(good.source)
    )
    assert code == 2 and report is None and "a frontier needs the true vectors of all documents" in told


def test_a_depth_goes_with_a_pool(good, audit_fields, capsys):
    audit_fields(pool_depth=50)
    code, report, told = audited(good.right(), capsys)
    assert code == 2 and report is None and "pool_depth goes with --reference pool" in told
