"""A store that is embedded in full with the new model, or in part; and one that has no need of it."""

import json
import shlex
import shutil

import numpy as np
import pytest
from dying import interrupt_at
from openai_server import OpenAIServer

import migrate
from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.embedders.again import ASKED_AGAIN
from migrate.errors import InputError, UsageError
from migrate.steps.switch import switch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence

TARGET = ["--target", "tfidf:24"]
SMALL = ["--target", "openai:text-embedding-3-small,dimensions=24"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def server(monkeypatch):
    with OpenAIServer() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running


@pytest.fixture
def old(source_folder, tmp_path):
    """A store that may be switched."""
    return shutil.copytree(source_folder, tmp_path / "old")


def lead_migrate(*arguments):
    return run([str(argument) for argument in arguments])


def complaint(capsys, *arguments):
    code = lead_migrate(*arguments)
    (line,) = [line for line in capsys.readouterr().err.split("\n") if line.startswith("lead-migrate: ")]
    return code, line


def test_every_vector_is_the_models_and_the_last_line_switches(old, tmp_path, capsys):
    assert lead_migrate("reembed", old, *TARGET, "-o", tmp_path / "new") == 0
    shown = capsys.readouterr()
    assert "150 vectors of dimension 24, all of them true ones" in shown.out
    new = open_store(tmp_path / "new")
    documents = list(new.documents())
    target = load_embedder("tfidf:24")
    target.fit(documents)
    assert documents == list(open_store(old).documents())
    assert np.array_equal(read_all(new.scan()).vectors, target.embed_documents(documents))
    assert (stored_confidence(new) == 1).all()
    last = shown.err.splitlines()[-1]
    assert last == f"next: lead-migrate switch {old} {tmp_path / 'new'}"
    assert lead_migrate(*shlex.split(last)[2:]) == 0
    assert "SAFE by construction: every vector of the new store is its model's own" in capsys.readouterr().out
    assert open_store(old).info.manifest.model == target.identity


def test_a_new_store_that_changed_or_is_of_other_texts_needs_a_report(old, tmp_path):
    import faiss

    migrate.reembed(old, "tfidf:24", tmp_path / "new")
    other = shutil.copytree(old, tmp_path / "other")
    lines = (other / "docs.jsonl").read_text().splitlines()
    first = {**json.loads(lines[0]), "text": "another text"}
    (other / "docs.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    (other / "lead-migrate.json").unlink()
    with pytest.raises(InputError, match="1 documents have got another text"):
        switch(str(other), str(tmp_path / "new"))
    index = faiss.read_index(str(tmp_path / "new" / "index.faiss"))
    index.reset()
    index.add(np.ones((150, 24), np.float32))
    faiss.write_index(index, str(tmp_path / "new" / "index.faiss"))
    with pytest.raises(InputError, match=r"its SHA-256 .* is not that of the manifest"):
        switch(str(old), str(tmp_path / "new"))


def test_a_translated_store_needs_a_report_until_all_of_it_is_true(old, tmp_path, capsys):
    stitch = migrate.fit(old, "tfidf:24", stitch="ridge", sample=40)
    migrate.translate(old, stitch, tmp_path / "translated")
    with pytest.raises(InputError, match="no report of an audit beside it"):
        switch(str(old), str(tmp_path / "translated"))
    assert lead_migrate("reembed", tmp_path / "translated", *TARGET, "-o", tmp_path / "new") == 0
    assert "nothing to migrate" not in capsys.readouterr().out
    assert switch(str(old), str(tmp_path / "new")).all_true, "the texts are those of the old store"


def test_a_run_that_was_killed_goes_on_and_ends_with_the_same_bytes(old, tmp_path, monkeypatch, digest, server, capsys):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr("migrate.embed.corpus.BATCH_DOCUMENTS", 40)
    command = ["reembed", old, *SMALL, "--cache", "none", "-o"]
    with monkeypatch.context() as patch:
        interrupt_at("recorded:2", patch)
        assert lead_migrate(*command, tmp_path / "new") == 130
    assert "80 of 150 rows are done" in capsys.readouterr().err
    before = len(server.billed)
    assert lead_migrate(*command, tmp_path / "new") == 0
    assert 70 <= len(server.billed) - before <= 70 + 3 * ASKED_AGAIN
    assert lead_migrate(*command, tmp_path / "whole") == 0
    assert digest(tmp_path / "new") == digest(tmp_path / "whole")


def test_what_is_in_the_cache_is_not_embedded_again(old, tmp_path, server):
    assert lead_migrate("reembed", old, *SMALL, "-o", tmp_path / "one") == 0
    first = len(server.billed)
    assert lead_migrate("reembed", old, *SMALL, "-o", tmp_path / "two") == 0
    assert 0 < len(server.billed) - first <= 3 * ASKED_AGAIN, "the model proves that it is what it was"
    with (
        open_store(tmp_path / "one").index_path.open("rb") as one,
        open_store(tmp_path / "two").index_path.open("rb") as two,
    ):
        assert one.read() == two.read()


def test_nothing_is_spent_beyond_the_cap(old, tmp_path, server, capsys):
    code, line = complaint(capsys, "reembed", old, *SMALL, "--max-cost", 0, "-o", tmp_path / "new")
    assert code == 2 and "raise --max-cost, or agree with --yes" in line
    assert not server.billed and not (tmp_path / "new").exists()
    assert lead_migrate("reembed", old, *SMALL, "--max-cost", 0, "--yes", "-o", tmp_path / "new") == 0


def test_an_output_that_exists_is_refused_before_anything_is_counted(old, tmp_path, server, capsys):
    (tmp_path / "new").mkdir()
    code, line = complaint(capsys, "reembed", old, *SMALL, "--max-cost", 0, "-o", tmp_path / "new")
    assert code == 2 and "new exists" in line
    with pytest.raises(UsageError, match="new exists"):
        migrate.reembed(old, load_embedder(SMALL[1]), tmp_path / "new", max_cost=0)


def test_a_share_is_what_translate_makes_of_it(old, tmp_path, monkeypatch, digest, capsys):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    stitch = tmp_path / "stitch"
    migrate.fit(old, "tfidf:24", stitch="ridge", sample=40).save(stitch)
    assert lead_migrate("reembed", old, *TARGET, "--share", "50%", "--stitch", stitch, "-o", tmp_path / "part") == 0
    assert "75 of them true ones" in capsys.readouterr().out
    assert lead_migrate("translate", old, stitch, "--reembed", "50%", "-o", tmp_path / "same") == 0
    migrate.reembed(old, "tfidf:24", tmp_path / "third", share="50%", stitch=stitch)
    assert digest(tmp_path / "part") == digest(tmp_path / "same") == digest(tmp_path / "third")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--share", "30%"], "fit one: lead-migrate fit "),
        (["--stitch", "stitch"], "--stitch translates what --share leaves"),
        (["--policy", "random"], "--policy goes with --share"),
    ],
)
def test_a_share_and_a_stitch_belong_together(more, said, old, tmp_path, capsys):
    (tmp_path / "stitch").mkdir()
    code, line = complaint(capsys, "reembed", old, *TARGET, *more, "-o", tmp_path / "new")
    assert code == 2 and said in line


