"""Budgets and backfills as a user runs them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import migrate
from migrate.embedders import load_embedder
from migrate.errors import VectorError
from migrate.stores import open_store
from migrate.vectors import Query

pytestmark = pytest.mark.slow

JUDGED = (0, 1, 3)
TARGET = "--target file:vectors.npz"
TRANSLATE = f"translate store stitch {TARGET}"
AUDIT = f"audit new --reference full --judged judged {TARGET}"


@pytest.fixture(scope="module")
def made(corpus, source_folder, beir, lead_migrate, tmp_path_factory):
    """A store, a log of 50 queries, a target in a file, a stitch of 30 pairs, a translated store and a reference."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(source_folder, folder / "store")
    shutil.copytree(beir, folder / "judged")
    logged = [query.text.replace("\n", " ") for query in corpus.queries[:50]]
    (folder / "log.txt").write_text("\n".join(logged))
    embedder = load_embedder("tfidf:48")
    embedder.fit(corpus.documents)
    queries = sorted({*(query.text for query in corpus.queries), *logged})
    np.savez(
        folder / "vectors.npz",
        doc_ids=[document.id for document in corpus.documents],
        docs=embedder.embed_documents(corpus.documents),
        query_ids=[f"q{number}" for number in range(len(queries))],
        query_texts=queries,
        queries=embedder.embed_queries([Query(text, text) for text in queries]),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        lead_migrate(f"fit store {TARGET} --sample 30 --kind ridge -o stitch")
        lead_migrate("translate store stitch -o new")
        lead_migrate("embed judged/corpus.jsonl --model file:vectors.npz --no-chunks -o full")
    return folder


@pytest.fixture(autouse=True)
def _place(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("COLUMNS", "200")


def test_a_budget_is_spent_on_what_the_log_meets(lead_migrate):
    ended = lead_migrate(f"{TRANSLATE} --reembed 40% --query-log log.txt -o better")
    assert "60 of them true ones" in ended.out
    assert "to embed: 30 documents, about " in ended.err and "(30 of them hits of the query log)" in ended.err
    assert open_store("better").info.manifest.counts["true vectors"] == 60
    assert Path("better.stitch/lead-migrate.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--policy random", "--policy goes with --reembed"),
        ("--reembed 50% --any-store", "leave out --any-store"),
        ("--reembed 50% --policy query-log", "name it with --query-log"),
    ],
)
def test_a_budget_that_cannot_be_followed_is_told(options, message, lead_migrate):
    assert message in lead_migrate(f"{TRANSLATE} -o better {options}", code=2).complaint
    assert not Path("better").exists() and not Path("better.stitch").exists()


def test_a_stitch_to_a_file_of_vectors_asks_where_it_is(lead_migrate):
    Path("vectors.npz").rename("moved.npz")
    told = lead_migrate("translate store stitch --reembed 50% -o better", code=2).complaint
    assert "where vectors.npz is" in told and "--target SPEC" in told


def test_a_model_of_another_dimension_than_the_stitchs_is_refused(lead_migrate):
    told = "the stitch: its vectors have dimension 48, those of openai:text-embedding-3-small 1536"
    line = lead_migrate("translate store stitch --target openai:text-embedding-3-small -o better", code=4).complaint
    assert told in line and "leave out --target" in line
    with pytest.raises(VectorError, match=told):
        migrate.translate("store", "stitch", "better", target="openai:text-embedding-3-small")
    assert not Path("better").exists()


@pytest.fixture
def unsure():
    """Makes the confidence of the stitch one that has ranked nothing."""

    def make():
        path = Path("stitch/lead-migrate.json")
        facts = json.loads(path.read_text())
        facts["details"]["selection"]["confidence"]["spearman"] = 0.1
        del facts["manifest_sha256"]
        path.write_text(json.dumps(facts))

    return make


def test_a_confidence_that_ranks_nothing_slices_no_queries(unsure, lead_migrate):
    def sliced():
        """What an audit prints, and what it tells queries apart by."""
        ended = lead_migrate(f"{AUDIT} --report report.json --force --verbose", code=JUDGED)
        return ended.said, {row["by"] for row in json.loads(Path("report.json").read_text())["slices"]}

    assert "confidence" in sliced()[1]
    unsure()
    said = lead_migrate("translate store stitch -o new --force").out
    assert "note: the confidence is not to be used" in said
    said, by = sliced()
    assert "confidence" not in by
    assert "Spearman 0.10, below 0.2; nothing is sliced by it" in said


def test_an_audit_that_cannot_be_had_is_told(lead_migrate):
    told = lead_migrate(f"{AUDIT} --two-stage many", code=2).complaint
    assert "--two-stage: 'many' is not" in told
