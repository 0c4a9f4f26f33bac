import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from openai_server import vector_of
from stores_tools import make_store

import migrate
from migrate.embedders import load_embedder
from migrate.errors import SpendingError
from migrate.stores import open_store
from migrate.vectors import Document, unit_rows

PACKAGED = "packaged:all-MiniLM-L6-v2"
DOCS, MANIFEST = Path("store/docs.jsonl"), Path("store/lead-migrate.json")
CHECK = "check store --model tfidf:32"


@pytest.fixture(autouse=True)
def _plain(store):
    """The store of tfidf:32, without its manifest."""
    MANIFEST.unlink()


@pytest.mark.slow
def test_a_file_of_vectors_is_compared_with_a_model_by_vectors_and_not_by_name(tmp_path, lead_migrate):
    lead_migrate("demo --docs 300 --sample 100 -o demo", code=(0, 1, 3))
    packaged = lead_migrate("check demo/source --model packaged:all-MiniLM-L6-v2 --sample 6 --json").document
    assert packaged["compatible"] and packaged["basis"] == "sample"
    (manifest,) = [finding for finding in packaged["findings"] if finding["name"] == "manifest"]
    assert manifest["ok"] and "names file:all-MiniLM-L6-v2.npz" in manifest["message"]
    with np.load("demo/all-MiniLM-L6-v2.npz") as file:
        arrays = dict(file)
    arrays["docs"] = np.roll(arrays["docs"], 7, axis=1)
    np.savez("other.npz", **arrays)
    wrong = lead_migrate("check demo/source --model file:other.npz --json", code=1).document
    assert wrong["basis"] == "sample" and not wrong["compatible"]
    by_name = lead_migrate("check demo/source --model file:demo/all-MiniLM-L6-v2.npz --json").document
    assert by_name["compatible"] and by_name["basis"] == "manifest"


def edit_texts(change):
    """Writes the texts anew, as a function makes them of all of them."""
    rows = [json.loads(line) for line in DOCS.read_text().splitlines()]
    texts = change([row["text"] for row in rows])
    lines = [json.dumps({**row, "text": text}) + "\n" for row, text in zip(rows, texts, strict=True)]
    DOCS.write_text("".join(lines))


def test_the_answer_stands_first_and_everything_fits(lead_migrate):
    lines = lead_migrate(CHECK).out.split("\n")
    assert lines[0].startswith("compatible with tfidf:32: ") and "all 32" in lines[0]
    assert any("8.9 %" in line for line in lines)
    assert max(map(len, lines)) <= 100


def test_a_model_that_is_named_with_its_size_is_compared_like_any_other(source_folder, server, lead_migrate):
    """The size was asked of the server, and says no more than the dimension of the vectors that came."""
    ended = lead_migrate(f"check {source_folder} --model openai:tiny,dimensions=32", code=1)
    assert "manifest the model is 'tfidf:32'" in ended.said


@pytest.mark.parametrize("held", [0, 149], ids=["none", "all but one"])
@pytest.mark.parametrize("command", ["check store --sample all", "stamp store --sample all"])
def test_a_file_without_some_of_the_documents_is_not_what_the_store_is_of(command, held, lead_migrate):
    documents = list(open_store("store").documents())
    vectors = load_embedder("tfidf:32", state=open_store("store").folder).embed_documents(documents)
    ids = [document.id if row < held else f"other {row}" for row, document in enumerate(documents)]
    np.savez("file.npz", doc_ids=ids, docs=vectors)
    ended = lead_migrate(f"{command} --model file:file.npz", code=1)
    assert f"holds no vector for {150 - held} of 150 documents" in ended.said
    assert ended.next == "inspect store"


@pytest.mark.parametrize(("options", "basis"), [("", "manifest"), ("--full", "sample"), ("--sample 5", "sample")])
def test_a_manifest_answers_unless_a_sample_is_asked_for(source_folder, options, basis, lead_migrate):
    ended = lead_migrate(f"check {source_folder} --model tfidf:32 --json {options}")
    assert ended.document["basis"] == basis


