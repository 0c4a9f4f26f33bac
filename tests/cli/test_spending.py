"""What the spending commands say and meter, against a server that counts every text."""

import json
import re
import shutil

import pytest
from openai_server import OpenAIServer, status

from migrate.cli.main import run
from migrate.cost.count import count_texts
from migrate.embedders import load_embedder
from migrate.embedders.again import ASKED_AGAIN
from migrate.steps.fit import Fit
from migrate.stores import open_store

pytestmark = pytest.mark.slow

SMALL = "openai:text-embedding-3-small"
SHORT = f"{SMALL},dimensions=24"
SAMPLE = ["--sample", 50, "--stitch", "ridge"]
SAID = re.compile(r"^to embed(?: by (?P<by>[^\n]*?))?: (?P<documents>[\d,]+) documents,"
                  r"(?: (?P<queries>[\d,]+) queries,)? (?:about )?(?P<tokens>[\d,]+) tokens", re.M)  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def server(monkeypatch):
    with OpenAIServer() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running


@pytest.fixture
def log(corpus, tmp_path):
    """A query log of ten queries, a line each, none of them among those of the benchmark."""
    path = tmp_path / "log.txt"
    path.write_text("\n".join(f"asked {number}: {corpus.queries[number].text.split()[0]}" for number in range(10)))
    return path


def lead_migrate(*arguments):
    return run([str(argument) for argument in arguments])


def said(capsys):
    """The lines before the start: (model, documents, queries, tokens)."""
    lines = SAID.findall(capsys.readouterr().err)
    return [(by, *(int(number.replace(",", "") or 0) for number in numbers)) for by, *numbers in lines]


def distinct(source_folder):
    return len({document.text for document in open_store(source_folder).documents()})


def test_a_fit_counts_the_sample_that_it_draws(source_folder, server, step_fields, tmp_path, capsys):
    for number, (strategy, drawing) in enumerate((("diverse", []), (None, ["--seed", 7]))):
        step_fields(Fit, strategy=strategy)
        server.billed.clear()
        command = ["fit", source_folder, "--target", SHORT, *SAMPLE, *drawing, "--cache", "none"]
        assert lead_migrate(*command, "-o", tmp_path / str(number)) == 0
        texts = [document for document in open_store(source_folder).documents() if document.text in server.billed]
        assert len(server.billed) == 50, "not the store"
        assert said(capsys) == [("", 50, 0, count_texts(texts, load_embedder(SMALL).profile).tokens_read)]


@pytest.mark.parametrize("cache", [[], ["--cache", "none"]])
def test_a_run_counts_the_sample_and_the_full_re_embed(
    cache, source_folder, beir, corpus, server, tmp_path, capsys, but_again
):
    command = ["run", source_folder, "--target", SHORT, "--beir", beir, *SAMPLE, *cache]
    assert lead_migrate(*command, "-o", tmp_path / "out") in (0, 1, 3)
    ((_, documents, queries, _),) = said(capsys)
    assert documents + queries == len(but_again(server.billed))
    assert (documents, queries) == (distinct(source_folder), len(corpus.queries))
    assert (tmp_path / "cache").exists() is not bool(cache)


@pytest.mark.parametrize("cache", [[], ["--cache", "none"]])
def test_an_audit_asks_for_nothing_twice(
    cache, source_folder, beir, corpus, log, server, tmp_path, capsys, but_again, audit_fields
):
    """But to prove the model: neither of the target, whom the frontier asks the same, nor of a view of all texts."""
    audit_fields(frontier="40%", query_log=log, no_bm25=True)
    view = ["--stitch", "ridge+text", "--view", "openai:tiny"]
    fit = ["fit", source_folder, "--target", SHORT, "--sample", 50, *view]
    assert lead_migrate(*fit, "-o", tmp_path / "stitch") == 0
    assert lead_migrate("translate", source_folder, tmp_path / "stitch", "-o", tmp_path / "new") == 0
    (tmp_path / "cache" / "lead-migrate" / "embeddings.sqlite").unlink()
    capsys.readouterr()
    server.billed.clear()
    command = ["audit", tmp_path / "new", "--reference", "build", "--beir", beir, "--source", source_folder, *cache,
               "--frontier", tmp_path / "stitch"]  # fmt: skip
    assert lead_migrate(*command) in (0, 1, 3)
    target, view = said(capsys)
    assert target[1:3] == (distinct(source_folder), len(corpus.queries) + 10)
    assert view[:3] == ("openai:tiny (view)", distinct(source_folder), 0)
    assert sum(text != "word" for text in but_again(server.billed)) == sum(target[1:3]) + view[1]


