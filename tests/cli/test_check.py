import json
import shutil

import pytest

from migrate.cli.main import run
from migrate.stores import open_store


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
    assert "NOT  vectors" in text and "document" in text and "near, not equal" in text
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
