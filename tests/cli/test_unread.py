"""Texts longer than a model reads: chunks that fit it, and what is said where texts do not."""

import json
import os
import signal
import subprocess
import sys

import pytest
from openai_server import OpenAIServer

from migrate.cli.main import run
from migrate.embedders.weights import packaged_model_path
from migrate.stores import open_store

pytestmark = pytest.mark.slow

MINILM = "packaged:all-MiniLM-L6-v2"
LONG, SHORT = 3, 7


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "none"))


@pytest.fixture(scope="module")
def tokens():
    """Counts as the model's own tokenizer does, special tokens included."""
    from transformers import AutoTokenizer

    own = AutoTokenizer.from_pretrained(str(packaged_model_path()), local_files_only=True)
    return lambda text: len(own(text, truncation=False, verbose=False)["input_ids"])


@pytest.fixture(scope="module")
def texts(corpus):
    """Some long, one of them with a word that is longer than the model reads, and some short."""
    words = " ".join(document.text for document in corpus.documents).split()
    long = ["\n\n".join(" ".join(words[start : start + 60]) for start in range(at, at + 360, 60)) for at in (0, 400)]
    short = [" ".join(words[1_000 + at : 1_010 + at]) for at in range(0, 10 * SHORT, 10)]
    return [*long, f"{' '.join(words[800:900])} {'usr/lib-' * 150} {' '.join(words[900:1000])}", *short]


