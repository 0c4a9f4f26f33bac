"""Every mistake of `mistakes.py`, through the command: what the audit says, and that none of them ends in SAFE."""

import json
import shutil
from pathlib import Path

import pytest
from mistakes import HARMLESS, QUESTIONS, REFERENCES, TARGETS, build, by_pool, trusted

from migrate.cli.main import run

pytestmark = pytest.mark.slow


def audited(mistake, capsys, *options):
    """Exit code of the audit, its JSON where it came to a verdict, and what it said else."""
    arguments = mistake if isinstance(mistake, list) else mistake.arguments()
    code = run(["audit", *arguments, "--no-bm25", "--two-stage", "none", "--json", "--quiet", *options])
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
    "judgements_of_another_set": (4, "expected judgements of the documents in the stores, found none"),
    "judgements_of_another_set_by_the_same_numbers": (3, "not significantly better than documents drawn at random"),
    "documents_as_queries": (3, "queries are word for word the document that they look for"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_queries_that_prove_nothing_are_not_safe(name, good, tmp_path, capsys):
    code, report, told = audited(build(name, good, tmp_path), capsys)
    expected, why = SAID_OF_QUESTIONS[name]
    assert code == expected
    assert why in (report["verdict"]["sentence"] if report else told)


def test_the_right_pool_is_believed(good, capsys):
    code, report, told = audited(by_pool(good, good.target_file), capsys, "--pool-depth", "20")
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
    assert "expected texts, of which a pool is embedded, found vectors only" in told and told.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--save-reference", "there"], "--save-reference goes with --reference build"),
        (["--frontier"], "--frontier"),
    ],
)
def test_what_a_pool_cannot_do_is_said(options, message, good, capsys):
    code, report, told = audited(by_pool(good, good.target_file), capsys, *options)
    assert code == 2 and report is None and message in told


def test_a_depth_goes_with_a_pool(good, capsys):
    code, report, told = audited(good.right(), capsys, "--pool-depth", "50")
    assert code == 2 and report is None and "--pool-depth goes with --reference pool" in told
