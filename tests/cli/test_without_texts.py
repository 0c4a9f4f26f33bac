"""A store without texts as a user meets it: `fit` for vectors that are found by id, `translate` by the fallback."""

import json
from pathlib import Path

import pytest

from migrate.cli.main import run
from migrate.report.fit import without_texts_sentence
from migrate.stores import open_store
from migrate.stores.base import read_all

pytestmark = pytest.mark.slow


def lead_migrate(*arguments):
    return run([str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def fit(store, target, *options):
    return lead_migrate("fit", store, "--target", target, "--sample", "60", "-o", "stitch", "--quiet", *options)


def complaint(capsys, code):
    captured = capsys.readouterr()
    lines = captured.err.strip().split("\n")
    assert code in (2, 4) and len(lines) == 1 and captured.out == "", captured
    return code, lines[0]


def words(text):
    """A text whatever lines it is wrap into."""
    return " ".join(text.split())


def test_fit_says_that_there_are_no_texts_and_what_that_costs_elsewhere(bare_folder, target_file, capsys):
    assert fit(bare_folder, f"file:{target_file}") == 0
    text = capsys.readouterr().out
    assert "ridge+text" not in text.split("texts:")[0]
    assert words(without_texts_sentence()) in words(text)
    assert "cannot be measured; elsewhere, on two collections" in words(text) and "weak source models" in words(text)
    assert max(len(line) for line in text.split("\n")) <= 100
    assert lead_migrate("translate", bare_folder, "stitch", "-o", "new", "--quiet") == 0
    assert "60 of them true ones" in capsys.readouterr().out


def test_the_json_of_fit_has_the_same(bare_folder, source_folder, target_file, capsys):
    assert fit(bare_folder, f"file:{target_file}", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["fallback"] is None and facts["without_texts"]["pairs"] == 1_000
    assert 0 < facts["without_texts"]["vectors_alone"] < facts["without_texts"]["with_texts"] < 1
    assert "benchmarks/retrieval.py" in facts["without_texts"]["measured_by"]
    assert facts["confidence"]["usable"] is (facts["confidence"]["spearman"] >= 0.2)
    assert fit(source_folder, f"file:{target_file}", "--stitch", "ridge+text", "--json", "--force") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["without_texts"] is None and facts["fallback"]["stitch"] == "ridge+text"


def test_the_way_back_reads_no_texts_anyway(bare_folder, target_file, capsys):
    assert fit(bare_folder, f"file:{target_file}", "--direction", "query") == 0
    assert "texts: the store has none" not in capsys.readouterr().out


@pytest.mark.parametrize("stitch", ["text", "ridge+text", "kernel+text"])
def test_a_stitch_of_texts_is_one_clear_error(bare_folder, target_file, stitch, capsys):
    code, line = complaint(capsys, fit(bare_folder, f"file:{target_file}", "--stitch", stitch))
    assert code == 4 and f"the store has no texts, which the {stitch} stitch reads; put a docs.jsonl" in line


@pytest.mark.parametrize("target", ["tfidf:24", "packaged:all-MiniLM-L6-v2", "openai:text-embedding-3-small"])
def test_another_target_is_an_error_that_says_what_to_do(bare_folder, target, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    code, line = complaint(capsys, fit(bare_folder, target))
    assert code == 4 and "put a docs.jsonl" in line and "--target file:VECTORS.npz" in line


def test_translate_uses_the_fallback_and_says_what_that_costs(source_folder, bare_folder, capsys):
    assert fit(source_folder, "tfidf:24", "--stitch", "ridge+text", "--json") == 0
    use = json.loads(capsys.readouterr().out)["fallback"]
    assert lead_migrate("translate", bare_folder, "stitch", "-o", "new", "--quiet") == 0
    text = capsys.readouterr().out
    figures = (use["fallback_overlap_at_10"], use["overlap_at_10"])
    assert "it finds {:.1%}, ridge+text {:.1%}".format(*figures) in words(text)
    assert max(len(line) for line in text.split("\n")) <= 100
    assert lead_migrate("translate", bare_folder, "stitch", "-o", "new", "--force", "--quiet", "--json") == 0
    assert json.loads(capsys.readouterr().out)["fallback"] == use
    assert lead_migrate("translate", source_folder, "stitch", "-o", "read", "--quiet", "--json") == 0
    assert json.loads(capsys.readouterr().out)["fallback"] is None


def test_fit_names_what_it_keeps_for_when_the_texts_are_gone(source_folder, capsys):
    assert fit(source_folder, "tfidf:24", "--stitch", "ridge+text") == 0
    assert "should the texts be gone), fitted on 60 of 150 documents" in capsys.readouterr().out


def test_the_whole_path_needs_no_texts_where_vectors_are_found_by_id(bare_folder, beir, target_file, capsys):
    options = ("--target", f"file:{target_file}", "--beir", beir, "--sample", "100", "-o", "migration", "--quiet")
    options += ("--reference", "build")
    code = lead_migrate("run", bare_folder, *options, "--json")
    report = json.loads(capsys.readouterr().out)
    assert code == {"SAFE": 0, "NOT SAFE": 1, "INCONCLUSIVE": 3}[report["verdict"]["outcome"]]
    names = [arm["name"] for arm in report["arms"]]
    assert names == ["full re-embed", "translated", "stay", "mean", "random"]  # what reads texts is not there
    full, reference = open_store(Path("migration/reference")), open_store(bare_folder)
    assert full.info.dim == 24 and list(read_all(full.scan()).ids) == list(read_all(reference.scan()).ids)
    code, line = complaint(capsys, lead_migrate("run", bare_folder, *options[2:], "--target", "tfidf:24", "--force"))
    assert code == 4 and "put a docs.jsonl" in line