def test_stamp_writes_once_and_check_believes_it(lead_migrate):
    text = lead_migrate("stamp store --model tfidf:32").out
    assert text.startswith("compatible with tfidf:32") and text.endswith(f"stamped: {MANIFEST}\n")
    assert lead_migrate(f"{CHECK} --json").document["basis"] == "manifest"
    written = Path(MANIFEST).read_bytes()
    assert lead_migrate("stamp store --model tfidf:32").out == text and Path(MANIFEST).read_bytes() == written
    assert "stamped already" in lead_migrate("stamp store --model tfidf:32 --trust", code=2).complaint
    trusted = lead_migrate("stamp store --model tfidf:32 --force --trust --json")
    assert trusted.document["check"] is None
    assert open_store("store").info.manifest.model.spec == "tfidf:32"


def test_stamp_refuses_what_is_not_compatible(lead_migrate):
    ended = lead_migrate("stamp store --model openai:text-embedding-3-small --trust", code=1)
    assert ended.out.endswith("not stamped: nothing was written\n")
    assert not MANIFEST.exists()


@pytest.mark.parametrize("size", ["0", "-3", "some"])
def test_a_sample_is_a_number_or_all(size, lead_migrate):
    assert "--sample" in lead_migrate(f"{CHECK} --sample {size}", code=2).complaint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("built_with", "prefix"),
    [(f"layer:6:cls:{PACKAGED}", None), (PACKAGED, "passage: passage: ")],
)
def test_what_a_check_finds_is_stamped_by_the_command_that_it_prints(built_with, prefix, monkeypatch, lead_migrate):
    Path("my work; here").mkdir()
    monkeypatch.chdir("my work; here")
    repeat = "The quick brown fox jumps over the lazy dog while number {} watches and counts to {}. "
    texts = ["".join(repeat.format(row, row * step) for step in range(2 + row % 2 * 23)) for row in range(10)]
    documents = [Document(f"d{row}", text) for row, text in enumerate(texts)]
    embedder = load_embedder(built_with, document_prefix=prefix, device="cpu")
    make_store(Path("my store"), documents, embedder.embed_documents(documents))

    asked = "" if prefix is None else ",document-prefix=passage: "
    checked = lead_migrate(f"check 'my store' '--model={PACKAGED},device=cpu{asked}' --json", code=1)
    found = checked.document["found"]
    assert (found["spec"], found["agreeing"]) == (built_with, 10)
    assert found["options"] == ({} if prefix is None else {"document_prefix": prefix})
    assert checked.next == "stamp 'my store' --as-found"
    stamped = lead_migrate(checked.next)
    assert open_store("my store").info.manifest.model == embedder.identity
    assert lead_migrate(stamped.next).out.startswith("compatible with ")
    words = lead_migrate(f"check 'my store' --model {PACKAGED}", code=1).next.split("--model=")[1]
    assert words.startswith(open_store("my store").info.manifest.model.spec)


def test_a_store_that_is_compatible_is_stamped_as_found(lead_migrate):
    assert lead_migrate(CHECK).next == "stamp store --as-found"
    stamped = lead_migrate("stamp store --as-found --json")
    assert stamped.document["check"] is None and stamped.document["found"]["sampled"] == 32
    assert stamped.err == "next: lead-migrate check store --model=tfidf:32\n"
    facts = json.loads(MANIFEST.read_text())["details"]
    assert facts["checked"] == {"basis": "sample", "sampled": 32, "agreeing": 32}
    assert lead_migrate(CHECK).next == "assess store --target SPEC"


def test_a_finding_is_of_one_store_in_one_state(lead_migrate):
    def refused(folder, code, words):
        ended = lead_migrate(f"stamp {folder} --as-found", code=code)
        assert words in ended.complaint and ended.err.count("\n") == 1
        assert not Path(folder, "lead-migrate.json").exists()

    refused("store", 2, "no check has found its model")
    assert lead_migrate(f"{CHECK} --quiet").err == ""
    shutil.copytree("store", "other")
    refused("other", 2, "no check has found its model")
    DOCS.write_bytes(DOCS.read_bytes().replace(b"return", b"yields"))
    refused("store", 4, "the store changed after the check that found tfidf:32")
    lead_migrate("check store --model openai:text-embedding-3-small", code=1)  # which finds nothing
    refused("store", 2, "no check has found its model")


