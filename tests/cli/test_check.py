import json
import re
import shutil
from pathlib import Path

import pytest

from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.stores import open_store
from migrate.stores.create import create_store
from migrate.vectors import Document

PACKAGED = "packaged:all-MiniLM-L6-v2"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def store(source_folder, tmp_path):
    """The session's store of tfidf:32, without its manifest."""
    shutil.copytree(source_folder, tmp_path / "store")
    (tmp_path / "store" / "lead-migrate.json").unlink()
    return tmp_path / "store"


def lead_migrate(*arguments):
    return run([str(argument) for argument in arguments])


def test_the_answer_stands_first_and_everything_fits(store, capsys):
    assert lead_migrate("check", store, "--model", "tfidf:32") == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[0].startswith("compatible with tfidf:32: the model gives the stored vectors for all 32")
    assert any("up to 8.9% of the store could differ unseen" in line for line in lines)
    assert max(map(len, lines)) <= 100


def test_texts_that_changed_are_told_with_examples_and_exit_code_1(store, capsys):
    docs = store / "docs.jsonl"
    lines = docs.read_text().splitlines()
    edited = [
        json.dumps({**json.loads(line), "text": json.loads(line)["text"] + " return list value"}) for line in lines
    ]
    docs.write_text("\n".join([*edited[:50], *lines[50:]]) + "\n")
    assert lead_migrate("check", store, "--model", "tfidf:32", "--sample", "all") == 1
    text = capsys.readouterr().out
    assert text.startswith("not compatible with tfidf:32: stale vectors: ")
    assert re.search(r"^vectors +NO ", text, re.MULTILINE) and "document" in text and "near, not equal" in text
    assert max(map(len, text.split("\n"))) <= 100