@pytest.fixture(scope="module")
def jsonl(texts, tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    path.write_text("".join(json.dumps({"id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(texts)))
    return path


@pytest.fixture
def lexical(jsonl, tmp_path):
    """A store of whole documents that no model has cut off."""
    assert lead_migrate("embed", jsonl, "--model", "tfidf:4", "--no-chunks", "-o", tmp_path / "old", "-q") == 0
    return tmp_path / "old"


def lead_migrate(*arguments):
    return run([str(argument) for argument in arguments])


def test_chunks_are_read_to_their_end_and_cover_the_documents(jsonl, texts, tokens, tmp_path, capsys):
    assert lead_migrate("embed", jsonl, "--model", MINILM, "-o", tmp_path / "new", "--json") == 0
    out, err = capsys.readouterr()
    assert "chunks of up to 254 tokens that share up to 25; tokens are exact" in err and "warning" not in err
    facts = json.loads(out)
    assert facts["chunks"]["tokens"] == 254 and facts["over_limit"] is None
    chunks = list(open_store(tmp_path / "new").documents())
    assert 250 < max(tokens(chunk.text) for chunk in chunks) <= 256
    for number, text in enumerate(texts):
        parts = [chunk for chunk in chunks if chunk.metadata["parent_id"] == f"d{number}"]
        assert (len(parts) > 1) == (number < LONG)
        covered = set()
        for part in parts:
            start = part.metadata["start"]
            assert text[start : start + len(part.text)] == part.text
            covered.update(range(start, start + len(part.text)))
        assert all(place in covered or letter.isspace() for place, letter in enumerate(text))


def test_another_model_can_have_the_same_chunks(jsonl, tmp_path, capsys):
    new, other = tmp_path / "new", tmp_path / "other"
    assert lead_migrate("embed", jsonl, "--model", MINILM, "-o", new) == 0
    assert lead_migrate("embed", new / "docs.jsonl", "--model", "tfidf:4", "--no-chunks", "-o", other) == 0
    assert (new / "docs.jsonl").read_bytes() == (other / "docs.jsonl").read_bytes()
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "remedy"),
    [(["--no-chunks"], "leave out --no-chunks"), (["--chunk-tokens", 280], "--chunk-tokens 254 fits")],
)
def test_embed_says_what_is_never_read(options, remedy, jsonl, tokens, tmp_path, capsys):
    assert lead_migrate("embed", jsonl, "--model", MINILM, *options, "-o", tmp_path / "new", "--json") == 0
    out, err = capsys.readouterr()
    counts = [tokens(document.text) for document in open_store(tmp_path / "new").documents()]
    over = sum(count > 256 for count in counts)
    share = 1 - sum(min(count, 256) for count in counts) / sum(counts)
    (warning,) = [line for line in err.split("\n") if line.startswith("warning: ")]
    assert over >= 1 and remedy in warning
    assert f"{over} of {len(counts)} texts" in warning and f"{share:.1%} of all tokens are never read" in warning
    facts = json.loads(out)["over_limit"]
    assert (facts["limit"], facts["texts"], facts["over"], facts["exact"]) == (256, len(counts), over, True)
    assert facts["unread_share"] == pytest.approx(share)


def test_fit_says_it_of_the_store_and_of_the_sample(lexical, tmp_path, capsys):
    command = ["fit", lexical, "--target", MINILM, "--stitch", "mean", "--sample", 10, "-o", tmp_path / "stitch"]
    assert lead_migrate(*command, "--json") == 0
    out, err = capsys.readouterr()
    for what in ("store", "sample"):
        assert f"warning: {LONG} of 10 documents of the {what} are longer than the 256 tokens" in err
        assert json.loads(out)["over_limit"][what]["over"] == LONG
    assert lead_migrate(*command, "--force", "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_run_and_audit_put_it_into_the_report(lexical, jsonl, texts, tmp_path, capsys):
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    rows = [{"_id": f"q{n}", "text": " ".join(text.split()[: 300 if n == 0 else 6])} for n, text in enumerate(texts)]
    (beir / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (beir / "qrels" / "test.tsv").write_text("".join(f"q{n}\td{n}\t1\n" for n in range(len(texts))))
    base = ["--beir", beir, "--json"]
    told = f"{LONG} of 10 documents of the store are longer than the 256 tokens that {MINILM} reads: "
    asked = f"1 of 10 queries is longer than the 256 tokens that {MINILM} reads: "
    out = tmp_path / "out"
    for command in (
        ["run", lexical, "--target", MINILM, "--sample", 10, "--stitch", "mean", "-o", out, *base],
        ["audit", out / "store", "--reference", "build", "--target", MINILM, "--two-stage", "none", *base],
    ):
        assert lead_migrate(*command) in (0, 1, 3)
        printed, err = capsys.readouterr()
        notes = json.loads(printed)["notes"]
        for sentence in (told, asked):
            assert f"warning: {sentence}" in err and any(note.startswith(sentence) for note in notes), command[0]


def test_nothing_is_said_where_there_is_no_limit(lexical, tmp_path, capsys):
    command = ["fit", lexical, "--target", "tfidf:3", "--stitch", "mean", "--sample", 10, "-o", tmp_path / "stitch"]
    assert lead_migrate(*command, "--json") == 0
    out, err = capsys.readouterr()
    assert "warning" not in err and json.loads(out)["over_limit"] == {"store": None, "sample": None}


def test_texts_that_an_api_refuses_are_told_before_anything_is_sent(tmp_path, monkeypatch, capsys):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"id": str(n), "text": "tea " * (9_000 * n + 1)}) + "\n" for n in range(3)))
    with OpenAIServer() as server:
        model = ["--model", "openai:text-embedding-3-small", "--base-url", server.url]
        told = "warning: about 2 of 3 texts are longer than the 8,191 tokens that openai:text-embedding-3-small takes"
        assert lead_migrate("embed", corpus, *model, "--no-chunks", "-o", tmp_path / "no", "--max-cost", 0) == 2
        err = capsys.readouterr().err
        assert told in err and "the API refuses such texts" in err and server.requests == []
        assert lead_migrate("embed", corpus, *model, "-o", tmp_path / "new") == 0
    assert open_store(tmp_path / "new").info.count > 100


CHILD = """
import os, signal, sys
import migrate.embed.corpus
from migrate.embedders.tfidf import TfidfEmbedder
migrate.embed.corpus.BATCH_DOCUMENTS = 4
embed, calls = TfidfEmbedder.embed, []
def embed_or_die(*arguments, **options):
    calls.append(1)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return embed(*arguments, **options)
TfidfEmbedder.embed = embed_or_die
from migrate.cli.main import main
main(sys.argv[1:])
"""


def test_a_run_that_was_killed_goes_on_with_the_same_chunks(jsonl, digest, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr("migrate.embed.corpus.BATCH_DOCUMENTS", 4)
    command = ["embed", str(jsonl), "--model", "tfidf:4", "--quiet"]
    done = subprocess.run([sys.executable, "-c", CHILD, *command, "-o", str(tmp_path / "killed")], env=os.environ)
    assert done.returncode == -signal.SIGKILL
    assert lead_migrate(*command, "-o", tmp_path / "killed", "--chunk-overlap", 20) == 2
    assert "with other values of chunks" in capsys.readouterr().err
    for name in ("killed", "whole"):
        assert lead_migrate(*command, "-o", tmp_path / name) == 0
    assert digest(tmp_path / "killed") == digest(tmp_path / "whole")


def test_sizes_that_mean_nothing_are_refused(jsonl, tmp_path, capsys):
    base = ["embed", jsonl, "-o", tmp_path / "new", "--model"]
    for options, told in (
        ([MINILM, "--no-chunks", "--chunk-tokens", 9], "--no-chunks leaves documents whole"),
        ([MINILM, "--chunk-overlap", 254], "chunk_overlap: 254 is not from 0 to 253"),
        ([f"{MINILM},document-prefix={'tea ' * 255}"], "leaves no room among"),
    ):
        assert lead_migrate(*base, *options) == 2
        assert told in capsys.readouterr().err