def test_as_found_takes_no_model_and_a_stamp_needs_one(lead_migrate):
    told = lead_migrate("stamp store --as-found --model tfidf:32", code=2).complaint
    assert "leave --model, --sample and --trust out" in told
    assert "--as-found" in lead_migrate("stamp store", code=2).complaint


def test_where_nothing_can_be_kept_the_command_names_the_model(tmp_path, monkeypatch, lead_migrate):
    Path("file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert lead_migrate(f"{CHECK} --cache none").next == "stamp store --model=tfidf:32 --cache=none"
    lead_migrate("stamp store --model=tfidf:32 --cache=none")


def test_a_store_that_changed_since_its_stamp_is_stamped_anew(lead_migrate):
    lead_migrate("stamp store --model tfidf:32")
    DOCS.write_text(DOCS.read_text() + "\n")
    assert lead_migrate(CHECK, code=1).next == "stamp store --as-found --force"
    lead_migrate("stamp store --as-found --force")
    lead_migrate(CHECK)


def test_a_store_of_another_model_may_be_moved_to_the_one_that_was_asked_for(lead_migrate):
    check = "check store --model openai:text-embedding-3-small"
    found = lead_migrate(check, code=1)
    assert found.next == "assess store --target openai:text-embedding-3-small"
    lead_migrate(found.next)
    DOCS.unlink()
    assert lead_migrate(check, code=1).next == "inspect store"


@pytest.mark.slow
def test_a_store_whose_texts_are_out_of_step_is_embedded_again(lead_migrate):
    edit_texts(lambda texts: [*texts[1:], texts[0]])
    found = lead_migrate(CHECK, code=1)
    assert found.next == "reembed store --target tfidf:32 -o store-full"
    lead_migrate(found.next)


def test_other_lengths_of_vectors_may_be_stamped_on_trust(lead_migrate):
    old = open_store("store")
    make_store(Path("scaled"), list(old.documents()), next(old.scan()).vectors * 3)
    for state in Path("store").glob("embedder.*"):
        shutil.copy(state, "scaled")
    found = lead_migrate("check scaled --model tfidf:32", code=1)
    assert found.next == "stamp scaled --model=tfidf:32 --trust"
    lead_migrate(found.next)


def sheared(rows):
    matrix = np.eye(32) + 0.06 * np.random.default_rng(0).normal(size=(32, 32))
    return unit_rows((rows @ matrix).astype(np.float32))


def test_the_fit_that_repairs_a_sheared_store_is_printed_and_runs(lead_migrate):
    old = open_store("store")
    make_store(Path("sheared"), list(old.documents()), sheared(next(old.scan()).vectors))
    for state in Path("store").glob("embedder.*"):
        shutil.copy(state, "sheared")
    few = lead_migrate("check sheared --model tfidf:32 --json", code=1)
    assert few.document["retrieval"]["repair"] is None and few.next == "check sheared --model=tfidf:32 --sample 150"
    found = lead_migrate(few.next, code=1)
    assert "a stitch repairs most of it" in found.said
    fit = "fit sheared --target tfidf:32 --kind ridge"
    assert found.next == f"{fit} -o sheared-stitch"
    lead_migrate(found.next)
    lead_migrate("translate sheared sheared-stitch -o new")
    lead_migrate("check new --model tfidf:32 --full")


def test_judged_queries_of_a_check_are_read_before_anything_is_embedded(source_folder, judged, lead_migrate):
    assert "nowhere" in lead_migrate(f"check {source_folder} --model tfidf:32 --judged ./nowhere", code=4).complaint
    ended = lead_migrate(f"check {source_folder} --model tfidf:32 --judged {judged} --json")
    assert ended.document["basis"] == "sample" and ended.document["retrieval"] is None


@pytest.mark.slow
def test_a_manifest_that_would_stop_the_fit_is_named(server, lead_migrate):
    """The host of a stamped model is changed, which no revision tells."""
    documents = list(open_store("store").documents())
    spec = "openai:text-embedding-3-small,dimensions=32"
    vectors = load_embedder(spec).embed_documents(documents)
    make_store(Path("stamped"), documents, vectors)
    lead_migrate(f"stamp stamped --model {spec} --cache none")
    server.vectors = lambda texts: sheared(np.stack([vector_of(text, 32) for text in texts]))
    check = f"check stamped --model {spec} --cache none --full --sample all"
    found = lead_migrate(check, code=1)
    assert "first remove stamped/lead-migrate.json" in found.told
    assert "nothing to migrate" in lead_migrate(f"{found.next} --yes").said
    Path("stamped/lead-migrate.json").unlink()
    assert lead_migrate(f"{found.next} --yes").next.startswith("translate stamped stamped-stitch")


@pytest.mark.slow
def test_what_the_cache_has_of_another_host_is_not_taken_for_the_model(server, lead_migrate):
    documents = list(open_store("store").documents())
    spec = "openai:text-embedding-3-small,dimensions=32"
    make_store(Path("old"), documents, load_embedder(spec).embed_documents(documents))
    check = f"check old --model {spec}"
    for _ in range(2):
        lead_migrate(check)
    server.vectors = lambda texts: sheared(np.stack([vector_of(text, 32) for text in texts]))
    assert "start again with another --cache" in lead_migrate(check, code=4).complaint
    found = lead_migrate(f"{check} --cache none --sample all", code=1)
    assert "near but not equal" in found.said
    lead_migrate(f"{found.next} --yes")


def test_a_check_of_all_says_what_it_costs_and_spends_no_more(server, lead_migrate):
    documents = list(open_store("store").documents())
    spec = "openai:text-embedding-3-small,dimensions=32"
    vectors = unit_rows(np.stack([vector_of(document.text, 32) for document in documents]))
    make_store(Path("paid"), documents, vectors)
    check = f"check paid --model {spec} --sample all"
    assert "raise --max-cost" in lead_migrate(f"{check} --max-cost 0.000001", code=2).complaint
    with pytest.raises(SpendingError):
        migrate.check("paid", spec, sample="all", max_cost=0.000001)
    assert server.billed == []
    assert f"to embed: {len(documents)} documents, " in lead_migrate(check).told


def test_rows_of_another_model_are_listed_and_embedded_within_a_cap_and_once(server, lead_migrate):
    documents = list(open_store("store").documents())
    spec = "openai:text-embedding-3-small,dimensions=32"
    vectors = unit_rows(np.stack([vector_of(document.text, 32) for document in documents]))
    others = np.arange(4, len(documents), 10)
    vectors[others] = np.roll(vectors[others], 1, axis=1)
    make_store(Path("mixed"), documents, vectors)
    check = f"check mixed --model {spec} --rows rows.jsonl"
    dry = lead_migrate(f"{check} --dry-run").out
    assert f"{len(documents)} documents" in dry and "to write: rows.jsonl" in dry
    assert "raise --max-cost" in lead_migrate(f"{check} --max-cost 0.000001", code=2).complaint
    assert server.billed == []
    found = lead_migrate(check, code=1)
    assert f"{len(others)} of {len(documents)} documents do not have the model's vectors" in found.said
    assert found.next == f"reembed mixed --rows rows.jsonl --target {spec} -o mixed-mended"
    asked = len(server.billed)
    mended = lead_migrate(found.next)
    assert f"{len(others)} of them embedded anew" in mended.out
    # From the cache, but for those that prove the model
    assert len(server.billed) - asked <= 24
    assert lead_migrate(f"check mixed-mended --model {spec} --rows none.jsonl").code == 0
    assert "lists no document" in lead_migrate("reembed mixed-mended --rows none.jsonl -o again", code=2).complaint
    other = lead_migrate(f"reembed mixed --rows rows.jsonl --target {spec.replace('small', 'large')} -o again", code=2)
    assert "held against" in other.complaint and not Path("again").exists()