@pytest.mark.parametrize("budget", ["50%", "$0.0002"])
def test_a_budget_and_the_line_count_the_same_tokens(budget, source_folder, log, server, tmp_path, capsys, but_again):
    assert lead_migrate("fit", source_folder, "--target", SHORT, *SAMPLE, "-o", tmp_path / "stitch") == 0
    command = ["translate", source_folder, tmp_path / "stitch", "--reembed", budget, "--query-log", log]
    capsys.readouterr()
    server.billed.clear()
    assert lead_migrate(*command, "-o", tmp_path / "new") == 0
    (_, none, queries, _), (_, documents, _, tokens) = said(capsys)
    made = json.loads((tmp_path / "new.stitch" / "lead-migrate.json").read_text())["details"]["re-embedding"]
    assert (none, queries, documents) == (0, 10, made["documents"]), "the log is told of before it is embedded"
    assert made["tokens, about"] < tokens, "with those that prove the model"
    assert len(but_again(server.billed)) == queries + documents
    if budget.startswith("$"):
        paid = count_texts(_true(source_folder, tmp_path / "new.stitch"), load_embedder(SMALL).profile).tokens_read
        assert 0.9 * 0.0002 < paid * 0.02 / 1e6 <= 0.0002


def _true(source_folder, stitch):
    from migrate.stitch.persistence import load_stitch

    ids = set(load_stitch(stitch).sample.ids)
    return [document for document in open_store(source_folder).documents() if document.id in ids]


def test_an_audit_counts_tokens_as_its_line_does(
    source_folder, beir, server, tmp_path, monkeypatch, capsys, audit_fields
):
    monkeypatch.setattr("migrate.audit.retrieval._READ", 40)  # what is paid for is not judged by a part of the texts
    assert lead_migrate("fit", source_folder, "--target", SHORT, *SAMPLE, "-o", tmp_path / "stitch") == 0
    assert lead_migrate("translate", source_folder, tmp_path / "stitch", "-o", tmp_path / "new") == 0
    for number in range(2):
        audit_fields(no_bm25=bool(number))
        report = tmp_path / f"{number}.json"
        options = ["--cache", tmp_path / f"{number}.sqlite", "--report", report]
        capsys.readouterr()
        assert lead_migrate("audit", tmp_path / "new", "--reference", "build", "--beir", beir, *options) in (0, 1, 3)
        ((_, documents, _, tokens),) = said(capsys)
        asked = count_texts(open_store(tmp_path / "new").documents(), load_embedder(SMALL).profile)
        (full,) = [arm for arm in json.loads(report.read_text())["arms"] if arm["name"] == "full re-embed"]
        assert documents == asked.distinct and full["tokens"] == asked.tokens_read < tokens, "queries come on top"


def test_source_models_and_views_are_metered_too(source_folder, server, log, tmp_path, capsys):
    """Of dimension 32, as the source store is; the log is searched by the source model."""
    models = ["--source-model", "openai:text-embedding-ada-002", "--view", "openai:tiny", "--query-log", log]
    command = ["fit", source_folder, "--target", SHORT, "--sample", 50, "--stitch", "ridge+text", *models]
    assert lead_migrate(*command, "-o", tmp_path / "stitch") == 4, "its vectors are of another dimension"
    captured = capsys.readouterr().err
    source, view = "openai:text-embedding-ada-002 (source model)", "openai:tiny (view)"
    assert f"to embed by {source}: 0 documents, 10 queries, about " in captured
    assert f"to embed by {view}: 50 documents, about " in captured
    assert (
        f"embedded by {source} until it broke off: " in captured and "; what could be used is in the cache" in captured
    )


def test_all_models_of_a_command_share_one_cap(source_folder, server, tmp_path, capsys):
    command = ["fit", source_folder, "--target", "tfidf:24", "--sample", 50, "--stitch", "ridge+text", "--view", SMALL]
    assert lead_migrate(*command, "-o", tmp_path / "stitch", "--max-cost", "0.00001") == 2
    captured = capsys.readouterr().err
    assert "the target model costs no money" in captured and f"to embed by {SMALL} (view): 50 documents" in captured
    assert "more than --max-cost" in captured and server.requests == []


def test_a_view_is_told_of_again_where_it_reads_a_whole_store(source_folder, server, tmp_path, capsys):
    # the server's models agree, so that the stitch does use the view
    target = ["--target", "openai:text-embedding-ada-002"]
    command = ["fit", source_folder, *target, "--sample", 50, "--stitch", "ridge+text", "--view", SMALL]
    assert lead_migrate(*command, "-o", tmp_path / "stitch") == 0
    assert sum(text != "word" for text in server.billed) == 2 * 50
    capsys.readouterr()
    translate = ["translate", source_folder, tmp_path / "stitch", "-o", tmp_path / "new"]
    assert lead_migrate(*translate, "--max-cost", "0.00001") == 2
    assert lead_migrate(*translate) == 0
    lines = said(capsys)
    left = distinct(source_folder) - 50
    assert [line[:2] for line in lines] == [(f"{SMALL} (view)", left)] * 2
    assert sum(text != "word" for text in server.billed) == 50 + distinct(source_folder), "each text once"


