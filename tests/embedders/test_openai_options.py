"""The command line and a server: options that reach it, and refusals that are one line with an exit code."""

import json
import time

import openai_server as fake
import pytest

from migrate.cli.main import run
from migrate.embedders import load_known, special_options
from migrate.stores import open_store
from migrate.vectors import Document

SMALL = "openai:text-embedding-3-small"
LONG = "word " * (fake.MAX_TEXT_TOKENS + 1)


@pytest.fixture
def embed(server, tmp_path, monkeypatch):
    """Embed 60 short texts, and what else is given, through the command line; returns the exit code."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*options, model=SMALL, more=()):
        corpus = tmp_path / "corpus.jsonl"
        texts = [*(f"text {number}" for number in range(60)), *more]
        corpus.write_text("\n".join(json.dumps({"id": f"d{n}", "text": text}) for n, text in enumerate(texts)))
        places = ["--no-chunks", "-o", str(tmp_path / "out"), "--base-url", server.url]
        return run(["embed", str(corpus), "--model", model, *places, *options])

    return call


@pytest.mark.slow
def test_the_options_of_a_server_reach_it(embed, server, tmp_path):
    server.latency_s = 0.05
    assert embed(model=f"{SMALL},dimensions=16,concurrency=3,batch-size=4") == 0
    assert {request.dimensions for request in server.requests} == {16}
    sizes = [len(request.inputs) for request in server.requests]
    assert sizes[:15] == [4] * 15 and sorted(sizes[15:]) == [1, 3, 4], "all of them, then 8 again to prove the model"
    assert 1 < server.most_in_flight <= 3
    assert open_store(tmp_path / "out").info.dim == 16


def test_a_store_remembers_the_dimensions_that_a_model_outside_the_registry_was_asked_for(embed, server, tmp_path):
    assert embed(model="openai:tiny,dimensions=4") == 0
    model = open_store(tmp_path / "out").info.manifest.model
    assert special_options(model) == {"dimensions": 4}
    again = load_known(None, model)
    again.base_url = server.url
    assert again.embed_documents([Document("a", "text 1")]).shape == (1, 4) and again.identity == model


@pytest.mark.slow
def test_a_rate_reaches_the_server(embed, server):
    arrivals = []
    server.gate = lambda _number: arrivals.append(time.monotonic())
    assert embed(model=f"{SMALL},rate=600/min,batch-size=10") == 0
    # Six for the texts and two to prove the model; the first one had to connect
    assert len(arrivals) == 6 + 2 and arrivals[-1] - arrivals[1] >= 0.55


def check_refusal(capsys, part, out):
    captured = capsys.readouterr()
    assert captured.err.startswith("lead-migrate: ") and captured.err.count("\n") == 1 and captured.out == ""
    assert part in captured.err and not out.exists()


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        (fake.status(401, "Incorrect API key provided: sk-12***89"), "refused the key (HTTP 401); check OPENAI"),
        (fake.status(403), "refused the key (HTTP 403)"),
        (fake.status(429, "You exceeded your quota", "insufficient_quota"), "no quota left"),
        (fake.status(429, retry_after="7200"), "failed once with: HTTP 429 (spoiled); the server asks to wait 7200 s"),
        (fake.status(416, "no such\nrange"), "refused the request"),
    ],
)
def test_an_answer_that_waiting_does_not_mend_is_told_in_a_line_after_one_request(
    fault, part, embed, server, tmp_path, capsys
):
    server.faults.extend([fault] * 9)
    assert embed("--quiet") == 7
    check_refusal(capsys, part, tmp_path / "out")
    assert len(server.requests) == 1


def test_an_option_that_the_server_does_not_take_is_told_in_a_line_after_three_requests(
    embed, server, tmp_path, capsys
):
    server.faults.extend([fake.status(400, "dimensions is not\nsupported")] * 9)
    assert embed("--quiet") == 7
    check_refusal(capsys, "refused the request", tmp_path / "out")
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("settings", "code", "part"),
    [
        ({"model": "openai:no-such-model"}, 7, "knows no model 'no-such-model' (HTTP 404); check the model's"),
        ({"more": [LONG]}, 4, "'d60' is longer than openai:text-embedding-3-small takes"),
        ({"model": f"{SMALL},rate=fast"}, 2, "'fast' is not a rate of requests; give one such as 3000/min"),
        ({"model": f"{SMALL},concurrency=0"}, 2, "the setting concurrency '0' is not a whole number above 0"),
        ({"model": f"{SMALL},concurrency=257"}, 2, "concurrency"),
        ({"model": f"{SMALL},batch-size=2049"}, 2, "from 1 to 2048"),
        ({"model": "tfidf:8,dimensions=4"}, 2, "with an API, a local model or langchain: only"),
    ],
)
def test_a_model_or_a_text_that_will_not_do_is_told_in_a_line(settings, code, part, embed, server, tmp_path, capsys):
    assert embed("--quiet", **settings) == code
    check_refusal(capsys, part, tmp_path / "out")


@pytest.mark.parametrize(
    ("option", "part"),
    [
        (["--concurrency", "3"], "--concurrency=3 goes into the SPEC of its model: SPEC,concurrency=3"),
        (
            ["--base-url", "localhost:8000"],
            "'localhost:8000' is not a --base-url; give one such as http://localhost:8000",
        ),
    ],
)
def test_an_option_that_will_not_do_is_told_in_a_line(option, part, embed, server, tmp_path, capsys):
    assert embed("--quiet", *option) == 2
    check_refusal(capsys, part, tmp_path / "out")
    assert server.requests == []


def test_without_a_key_openai_itself_is_not_asked(tmp_path, capsys):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"id": "a", "text": "x"}')
    command = ["embed", str(corpus), "--model", SMALL, "--cache", "none", "-q", "-o", str(tmp_path / "out")]
    assert run(command) == 7
    told = f"{SMALL} needs a key; set OPENAI_API_KEY, or --base-url for a server of your own"
    check_refusal(capsys, told, tmp_path / "out")
