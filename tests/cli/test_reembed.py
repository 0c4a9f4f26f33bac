"""A store that is embedded in full with the new model, or in part; and one that has no need of it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
import pytest

import migrate
from migrate.embedders import load_embedder
from migrate.errors import InputError, UsageError
from migrate.manifest import read_manifest
from migrate.steps.switch import switch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence

FULL = "reembed store --target tfidf:24 -o new"
MODEL = "openai:text-embedding-3-small,dimensions=24"
SMALL = f"reembed store --target {MODEL}"


@pytest.fixture(autouse=True)
def _place(store, monkeypatch):
    """A store that may be switched."""
    monkeypatch.setenv("COLUMNS", "200")


def test_every_vector_is_the_models_and_the_last_line_switches(lead_migrate):
    ended = lead_migrate(FULL)
    assert "150 vectors of dimension 24" in ended.out
    new = open_store("new")
    documents = list(new.documents())
    target = load_embedder("tfidf:24")
    target.fit(documents)
    assert documents == list(open_store("store").documents())
    assert np.array_equal(read_all(new.scan()).vectors, target.embed_documents(documents))
    assert (stored_confidence(new) == 1).all()
    live = lead_migrate("live status new --json").document
    assert (live["outcome"], live["true"], live["count"]) == ("SAFE", 150, 150)
    first = lead_migrate("live status new").out.splitlines()[0]
    assert first.startswith("SAFE: every vector is the model's own")
    assert ended.next == "switch store new"
    said = lead_migrate(ended.next).out
    assert "SAFE by construction" in said
    assert open_store("store").info.manifest.model == target.identity


def test_a_store_that_was_switched_is_switched_no_second_time(lead_migrate):
    lead_migrate(lead_migrate(FULL).next)
    ended = lead_migrate("reembed store --target tfidf:40 -o newer")
    assert "no switch: " in ended.told and "`rollback store` or `forget store`" in ended.told
    assert ended.next == "inspect newer"


def test_a_new_store_that_changed_or_is_of_other_texts_needs_a_report(lead_migrate):
    lead_migrate(FULL)
    shutil.copytree("store", "other")
    Path("other/lead-migrate.json").unlink()
    lines = Path("other/docs.jsonl").read_text().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), "text": "another text"})
    Path("other/docs.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match="1 documents got another text"):
        switch("other", "new")
    index = faiss.read_index("new/index.faiss")
    index.reset()
    index.add(np.ones((150, 24), np.float32))
    faiss.write_index(index, "new/index.faiss")
    with pytest.raises(InputError, match=r"its BLAKE3 .* is not that of the manifest"):
        switch("store", "new")


@pytest.mark.slow
def test_a_share_is_what_translate_makes_of_it(monkeypatch, digest, lead_migrate):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    migrate.fit("store", "tfidf:24", kind="ridge", sample=40).save("stitch")
    ended = lead_migrate("reembed store --target tfidf:24 --share 50% --stitch stitch -o part")
    assert "75 of them true ones" in ended.out
    lead_migrate("translate store stitch --reembed 50% -o same")
    migrate.reembed("store", "tfidf:24", "third", share="50%", stitch="stitch")
    assert digest(Path("part")) == digest(Path("same")) == digest(Path("third"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--share 30%", "fit one: lead-migrate fit "),
        ("--stitch stitch", "--stitch translates what --share leaves"),
        ("--policy random", "--policy goes with --share"),
    ],
)
def test_a_share_and_a_stitch_belong_together(more, said, lead_migrate):
    Path("stitch").mkdir()
    assert said in lead_migrate(f"{FULL} {more}", code=2).complaint


def test_in_python_too_a_share_and_a_stitch_belong_together():
    with pytest.raises(UsageError, match=r"`share=30%` .*`stitch=`"):
        migrate.reembed("store", "tfidf:24", "new", share="30%")


@pytest.mark.parametrize("command", ["run --judged judged -o new", "fit -o new", "reembed -o new", "assess"])
def test_a_store_of_the_target_model_has_nothing_to_migrate(command, corpus, judged, lead_migrate):
    """Where no manifest says so, some texts that are embedded do."""
    embedder = load_embedder("tfidf:24")
    migrate.embed.embed_corpus(lambda: corpus.documents, embedder, Path("same"))
    for is_stamped in (True, False):
        if not is_stamped:
            Path("same/lead-migrate.json").unlink()
        written = "" if command == "assess" else ", and nothing is written"
        out = lead_migrate(f"{command} same --target tfidf:24").out
        said = f"same is of {embedder.identity.spec} already: nothing to migrate{written}\n"
        assert (out == said) == (is_stamped or command != "assess")
        assert not Path("new").exists()


def test_what_found_the_same_model_is_said_to_be_spent_and_not_to_have_broken_off(server, lead_migrate):
    lead_migrate(f"{SMALL} -o small")
    Path("small/lead-migrate.json").unlink()
    ended = lead_migrate(f"reembed small --target {MODEL} -o new --cache none")
    assert "nothing to migrate" in ended.out
    assert "embedded: " in ended.err and "broke off" not in ended.err


def test_the_same_name_with_another_prefix_or_dimension_is_another_model(server, lead_migrate):
    lead_migrate(f"{SMALL} -o small")
    again = "reembed small --max-cost 0 -o new --target"
    assert "nothing to migrate" in lead_migrate(again, MODEL).out
    for other in ("openai:text-embedding-3-small,dimensions=16", f"{MODEL},document-prefix=passage: "):
        lead_migrate(again, other, code=2)  # it would cost something


def test_the_dimensions_that_a_server_was_asked_for_are_remembered_or_else_named(server, lead_migrate):
    target = "openai:tiny,dimensions=4"
    lead_migrate(f"reembed store --target {target} -o small")
    lead_migrate("audit small --queries synthetic", code=3)
    manifest = read_manifest(Path("small"), "store")
    earlier = replace(manifest, model=replace(manifest.model, dimensions=None))  # an earlier version did not keep them
    earlier.write(Path("small"))
    line = lead_migrate("audit small --queries synthetic", code=7).complaint
    assert f"name it with --target {target}, or" in line