def test_json_is_one_document_with_named_findings(store, capsys):
    assert lead_migrate("check", store, "--model", "tfidf:32", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema_version"], found["kind"], found["compatible"]) == (1, "check", True)
    assert [finding["name"] for finding in found["findings"]] == ["dimension", "vectors", "norms"]
    assert found["figures"]["sampled"] == found["figures"]["agreeing"] == 32
    assert found["model"]["spec"] == "tfidf:32"


@pytest.mark.parametrize(
    ("options", "basis"), [((), "manifest"), (("--full",), "sample"), (("--sample", "5"), "sample")]
)
def test_a_manifest_answers_unless_a_sample_is_asked_for(source_folder, options, basis, capsys):
    assert lead_migrate("check", source_folder, "--model", "tfidf:32", "--json", *options) == 0
    assert json.loads(capsys.readouterr().out)["basis"] == basis


def test_another_dimension_needs_neither_model_nor_network(store, capsys):
    assert lead_migrate("check", store, "--model", "openai:text-embedding-3-small") == 1
    text = capsys.readouterr().out
    assert "other dimension: the store has 32 dimensions, the model gives 1,536" in " ".join(text.split())


def test_stamp_writes_once_and_check_believes_it(store, capsys):
    assert lead_migrate("stamp", store, "--model", "tfidf:32") == 0
    text = capsys.readouterr().out
    assert text.startswith("compatible with tfidf:32") and text.endswith(f"stamped: {store / 'lead-migrate.json'}\n")
    assert lead_migrate("check", store, "--model", "tfidf:32", "--json") == 0
    assert json.loads(capsys.readouterr().out)["basis"] == "manifest"
    assert lead_migrate("stamp", store, "--model", "tfidf:32") == 2
    assert "stamped already" in capsys.readouterr().err
    assert lead_migrate("stamp", store, "--model", "tfidf:32", "--force", "--trust", "--json") == 0
    assert json.loads(capsys.readouterr().out)["check"] is None
    assert open_store(store).info.manifest.model.spec == "tfidf:32"


def test_stamp_refuses_what_is_not_compatible(store, capsys):
    assert lead_migrate("stamp", store, "--model", "openai:text-embedding-3-small", "--trust") == 1
    assert capsys.readouterr().out.endswith("not stamped: nothing was written\n")
    assert not (store / "lead-migrate.json").exists()


@pytest.mark.parametrize("size", ["0", "-3", "some"])
def test_a_sample_is_a_number_or_all(store, size, capsys):
    assert lead_migrate("check", store, "--model", "tfidf:32", "--sample", size) == 2
    assert "--sample" in capsys.readouterr().err


def next_line(capsys):
    """The one command that is printed to go on with, the last line of all."""
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("next: lead-migrate ") for line in lines].count(True) == 1
    return lines[-1].removeprefix("next: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("built_with", "prefix"),
    [(f"length:128:{PACKAGED}", None), (f"length:512:{PACKAGED}", None), (f"layer:6:cls:{PACKAGED}", None),
     (PACKAGED, "passage: ")],
)  # fmt: skip
def test_what_a_check_finds_is_stamped_by_the_command_that_it_prints(
    built_with, prefix, tmp_path, monkeypatch, capsys, shell
):
    here = tmp_path / "my work; here"
    (here / "my store").mkdir(parents=True)
    monkeypatch.chdir(here)
    repeat = "The quick brown fox jumps over the lazy dog while number {} watches and counts to {}. "
    texts = ["".join(repeat.format(row, row * step) for step in range(2 + row % 2 * 23)) for row in range(10)]
    documents = [Document(f"d{row}", text) for row, text in enumerate(texts)]
    writer = create_store(Path("my store"), format="faiss", dim=384)
    embedder = load_embedder(built_with, document_prefix=prefix, device="cpu")
    writer.append(documents, embedder.embed_documents(documents))
    writer.finish()
    assert lead_migrate("check", "my store", "--model", f"{PACKAGED},device=cpu", "--json") == 1
    captured = capsys.readouterr()
    found = json.loads(captured.out)["found"]
    assert (found["spec"], found["agreeing"]) == (built_with, 10)
    assert found["options"] == ({} if prefix is None else {"document_prefix": prefix})
    printed = captured.err.splitlines()[-1].removeprefix("next: ")
    assert printed == "lead-migrate stamp 'my store' --as-found"
    stamped = shell(printed)
    assert stamped.returncode == 0, stamped.stderr
    assert open_store("my store").info.manifest.model == embedder.identity
    clean = shell(stamped.stderr.splitlines()[-1].removeprefix("next: python -m migrate ").join(["lead-migrate ", ""]))
    assert clean.returncode == 0 and clean.stdout.startswith("compatible with "), clean.stdout + clean.stderr
    assert lead_migrate("check", "my store", "--model", PACKAGED) == 1
    words = next_line(capsys).split("--model=")[1]
    assert words.startswith(open_store("my store").info.manifest.model.spec)


def test_a_store_that_is_compatible_is_stamped_as_found(store, capsys, monkeypatch):
    monkeypatch.chdir(store.parent)
    assert lead_migrate("check", "store", "--model", "tfidf:32") == 0
    assert next_line(capsys) == "lead-migrate stamp store --as-found"
    assert lead_migrate("stamp", "store", "--as-found", "--json") == 0
    captured = capsys.readouterr()
    said = json.loads(captured.out)
    assert said["check"] is None and said["found"]["sampled"] == 32
    assert captured.err == "next: lead-migrate check store --model=tfidf:32\n"
    facts = json.loads((store / "lead-migrate.json").read_text())["details"]
    assert facts["checked"] == {"basis": "sample", "sampled": 32, "agreeing": 32}
    assert lead_migrate("check", "store", "--model", "tfidf:32") == 0
    assert next_line(capsys) == "lead-migrate assess store --target SPEC"


