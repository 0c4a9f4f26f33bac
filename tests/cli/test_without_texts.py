"""A store without texts as a user meets it: `fit` for vectors that are found by id, `translate` by the fallback."""

import shutil

import pytest

from migrate.report.fit import without_texts_sentence

pytestmark = pytest.mark.slow

FIT = "fit bare --target file:target.npz --sample 60 -o stitch --quiet"
FIT_TEXTS = "fit store --target tfidf:24 --kind ridge+text --sample 60 -o stitch --quiet"


@pytest.fixture(autouse=True)
def _place(store, judged, bare_folder, target_file):
    """A store, the same without its texts, and vectors of a target that are found by id."""
    shutil.copytree(bare_folder, "bare")
    shutil.copy(target_file, "target.npz")


def test_fit_says_that_there_are_no_texts_and_what_that_costs_elsewhere(lead_migrate):
    ended = lead_migrate(FIT)
    assert "ridge+text" not in ended.out.split("texts:")[0]
    assert " ".join(without_texts_sentence().split()) in ended.said
    assert "cannot be measured; elsewhere, on two collections" in ended.said and "weak source models" in ended.said
    assert max(map(len, ended.out.split("\n"))) <= 100
    assert "60 of them true ones" in lead_migrate("translate bare stitch -o new --quiet").out


def test_the_json_of_fit_has_the_same(lead_migrate):
    facts = lead_migrate(f"{FIT} --json").document
    assert facts["fallback"] is None and facts["without_texts"]["pairs"] == 1_000
    assert 0 < facts["without_texts"]["vectors_alone"] < facts["without_texts"]["with_texts"] < 1
    assert "benchmarks/retrieval.py" in facts["without_texts"]["measured_by"]
    assert facts["confidence"]["usable"] is (facts["confidence"]["spearman"] >= 0.2)


def test_the_way_back_reads_no_texts_anyway(lead_migrate):
    assert "texts: the store has none" not in lead_migrate(f"{FIT} --direction query").out


def test_another_target_is_an_error_that_says_what_to_do(monkeypatch, lead_migrate):
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    ended = lead_migrate(f"{FIT} --target openai:text-embedding-3-small", code=4)
    assert "put a docs.jsonl" in ended.complaint and "--target file:VECTORS.npz" in ended.complaint
    assert ended.err.count("\n") == 1


def test_translate_uses_the_fallback_and_says_what_that_costs(lead_migrate):
    found = lead_migrate(f"{FIT_TEXTS} --json").document
    assert found["without_texts"] is None and found["fallback"]["stitch"] == "ridge+text"
    said = lead_migrate(f"{FIT_TEXTS} --force").out
    assert "for a store without texts), fitted on 60 of 150 documents" in said
    ended = lead_migrate("translate bare stitch -o new --quiet")
    figures = (found["fallback"]["fallback_overlap_at_10"], found["fallback"]["overlap_at_10"])
    assert "it finds {:.1f} %, ridge+text {:.1f} %".format(*(100 * figure for figure in figures)) in ended.said
    assert max(map(len, ended.out.split("\n"))) <= 100
    again = lead_migrate("translate bare stitch -o new --force --quiet --json").document
    assert again["fallback"] == found["fallback"]
    assert lead_migrate("translate store stitch -o read --quiet --json").document["fallback"] is None
