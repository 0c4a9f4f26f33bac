"""Stores so small that fit and audit would embed all of them, or that nothing could be SAFE of."""

import json
from pathlib import Path

import pytest
from stores_tools import make_store

from migrate.embedders import load_embedder
from migrate.stores import open_store
from migrate.stores.all_true import is_all_true

RUN = "run store --target tfidf:24 --judged judged -o out"


@pytest.fixture(autouse=True)
def _here(store, judged):
    """A store of 150 documents, and their judged queries."""


def cut(count):
    """Makes a store of the first documents."""
    documents = list(open_store("store").documents())[:count]
    embedder = load_embedder("tfidf:32")
    embedder.fit(documents)
    make_store(Path("cut"), documents, embedder.embed_documents(documents))


@pytest.mark.parametrize("sample", ["", "--sample 60"])
def test_a_store_that_is_embedded_anyhow_is_embedded_in_full_and_not_judged(sample, lead_migrate):
    ended = lead_migrate(f"{RUN} {sample}")
    assert ended.out.startswith("out/full: 150 vectors of dimension 24")
    assert ended.told.count("fit and audit would embed all 150 documents") == 1
    assert [path.name for path in Path("out").iterdir()] == ["full"]
    assert is_all_true(open_store("out/full"))
    assert lead_migrate(f"{RUN} {sample}").out == ended.out
    assert ended.next == "switch store out/full"
    assert "SAFE by construction" in lead_migrate(ended.next).said


def test_it_needs_no_queries(lead_migrate):
    cut(99)
    ended = lead_migrate("run cut --target tfidf:24 -o out")
    assert ended.out.startswith("out/full: 99 vectors of dimension 24")
    assert lead_migrate("run store --target tfidf:24 -o another").out.startswith("another/full: 150 vectors")


@pytest.mark.parametrize("more", ["--sample 60", "--reference pool", "--reference build"])
def test_a_store_that_is_judged_needs_queries_before_anything_is_paid(more, server, lead_migrate):
    target = "openai:text-embedding-3-small,dimensions=24"
    told = lead_migrate(f"run store --target {target} {more} -o out --yes", code=2).complaint
    assert "give judged ones with --judged DIR" in told
    assert server.requests == [] and not Path("out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["pool", "build"])
def test_a_reference_that_is_named_later_judges_in_the_same_folder(reference, lead_migrate):
    full = lead_migrate(RUN)
    ended = lead_migrate(f"{RUN} --sample 60 --kind ridge --reference {reference}", code=(0, 1, 3))
    assert Path("out/report.json").is_file() and "retention" in ended.said
    assert is_all_true(open_store("out/full")) and not is_all_true(open_store("out/store"))
    assert lead_migrate(full.next)


def test_what_it_prints_as_json_is_that_of_a_full_reembed(lead_migrate):
    made = lead_migrate(f"{RUN} --json").document
    again = lead_migrate("reembed store --target tfidf:24 -o again --json").document
    assert made == {**again, "path": "out/full"}


def test_a_report_that_is_asked_for_is_not_left_out_in_silence(lead_migrate):
    ended = lead_migrate(f"{RUN} --report report.html")
    assert "report.html: not written" in ended.told
    assert not Path("report.html").exists()


def test_nothing_is_written_by_a_dry_run_of_one(lead_migrate):
    ended = lead_migrate(f"{RUN} --dry-run --json").document
    assert ended["writes"] == ["out/full"] and not Path("out").exists()


@pytest.mark.parametrize("reference", ["pool", "build"])
@pytest.mark.slow
def test_a_reference_that_is_named_judges_all_the_same(reference, lead_migrate):
    ended = lead_migrate(f"{RUN} --sample 60 --kind ridge --reference {reference}", code=(0, 1, 3))
    assert Path("out/report.json").is_file() and "retention" in ended.said


@pytest.mark.slow
def test_a_run_that_is_finished_stays_one(lead_migrate):
    judged = lead_migrate(f"{RUN} --sample 60 --kind ridge --reference pool", code=(0, 1, 3))
    again = lead_migrate(f"{RUN} --sample 60 --kind ridge", code=judged.code)
    assert again.out == judged.out and "finished already" in again.told


def test_a_store_of_fewer_than_100_documents_needs_no_queries_that_judge_it(lead_migrate):
    cut(99)
    Path("queries.txt").write_text("one\n")
    ended = lead_migrate("run cut --target tfidf:24 --queries queries.txt --sample 10 -o out")
    assert "99 documents are too few" in ended.told
    assert ended.next == "switch cut out/full"


@pytest.mark.parametrize(
    "command",
    [
        "run cut --reference pool --target {0} --judged judged -o new",
        "run cut --reference build --target {0} --judged judged -o new",
        "fit cut --target {0} -o new",
    ],
)
def test_a_store_too_small_for_a_verdict_is_told_so_before_anything_is_paid(command, server, lead_migrate):
    target = "openai:text-embedding-3-small,dimensions=24"
    cut(99)
    ended = lead_migrate(f"{command.format(target)} --max-cost 0 --cache none", code=2)
    assert server.requests == []
    assert "99 documents are too few" in ended.told
    (line,) = [line.strip() for line in ended.err.splitlines() if line.startswith("  lead-migrate ")]
    lead_migrate(line.removeprefix("lead-migrate "))
    assert json.loads(Path("new-full" if "run" in command else "cut-full", "lead-migrate.json").read_text())


@pytest.mark.slow
def test_an_audit_of_one_is_told_so_as_well(lead_migrate):
    cut(99)
    lead_migrate("fit cut --target tfidf:24 --kind ridge --sample 60 -o stitch")
    lead_migrate("translate cut stitch -o new")
    ended = lead_migrate("audit new --source cut --queries synthetic", code=(1, 3))
    assert "99 documents are too few for an audit" in ended.told
    cut_more = lead_migrate("audit store --queries synthetic --reference pool", code=(0, 1, 3))
    assert "too few for an audit" not in cut_more.told
