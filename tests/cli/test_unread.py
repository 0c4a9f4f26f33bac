"""Texts longer than a model reads: chunks that fit it, and what is said where texts do not."""

import json
import re
from pathlib import Path

import pytest
from dying import interrupt_at

from migrate.embedders.weights import packaged_model_path
from migrate.stores import open_store

pytestmark = pytest.mark.slow

MINILM = "packaged:all-MiniLM-L6-v2"
EMBED = f"embed texts.jsonl --model {MINILM}"
LONG, SHORT = 3, 7


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


@pytest.fixture(autouse=True)
def _jsonl(texts):
    lines = (json.dumps({"id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(texts))
    Path("texts.jsonl").write_text("".join(lines))


@pytest.fixture
def lexical(lead_migrate):
    """A store, `old`, of whole documents that no model has cut off."""
    lead_migrate("embed texts.jsonl --model tfidf:4 --no-chunks -o old -q")


def test_chunks_are_read_to_their_end_and_cover_the_documents(texts, tokens, lead_migrate):
    ended = lead_migrate(f"{EMBED} -o new --json")
    assert "254 tokens that share up to 25" in ended.err
    assert "warning" not in ended.err
    assert ended.document["chunks"]["tokens"] == 254 and ended.document["over_limit"] is None
    chunks = list(open_store("new").documents())
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
    told = lead_migrate("embed new/docs.jsonl --model tfidf:4 --no-chunks -o other").err
    assert "warning" not in told
    assert Path("new/docs.jsonl").read_bytes() == Path("other/docs.jsonl").read_bytes(), "another model has the same"


@pytest.mark.parametrize(
    ("options", "remedy"),
    [("--no-chunks", "leave out --no-chunks"), ("--chunk-tokens 280", "--chunk-tokens 254 fits")],
)
def test_embed_says_what_is_never_read(options, remedy, tokens, lead_migrate):
    ended = lead_migrate(f"{EMBED} {options} -o new --json")
    counts = [tokens(document.text) for document in open_store("new").documents()]
    over = sum(count > 256 for count in counts)
    share = 1 - sum(min(count, 256) for count in counts) / sum(counts)
    (warning,) = [line for line in ended.err.split("\n") if line.startswith("warning: ")]
    assert over >= 1 and remedy in warning
    assert (
        f"{over} of {len(counts)} texts" in warning and f"{100 * share:.1f} % of all tokens are never read" in warning
    )
    facts = ended.document["over_limit"]
    assert (facts["limit"], facts["texts"], facts["over"], facts["exact"]) == (256, len(counts), over, True)
    assert facts["unread_share"] == pytest.approx(share)


def test_fit_warns_of_the_store_once_and_counts_its_sample_too(lexical, lead_migrate):
    fit = f"fit old --target {MINILM} --kind mean --sample 10 -o stitch"
    ended = lead_migrate(f"{fit} --json")
    (warning,) = [line for line in ended.err.splitlines() if line.startswith("warning: ")]
    assert f"{LONG} of 10 documents" in warning and "256 tokens" in warning
    assert [ended.document["over_limit"][what]["over"] for what in ("store", "sample")] == [LONG, LONG]
    assert lead_migrate(f"{fit} --force --quiet").err == ""


def test_run_and_audit_put_it_into_the_report(lexical, texts, lead_migrate):
    Path("beir/qrels").mkdir(parents=True)
    # a few words of each, the first again and again, as queries that are documents do not judge
    asked_words = [text.split()[:6] * (50 if n == 0 else 1) for n, text in enumerate(texts)]
    rows = [{"_id": f"q{n}", "text": " ".join(words)} for n, words in enumerate(asked_words)]
    Path("beir/queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("beir/qrels/test.tsv").write_text("".join(f"q{n}\td{n}\t1\n" for n in range(len(texts))))
    told = f"{LONG} of 10 documents of the store are longer than the 256 tokens that {MINILM} reads: "
    asked = f"1 of 10 queries is longer than the 256 tokens that {MINILM} reads: "
    for command, warned in (
        (f"run old --reference pool --target {MINILM} --sample 10 --kind mean -o out", [told, asked]),
        (f"audit out/store --reference build --target {MINILM} --two-stage none", [asked]),
    ):
        ended = lead_migrate(f"{command} --judged beir --json", code=(0, 1, 3))
        notes, warnings = ended.document["notes"], re.findall("^warning: (.*)$", ended.err, re.MULTILINE)
        assert all(any(note.startswith(sentence) for note in notes) for sentence in (told, asked)), command
        # what `run` has said of the store, an audit of its store does not say again
        assert len(warnings) == len(warned)
        assert all(line.startswith(sentence) for line, sentence in zip(warnings, warned, strict=True))


def test_nothing_is_said_where_there_is_no_limit(lexical, lead_migrate):
    ended = lead_migrate("fit old --target tfidf:3 --kind mean --sample 10 -o stitch --json")
    assert "warning" not in ended.err and ended.document["over_limit"] == {"store": None, "sample": None}


def test_texts_that_an_api_refuses_are_told_before_anything_is_sent(server, lead_migrate):
    lines = (json.dumps({"id": str(n), "text": "tea " * (9_000 * n + 1)}) + "\n" for n in range(3))
    Path("corpus.jsonl").write_text("".join(lines))
    embed = "embed corpus.jsonl --model openai:text-embedding-3-small"
    told = lead_migrate(f"{embed} --no-chunks -o no --max-cost 0", code=2).err
    limit = "longer than the 8,191 tokens that openai:text-embedding-3-small takes"
    assert f"warning: about 2 of 3 texts are {limit}" in told
    assert "the API refuses such texts" in told and server.requests == []
    lead_migrate(f"{embed} -o new")
    assert open_store("new").info.count > 100


def test_a_run_that_was_interrupted_goes_on_with_the_same_chunks(digest, monkeypatch, lead_migrate):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr("migrate.embed.corpus.BATCH_DOCUMENTS", 4)
    embed = "embed texts.jsonl --model tfidf:4 --quiet -o"
    with monkeypatch.context() as patch:
        interrupt_at("recorded:2", patch)
        lead_migrate(f"{embed} broken", code=130)
    told = lead_migrate(f"{embed} broken --chunk-overlap 20", code=2).complaint
    assert "with other values of chunks" in told
    lead_migrate(f"{embed} broken")
    lead_migrate(f"{embed} whole")
    assert digest(Path("broken")) == digest(Path("whole"))


@pytest.mark.parametrize(
    ("model", "options", "told"),
    [
        (MINILM, "--no-chunks --chunk-tokens 9", "--no-chunks leaves documents whole"),
        (MINILM, "--chunk-overlap 254", "chunk_overlap: 254 is not from 0 to 253"),
        (f"{MINILM},document-prefix={'tea ' * 255}", "", "leaves no room among"),
    ],
    ids=["a size of no chunks", "too much overlap", "a long prefix"],
)
def test_sizes_that_mean_nothing_are_refused(model, options, told, lead_migrate):
    assert told in lead_migrate(f"embed texts.jsonl -o new {options} --model", model, code=2).complaint