def test_in_python_too_a_share_and_a_stitch_belong_together(old, tmp_path):
    with pytest.raises(UsageError, match="`share=30%` leaves a rest, which needs a `stitch=`"):
        migrate.reembed(old, "tfidf:24", tmp_path / "new", share="30%")


@pytest.mark.parametrize("command", ["run", "fit", "reembed", "assess"])
@pytest.mark.parametrize("is_stamped", [True, False])
def test_a_store_of_the_target_model_has_nothing_to_migrate(command, is_stamped, corpus, beir, tmp_path, capsys):
    """Where no manifest says so, some texts that are embedded do."""
    embedder, store = load_embedder("tfidf:24"), tmp_path / "store"
    migrate.embed.embed_corpus(lambda: corpus.documents, embedder, store)
    if not is_stamped:
        (store / "lead-migrate.json").unlink()
    judged = ["--beir", beir] if command == "run" else []
    output = [] if command == "assess" else ["-o", tmp_path / "new"]
    assert lead_migrate(command, store, *TARGET, *judged, *output) == 0
    shown = capsys.readouterr()
    said = f"{store} is of {embedder.identity.spec} already: nothing to migrate"
    assert (shown.out == f"{said}\n") == (is_stamped or command != "assess")
    assert not (tmp_path / "new").exists()


def test_what_found_the_same_model_is_said_to_be_spent_and_not_to_have_broken_off(old, tmp_path, server, capsys):
    assert lead_migrate("reembed", old, *SMALL, "-o", tmp_path / "small") == 0
    (tmp_path / "small" / "lead-migrate.json").unlink()
    capsys.readouterr()
    assert lead_migrate("reembed", tmp_path / "small", *SMALL, "-o", tmp_path / "new", "--cache", "none") == 0
    shown = capsys.readouterr()
    assert "nothing to migrate" in shown.out
    assert "embedded: " in shown.err and "broke off" not in shown.err


def test_the_same_name_with_another_prefix_or_dimension_is_another_model(old, tmp_path, server, capsys):
    assert lead_migrate("reembed", old, *SMALL, "-o", tmp_path / "small") == 0
    again = ["reembed", tmp_path / "small", "--max-cost", 0, "-o", tmp_path / "new", "--target"]
    assert lead_migrate(*again, SMALL[1]) == 0
    assert "nothing to migrate" in capsys.readouterr().out
    for other in ("openai:text-embedding-3-small,dimensions=16", f"{SMALL[1]},document-prefix=passage: "):
        assert complaint(capsys, *again, other)[0] == 2, "it would cost something"


def test_a_model_of_a_server_of_ones_own_is_named_with_the_dimensions_that_were_asked_for(
    old, tmp_path, server, capsys
):
    target = "openai:tiny,dimensions=4"
    assert lead_migrate("reembed", old, "--target", target, "-o", tmp_path / "small") == 0
    code, line = complaint(capsys, "audit", tmp_path / "small", "--queries", "synthetic")
    assert code == 7 and f"; if that many were asked for then, name it with --target {target}, or" in line


def test_a_store_of_true_vectors_is_live_and_safe_by_construction(old, tmp_path, capsys):
    migrate.reembed(old, "tfidf:24", tmp_path / "new")
    assert lead_migrate("live", "status", tmp_path / "new", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["outcome"], found["true"], found["count"]) == ("SAFE", 150, 150)
    assert lead_migrate("live", "status", tmp_path / "new") == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "SAFE: every vector is the model's own, as in a full re-embed; no query need be scored"