def test_a_run_that_fails_says_what_was_spent(source_folder, beir, server, tmp_path, capsys):
    server.gate = lambda count: server.faults.append(status(401, "no more", "invalid_api_key")) if count == 4 else None
    command = ["embed", beir, "--model", f"{SHORT},batch-size=20,concurrency=1", "--no-chunks"]
    assert lead_migrate(*command, "-o", tmp_path / "out") == 7
    spent = server.billed_tokens
    told = capsys.readouterr().err
    assert spent and f"embedded until it broke off: {spent:,} tokens, " in told
    assert "(estimate: " in told and "; what could be used is in the cache" in told
    assert told.index("until it broke off") < told.index("lead-migrate: "), "the error is the last word"
    server.gate = None
    assert lead_migrate(*command, "-o", tmp_path / "out") == 0
    assert f"embedded: {server.billed_tokens - spent:,} tokens, " in capsys.readouterr().err


def test_a_run_that_nobody_agreed_to_says_nothing_at_its_end(source_folder, server, tmp_path, capsys):
    command = ["fit", source_folder, "--target", SMALL, *SAMPLE, "-o", tmp_path / "stitch", "--max-cost", 0]
    assert lead_migrate(*command) == 2
    assert "embedded" not in capsys.readouterr().err


@pytest.mark.parametrize("step", ["embed", "run"])
def test_finished_parts_are_not_counted_again_without_a_cache(
    step, source_folder, beir, server, tmp_path, monkeypatch, capsys, but_again
):
    """Parts are of 64 documents here; the run breaks off when it asks for the second."""
    monkeypatch.setattr("migrate.embed.corpus.BATCH_DOCUMENTS", 64)
    count = open_store(source_folder).info.count
    command = {
        "embed": ["embed", beir, "--model", f"{SHORT},batch-size=64", "--no-chunks", "-o", tmp_path / "out"],
        "run": [
            "run", source_folder, "--target", f"{SHORT},batch-size=64", "--beir", beir, *SAMPLE, "--reference", "build",
            "-o", tmp_path / "out",
        ],
    }[step]  # fmt: skip
    command += ["--cache", "none"]
    sample = 50 if step == "run" else 0

    def refuse(_request):
        if sum(len(request.inputs) > ASKED_AGAIN for request in server.requests) > 1 + (sample > 0):
            server.faults.append(status(401, "no more", "invalid_api_key"))

    server.gate = lambda _count: refuse(None)
    assert lead_migrate(*command) == 7
    ((_, documents, *_),) = said(capsys)
    billed = but_again(server.billed)
    assert documents == count and 64 <= len(billed) <= sample + 64, "a part and the sample, which may overlap"
    server.gate = None
    server.faults.clear()
    server.billed.clear()
    code = lead_migrate(*command)
    captured = said(capsys)
    assert code in (0, 1, 3, 4), "the source store was not embedded by the model that the audit asks"
    assert [line[1] for line in captured] == [count - 64]
    assert len(server.billed) >= count - 64


def unlabelled(store, folder):
    """A copy of a store that does not say which model it is of."""
    shutil.copytree(store, folder)
    (folder / "lead-migrate.json").unlink()
    return folder


def test_a_pool_is_metered_announced_and_paid_for_once(source_folder, beir, server, tmp_path, capsys, but_again):
    assert lead_migrate("fit", source_folder, "--target", SHORT, *SAMPLE, "-o", tmp_path / "stitch") == 0
    assert lead_migrate("translate", source_folder, tmp_path / "stitch", "-o", tmp_path / "new") == 0
    capsys.readouterr()
    server.billed.clear()
    command = ["audit", tmp_path / "new", "--reference", "pool", "--beir", beir, "--source", source_folder]
    refused = lead_migrate(*command, "--max-cost", "0.00001")
    assert refused == 2 and server.billed == []
    assert "raise --max-cost, or agree with --yes" in capsys.readouterr().err
    report = tmp_path / "report.json"
    assert lead_migrate(*command, "--report", report) in (0, 1, 3)
    told = capsys.readouterr().err
    assert "to embed: " in told and "pool, the first 20 documents for 150 queries" in told
    paid = [text for text in but_again(server.billed) if text != "word"]
    assert len(paid) == len(set(paid))
    pool = json.loads(report.read_text())["pool"]
    assert pool["documents"] == pool["count"] == 150 and pool["usd"] == pool["full_usd"] > 0
    server.billed.clear()
    assert lead_migrate(*command) in (0, 1, 3)
    assert [text for text in but_again(server.billed) if text != "word"] == [], "all is in the cache"


def test_a_view_is_the_model_as_it_is(source_folder, tmp_path, capsys):
    command = [
        "fit",
        source_folder,
        "--target",
        "tfidf:24",
        "--view",
        f"{SMALL},dimensions=24",
        "-o",
        tmp_path / "stitch",
    ]
    assert lead_migrate(*command) == 2
    assert "a stitch loads a further model as it is by itself; leave out dimensions" in capsys.readouterr().err


def test_no_view_is_for_not_trying_one_and_stands_alone(source_folder, tmp_path, capsys):
    command = ["fit", source_folder, "--target", "tfidf:24", "--sample", 50, "--view", "none", "--view", SMALL]
    assert run([*map(str, command), "-o", str(tmp_path / "stitch")]) == 2
    assert "--view none goes alone; leave it or the others out" in capsys.readouterr().err
    assert not (tmp_path / "stitch").exists()