def test_a_finding_is_of_one_store_in_one_state(store, capsys):
    def refused(folder, code, words):
        assert lead_migrate("stamp", folder, "--as-found") == code
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and words in lines[0]
        assert not (folder / "lead-migrate.json").exists()

    refused(store, 2, "no check has found what it is of")
    assert lead_migrate("check", store, "--model", "tfidf:32", "--quiet") == 0
    assert capsys.readouterr().err == ""
    shutil.copytree(store, store.with_name("other"))
    refused(store.with_name("other"), 2, "no check has found what it is of")
    docs, before = store / "docs.jsonl", (store / "docs.jsonl").read_bytes()
    docs.write_bytes(before.replace(b"return", b"yields"))
    refused(store, 4, "the store changed since it was found to be of tfidf:32")
    assert lead_migrate("check", store, "--model", "openai:text-embedding-3-small") == 1  # which finds nothing
    capsys.readouterr()
    refused(store, 2, "no check has found what it is of")


def test_as_found_takes_no_model_and_a_stamp_needs_one(store, capsys):
    assert lead_migrate("stamp", store, "--as-found", "--model", "tfidf:32") == 2
    assert "leave --model, --sample and --trust out" in capsys.readouterr().err
    assert lead_migrate("stamp", store) == 2
    assert "--as-found" in capsys.readouterr().err


def test_where_nothing_can_be_kept_the_command_names_the_model(store, tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert lead_migrate("check", store, "--model", "tfidf:32", "--cache", "none") == 0
    assert next_line(capsys) == f"lead-migrate stamp {store} --model=tfidf:32 --cache=none"
    assert lead_migrate("stamp", store, "--model=tfidf:32", "--cache=none") == 0


def test_a_store_that_changed_since_its_stamp_is_stamped_anew(store, capsys):
    assert lead_migrate("stamp", store, "--model", "tfidf:32") == 0
    capsys.readouterr()
    docs = store / "docs.jsonl"
    docs.write_text(docs.read_text() + "\n")
    assert lead_migrate("check", store, "--model", "tfidf:32") == 1
    assert next_line(capsys) == f"lead-migrate stamp {store} --as-found --force"
    assert lead_migrate("stamp", store, "--as-found", "--force") == 0
    assert lead_migrate("check", store, "--model", "tfidf:32") == 0


def test_a_store_of_another_model_may_be_moved_to_the_one_that_was_asked_for(store, capsys, monkeypatch, shell):
    monkeypatch.chdir(store.parent)
    assert lead_migrate("check", "store", "--model", PACKAGED) == 1
    printed = next_line(capsys)
    assert printed == f"lead-migrate assess store --target {PACKAGED}"
    assessed = shell(printed)
    assert assessed.returncode == 0, assessed.stderr
    (store / "docs.jsonl").unlink()
    assert lead_migrate("check", "store", "--model", PACKAGED) == 1
    assert next_line(capsys) == "lead-migrate inspect store"


@pytest.mark.slow
def test_a_store_whose_texts_are_out_of_step_is_embedded_again(store, capsys, monkeypatch, shell):
    monkeypatch.chdir(store.parent)
    rows = (store / "docs.jsonl").read_text().splitlines(keepends=True)
    records = [json.loads(row) for row in rows]
    for record, following in zip(records, [*records[1:], records[0]], strict=True):
        record["text"], record["next"] = following.pop("next", following["text"]), record["text"]
    (store / "docs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert lead_migrate("check", "store", "--model", "tfidf:32") == 1
    printed = next_line(capsys)
    assert printed == "lead-migrate reembed store --target tfidf:32 -o store-full"
    again = shell(printed)
    assert again.returncode == 0, again.stderr


def test_other_lengths_of_vectors_may_be_stamped_on_trust(store, tmp_path, capsys):
    old = open_store(store)
    batch = next(old.scan())
    scaled = tmp_path / "scaled"
    scaled.mkdir()
    writer = create_store(scaled, format="faiss", dim=32)
    writer.append(list(old.documents()), batch.vectors * 3)
    writer.finish()
    for state in store.glob("embedder.*"):
        shutil.copy(state, scaled)
    assert lead_migrate("check", scaled, "--model", "tfidf:32") == 1
    assert next_line(capsys) == f"lead-migrate stamp {scaled} --model=tfidf:32 --trust"
    assert lead_migrate("stamp", scaled, "--model=tfidf:32", "--trust") == 0
