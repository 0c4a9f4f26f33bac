"""The command line and a server: options that reach it, and refusals that are one line with an exit code."""

import json
import time

import openai_server as fake
import pytest

from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.errors import UsageError
from migrate.stores import open_store

SMALL = "openai:text-embedding-3-small"


@pytest.fixture
def embed(server, tmp_path, monkeypatch):
    """Embed 60 short texts, and what else is given, through the command line; returns the exit code."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*options, model=SMALL, more=()):
        corpus = tmp_path / "corpus.jsonl"
        texts = [*(f"text {number}" for number in range(60)), *more]
        corpus.write_text("\n".join(json.dumps({"id": f"d{n}", "text": text}) for n, text in enumerate(texts)))
        places = ["--no-chunks", "--quiet", "-o", str(tmp_path / "out")]
        return run(["embed", str(corpus), "--model", model, *places, "--base-url", server.url, *options])

    return call


def test_the_options_of_a_server_reach_it(embed, server, tmp_path):
    server.latency_s = 0.05
    assert embed(model=f"{SMALL},dimensions=16,concurrency=3,batch-size=4") == 0
    assert {request.dimensions for request in server.requests} == {16}
    sizes = [len(request.inputs) for request in server.requests]
    assert sizes[:15] == [4] * 15 and sorted(sizes[15:]) == [1, 3, 4], "all of them, then 8 again to prove the model"
    assert 1 < server.most_in_flight <= 3
    assert open_store(tmp_path / "out").info.dim == 16


def test_a_rate_reaches_the_server(embed, server):
    arrivals = []
    server.gate = lambda _number: arrivals.append(time.monotonic())
    assert embed(model=f"{SMALL},rate=600/min,batch-size=10") == 0
    # Six for the texts and two to prove the model; the first one had to connect
    assert len(arrivals) == 6 + 2 and arrivals[-1] - arrivals[1] >= 0.55


LONG = "word " * (fake.MAX_TEXT_TOKENS + 1)


@pytest.mark.parametrize(
    ("options", "fault", "code", "part"),
    [
        ({}, fake.status(401, "Incorrect API key provided: sk-12***89"), 7, "refused the key (HTTP 401); check OPENAI"),
        ({}, fake.status(403), 7, "refused the key (HTTP 403)"),
        ({"model": "openai:no-such-model"}, None, 7, "knows no model 'no-such-model' (HTTP 404); check the model's"),
        ({"more": [LONG]}, None, 4, "'d60' is longer than openai:text-embedding-3-small takes"),
        ({}, fake.status(429, "You exceeded your quota", "insufficient_quota"), 7, "no quota left"),
        ({}, fake.status(429, retry_after="7200"), 7, "asks to wait 7200 s"),
        ({}, fake.status(400, "dimensions is not\nsupported"), 7, "refused the request"),
        ({}, fake.SHORTER, 7, "dimension 1535, not 1536 (as text-embedding-3-small gives by itself); if --base-url"),
        ({}, fake.CONSTANT, 7, "one and the same vector for 16 different texts"),
        ({"model": f"{SMALL},rate=fast"}, None, 2, "'fast' is no rate of requests; give one such as 3000/min"),
        ({"model": f"{SMALL},concurrency=0"}, None, 2, "the setting concurrency '0' is no whole number above 0"),
        (
            {"args": ("--concurrency", "3")},
            None,
            2,
            "--concurrency=3 goes into the SPEC of its model: SPEC,concurrency=3",
        ),
        ({"model": f"{SMALL},batch-size=2049"}, None, 2, "from 1 to 2048"),
        ({"model": "tfidf:8,dimensions=4"}, None, 2, "with openai: or langchain: only"),
    ],
)
def test_a_refusal_is_one_line_with_its_exit_code(options, fault, code, part, embed, server, tmp_path, capsys):
    arguments = options.pop("args", ()) if "args" in (options := dict(options)) else ()
    server.faults.extend([fault] * 9 if fault else [])
    assert embed(*arguments, **options) == code
    captured = capsys.readouterr()
    assert captured.err.startswith("lead-migrate: ") and captured.err.count("\n") == 1 and captured.out == ""
    assert part in captured.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("fault", [fake.SHORTER, fake.CONSTANT])
def test_an_answer_of_the_wrong_model_is_paid_for_once_and_told(fault, server, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(json.dumps({"id": f"d{n}", "text": f"text {n}"}) for n in range(60)))
    server.faults.extend([fault] * 99)
    arguments = ["--model", f"{SMALL},batch-size=10", "--base-url", server.url, "-o", str(tmp_path / "out")]
    assert run(["embed", str(corpus), *arguments]) == 7
    told = capsys.readouterr().err
    assert len(server.requests) == 1
    assert "embedded until it broke off: 20 tokens" in told and "what could be used is in the cache" in told
    assert not (tmp_path / "out").exists()


def test_without_a_key_openai_itself_is_not_asked(tmp_path, capsys):
    (tmp_path / "c.jsonl").write_text('{"id": "a", "text": "x"}')
    command = [
        "embed",
        str(tmp_path / "c.jsonl"),
        "--model",
        SMALL,
        "--cache",
        "none",
        "-q",
        "-o",
        str(tmp_path / "out"),
    ]
    assert run(command) == 7
    assert capsys.readouterr().err == (
        "lead-migrate: openai:text-embedding-3-small needs a key; set OPENAI_API_KEY, or --base-url for a server of "
        "your own\n"
    )


def test_the_library_takes_the_same_options():
    embedder = load_embedder(SMALL, concurrency=3, rate="120/min", batch_size=7)
    assert (embedder.concurrency, embedder.request_texts) == (3, 7)
    for wrong in ({"rate": "fast"}, {"concurrency": 0}, {"concurrency": 257}):
        with pytest.raises(UsageError):
            load_embedder(SMALL, **wrong)
