"""`assess`, and what the spending commands say, ask and stop at."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from openai_server import OpenAIServer

from migrate.cli.main import run
from migrate.cost.count import TextCount
from migrate.stores import create_store, open_store
from migrate.vectors import Document

pytestmark = pytest.mark.slow

SMALL, TINY = "openai:text-embedding-3-small", "openai:tiny"
SAMPLE = ["--sample", 50, "--stitch", "mean"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "none"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server(monkeypatch):
    with OpenAIServer() as running:
        monkeypatch.setenv("LEAD_MIGRATE_BASE_URL", running.url)
        yield running


def lead_migrate(*arguments):
    return run([str(argument) for argument in arguments])


def assessed(capsys, *arguments):
    assert lead_migrate("assess", *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def complaint(capsys, *arguments):
    code = lead_migrate(*arguments)
    (line,) = [line for line in capsys.readouterr().err.split("\n") if line.startswith("lead-migrate: ")]
    return code, line


def test_nothing_is_asked_and_no_key_is_needed(source_folder, server, tmp_path, capsys):
    assert lead_migrate("assess", source_folder, "--target", SMALL) == 0
    text = capsys.readouterr().out
    assert server.requests == [] and not (tmp_path / "cache").exists()
    assert max(map(len, text.split("\n"))) <= 100
    assert "a full re-embed is the better deal here: it costs $0.00" in text
    assert "cheapest plan expected to be SAFE: full re-embed" in text and "downtime is none" in text


def test_plans_stand_side_by_side(source_folder, capsys):
    found = assessed(capsys, source_folder, "--target", f"{SMALL},rate=1000tok/min", "--price", 1000)
    plans = {plan["name"]: plan for plan in found["plans"]}
    names = ["full re-embed", "stay", *(f"migrate {share}%" for share in (1, 5, 10, 20, 50))]
    assert list(plans) == [*names, "two-stage 50, 1,000 queries, at most"]
    full, tenth = plans["full re-embed"], plans["migrate 10%"]
    assert (full["documents"], tenth["documents"]) == (150, 15)
    assert full["usd"] == pytest.approx(full["tokens"] / 1000) and full["minutes"] == pytest.approx(full["usd"])
    assert tenth["tokens"] == pytest.approx(full["tokens"] / 10, abs=1)
    assert {plan["downtime"] for plan in plans.values()} == {"none"}
    assert tenth["quality"] == "too few to learn from" and plans["migrate 50%"]["quality"] == "nothing yet"
    assert full["batch_usd"] is None, "a price that was given says nothing of the batch service"


def test_tokens_of_a_local_model_are_exact(source_folder, capsys):
    from transformers import AutoTokenizer

    from migrate.embedders.weights import packaged_model_path

    found = assessed(capsys, source_folder, "--target", "packaged:all-MiniLM-L6-v2")
    own = AutoTokenizer.from_pretrained(str(packaged_model_path()), local_files_only=True)
    texts = {document.text for document in open_store(source_folder).documents()}
    assert found["tokens"]["exact"] and found["texts"]["tokens"] == sum(len(own(text)["input_ids"]) for text in texts)
    assert found["plans"][0]["usd"] is None and found["rate"]["source"] == "as measured here on 28 documents"
    untimed = assessed(capsys, source_folder, "--target", "packaged:all-MiniLM-L6-v2", "--no-calibrate")
    assert untimed["rate"] is None and untimed["texts"] == found["texts"]


def test_a_budget_is_told_what_it_buys(source_folder, capsys):
    base = [source_folder, "--target", SMALL, "--price-per-mtok", "1000"]
    full = assessed(capsys, *base)["plans"][0]["usd"]
    found = assessed(capsys, *base, "--budget", f"${full / 2:.4f}")
    (bought,) = [plan for plan in found["plans"] if plan["name"].startswith("what $")]
    assert bought["documents"] in (74, 75) and bought["usd"] <= full / 2 + 2e-3
    assert "buys true vectors for 50.0% of the store" in found["answers"][-1]
    assert "buys everything" in assessed(capsys, *base, "--budget", "1000")["answers"][-1]


def test_a_stitch_and_a_frontier_tell_what_is_known(source_folder, beir, corpus, tmp_path, capsys):
    vectors = tmp_path / "vectors.npz"
    from migrate.embedders import load_embedder

    embedder = load_embedder("tfidf:48")
    embedder.fit(corpus.documents)
    np.savez(
        vectors,
        doc_ids=[document.id for document in corpus.documents],
        docs=embedder.embed_documents(corpus.documents),
        query_ids=[query.id for query in corpus.queries],
        queries=embedder.embed_queries(corpus.queries),
    )
    target = ["--target", f"file:{vectors}"]
    stitch, report = tmp_path / "stitch", tmp_path / "report.json"
    lead_migrate("fit", source_folder, *target, "--sample", 60, "--stitch", "ridge", "-o", stitch)
    base = [source_folder, "--target", "tfidf:48,rate=1/h", "--price", "1000000"]
    found = assessed(capsys, *base, "--stitch", stitch) if capsys.readouterr() else None
    known, larger, two_stage = [plan for plan in found["plans"] if plan["known"]]
    assert (known["documents"], larger["documents"]) == (0, 15), "the 60 of the sample are paid for"
    assert {plan["known"]["measure"] for plan in (known, larger, two_stage)} == {"expected overlap@10"}
    assert known["known"]["estimate"] <= larger["known"]["estimate"] <= larger["known"]["upper"]
    selection = json.loads((stitch / "lead-migrate.json").read_text())["details"]["selection"]
    kept, overlap = selection["partial"], selection["candidates"][0]["scores"]["overlap_at_10"]
    assert kept["overlap"][0] == pytest.approx(overlap) and kept["overlap"][-1] == 1
    assert known["known"]["estimate"] == pytest.approx(np.interp(60 / 150, kept["shares"], kept["overlap"]))
    assert two_stage["known"]["estimate"] == kept["two_stage"] > overlap
    assert "not known yet; of the stitch" in found["answers"][0]
    lead_migrate("translate", source_folder, stitch, "-o", tmp_path / "new")
    lead_migrate("embed", beir / "corpus.jsonl", "--model", target[1], "--no-chunks", "-o", tmp_path / "full")
    lead_migrate(
        "audit", tmp_path / "new", "--reference", tmp_path / "full", "--beir", beir, *target, "--source", source_folder,
        "--frontier", stitch, "--margin", "0.8", "--report", report,
    )  # fmt: skip
    best = json.loads(report.read_text())["frontier"]["cheapest_safe"]
    capsys.readouterr()
    found = assessed(capsys, *base, "--stitch", stitch, "--audit", report)
    safe = [plan for plan in found["plans"] if plan["known"] and plan["known"]["is_cheapest_safe"]]
    assert [plan["known"]["documents"] for plan in safe] == [best["documents"]]
    assert f"expected to be SAFE: {safe[0]['name']}" in found["answers"][0]
    lead_migrate("assess", *base, "--audit", report)
    text = capsys.readouterr().out
    assert "SAFE by" in text and max(map(len, text.split("\n"))) <= 100
    before = report.read_bytes()
    code, line = complaint(capsys, "assess", *base, "--report", report, "--force")
    assert code == 2 and "a report of an audit is there; --audit reads it;" in line
    assert report.read_bytes() == before
    code, line = complaint(capsys, "assess", *base, "--audit", stitch / "lead-migrate.json")
    assert code == 4 and "no report of an audit with --frontier" in line


def test_a_stitch_of_another_store_is_refused(source_folder, beir, tmp_path, capsys):
    lead_migrate("embed", beir, "--model", "tfidf:16", "--no-chunks", "-o", tmp_path / "other")
    lead_migrate("fit", tmp_path / "other", "--target", "tfidf:8", *SAMPLE, "-o", tmp_path / "stitch")
    code, line = complaint(capsys, "assess", source_folder, "--target", "tfidf:8", "--stitch", tmp_path / "stitch")
    assert code == 4 and "the stitch was not fitted on" in line


def test_a_local_model_can_be_timed_and_a_paid_one_cannot(source_folder, capsys):
    found = assessed(capsys, source_folder, "--target", "tfidf:16", "--calibrate")
    assert found["rate"]["source"] == "as measured here on 28 documents"
    assert found["plans"][0]["minutes"] == pytest.approx(150 / found["rate"]["requests_per_min"])
    code, line = complaint(capsys, "assess", source_folder, "--target", SMALL, "--calibrate")
    assert code == 2 and "nothing is spent here" in line


def test_the_page_holds_answers_plans_and_a_drawing(source_folder, tmp_path, capsys):
    page = tmp_path / "cost.html"
    assert lead_migrate("assess", source_folder, "--target", SMALL, "--report", page) == 0
    html = page.read_text()
    assert html.count('<svg role="img"') == 1 and html.count("<circle") == 7 and "better deal" in html
    assert "http" not in html.split("<svg")[1].split("</svg>")[0]
    code, line = complaint(capsys, "assess", source_folder, "--target", SMALL, "--report", page)
    assert code == 2 and "exists" in line


def test_a_query_log_says_what_two_stage_meets(source_folder, corpus, tmp_path, capsys):
    log = tmp_path / "log.txt"
    log.write_text(corpus.queries[0].text.replace("\n", " "))
    found = assessed(capsys, source_folder, "--target", SMALL, "--query-log", log)
    (plan,) = [plan for plan in found["plans"] if plan["kind"] == "two-stage"]
    assert plan["name"] == "two-stage 50, 1,000 queries"


def test_what_is_in_the_cache_is_paid_for(source_folder, server, tmp_path, capsys):
    assert lead_migrate("fit", source_folder, "--target", SMALL, *SAMPLE, "-o", tmp_path / "stitch") == 0
    capsys.readouterr()
    found = assessed(capsys, source_folder, "--target", SMALL)
    assert (found["texts"]["cached"], found["plans"][0]["documents"]) == (50, 100)


def test_a_fit_says_what_it_costs_before_and_after(source_folder, server, tmp_path, capsys):
    command = ["fit", source_folder, "--target", SMALL, *SAMPLE]
    assert lead_migrate(*command, "-o", tmp_path / "first") == 0
    told = capsys.readouterr().err
    served = sum(len(text.split()) for text in server.texts_served)
    assert re.search(r"to embed: 50 documents, about [\d,]+ tokens, \$0\.00", told)
    assert f"embedded: {served:,} tokens, " in told and "(estimate: " in told
    assert lead_migrate(*command, "-o", tmp_path / "second") == 0
    assert "to embed: 0 documents, about 0 tokens, $0.00 (50 more are in the cache)" in capsys.readouterr().err


COSTLY = ["--max-cost", "$0.00001"]


def test_a_price_beyond_the_cap_is_refused_where_nobody_can_be_asked(source_folder, server, tmp_path, capsys):
    command = ["fit", source_folder, "--target", SMALL, *SAMPLE, "-o", tmp_path / "stitch", *COSTLY]
    code, line = complaint(capsys, *command)
    assert code == 2 and "raise --max-cost, or agree with --yes" in line
    assert server.requests == []
    assert lead_migrate(*command, "--yes") == 0 and len(server.texts_served) == 50


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2)])
def test_a_person_is_asked(answer, code, source_folder, server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: answer)
    command = ["fit", source_folder, "--target", SMALL, *SAMPLE, "-o", tmp_path / "stitch", *COSTLY]
    assert lead_migrate(*command) == code
    assert len(server.texts_served) == (50 if answer == "y" else 0)


def test_every_spending_command_asks_before_it_starts(source_folder, beir, server, tmp_path, capsys):
    lead_migrate("fit", source_folder, "--target", SMALL, *SAMPLE, "-o", tmp_path / "stitch")
    lead_migrate("translate", source_folder, tmp_path / "stitch", "-o", tmp_path / "new")
    served = len(server.texts_served)
    out = ["-o", tmp_path / "out", *COSTLY]
    for command in (
        ["embed", beir, "--model", SMALL, *out],
        ["translate", source_folder, tmp_path / "stitch", "--reembed", "50%", "--policy", "random", *out],
        ["audit", tmp_path / "new", "--reference", "build", "--beir", beir, *COSTLY],
        ["run", source_folder, "--target", SMALL, "--beir", beir, *out],
    ):
        capsys.readouterr()
        code, line = complaint(capsys, *command)
        assert code == 2 and "more than --max-cost (<$0.0001)" in line, command[0]
        assert not (tmp_path / "out").exists()
    assert len(server.texts_served) == served


def test_a_run_that_meets_the_cap_keeps_what_it_paid_for(beir, server, tmp_path, monkeypatch, capsys, but_again):
    """The count beforehand is made far too low, as that of a server with another tokenizer may be."""
    monkeypatch.setattr("migrate.cost.spending.count_texts", lambda *_, **__: TextCount())
    command = ["embed", beir, "--model", f"{SMALL},batch-size=20", "--no-chunks", "-o", tmp_path / "out"]
    code, line = complaint(capsys, *command, "--max-cost", "0.0001")
    assert code == 2 and "everything paid for is in the cache" in line and not (tmp_path / "out").exists()
    assert 0 < len(server.texts_served) < 150
    assert lead_migrate(*command) == 0
    texts = {document.text for document in open_store(tmp_path / "out").documents()}
    assert sorted(but_again(server.texts_served)) == sorted(texts), "each text once"


def test_a_model_that_runs_here_costs_no_money(source_folder, tmp_path, capsys):
    assert lead_migrate("fit", source_folder, "--target", "tfidf:16", *COSTLY, "-o", tmp_path / "stitch") == 0
    assert "to embed: the target model costs no money" in capsys.readouterr().err


def test_a_model_without_a_price_is_not_asked_about(source_folder, server, tmp_path, capsys):
    command = ["fit", source_folder, "--target", TINY, *SAMPLE, *COSTLY, "-o", tmp_path / "stitch"]
    assert lead_migrate(*command) == 0
    assert "tokens, no price known" in capsys.readouterr().err
    code, line = complaint(capsys, *command[:-1], tmp_path / "other", "--price", 10, "--cache", "none")
    assert code == 2 and "raise --max-cost" in line


@pytest.mark.parametrize(("count", "better"), [(3_000, "full re-embed"), (12_000, "fit")])
@pytest.mark.usefixtures("server")
def test_assess_and_fit_agree_on_the_better_deal_without_a_price(count, better, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    documents = [Document(f"d{row}", f"text number {row} of {row % 97} and {row % 89}") for row in range(count)]
    Path("store").mkdir()
    writer = create_store(Path("store"), format="faiss", dim=8)
    writer.append(documents, np.random.default_rng(0).normal(size=(count, 8)).astype(np.float32))
    writer.finish()
    assert lead_migrate("assess", "store", "--target", TINY) == 0
    assessed = capsys.readouterr()
    text, said = " ".join(assessed.out.split()), assessed.err.splitlines()[-1]
    assert "nobody can say" not in text
    if better == "fit":
        assert "tokens decide, and fit and audit are the better deal where they are SAFE" in text
        assert said.startswith("next: lead-migrate run store --target")
    else:
        assert f"a full re-embed is the better deal here: fit and audit by 200 queries embed about {count:,}" in text
        assert said.startswith("next: lead-migrate reembed store --target")
    assert lead_migrate("fit", "store", "--target", TINY, "--stitch", "mean", "-o", "stitch") == 0
    told = " ".join(capsys.readouterr().err.split())
    assert f"the better deal is the {better} " in told


def test_a_rate_of_requests_does_not_lift_the_limit_of_tokens(source_folder, capsys):
    assert lead_migrate("assess", source_folder, "--target", f"{SMALL},rate=50/s", "--tier", "free") == 0
    assert "3,000 requests/min and 40,000 tokens/min" in " ".join(capsys.readouterr().out.split())


@pytest.fixture
def fitted_folder(source_folder, tmp_path, capsys):
    """A stitch that tried first tokens and was told to lean on them."""
    fit = ["fit", source_folder, "--target", "tfidf:24", "--sample", 60, "--prefix", 4, "-o", tmp_path / "st", "-q"]
    assert lead_migrate(*fit, "--stitch", "ridge+text", "--stitch", "prefix+text") == 0
    capsys.readouterr()
    return tmp_path / "st"


def test_a_budget_in_tokens_says_what_to_expect_and_what_to_type(source_folder, fitted_folder, capsys):
    command = [source_folder, "--target", "tfidf:24", "--stitch", fitted_folder, "--budget", "9500tok", "--prefix", "2"]
    found = assessed(capsys, *command)
    plans = {plan["name"]: plan for plan in found["plans"]}
    first = {tokens: plans[f"the sample, first {tokens} tokens of all"] for tokens in (2, 4)}
    assert 0 < first[2]["tokens"] < first[4]["tokens"]
    assert first[2]["known"] is None and first[4]["known"]["measure"] == "expected overlap@10"
    bought, mixed = plans["what 9,500 tokens buy"], plans["what 9,500 tokens buy, first 4 tokens of all"]
    sample = found["texts"]["cached_tokens"]
    assert found["texts"]["cached"] == 60 and plans["full re-embed"]["documents"] == 90
    for plan in (bought, mixed):
        assert 0.9 * 9500 < sample + plan["tokens"] <= 1.02 * 9500, "the sample counts"
    assert mixed["documents"] < bought["documents"]
    assert any(answer.startswith("the most to expect of 9,500 tokens: ") for answer in found["answers"])
    assert lead_migrate("assess", *command) == 0
    assert re.search(r"^next: .* reembed .* --stitch .*st -o ", capsys.readouterr().err, re.MULTILINE)


def test_the_cheapest_plan_for_a_quality_is_found_and_typed(source_folder, fitted_folder, capsys):
    command = [source_folder, "--target", "tfidf:24", "--stitch", fitted_folder, "--cache", "none"]
    found = assessed(capsys, *command, "--keep", 0.9)
    plans = [plan for plan in found["plans"] if plan["known"] and plan["known"]["estimate"] >= 0.9]
    best = min(plans, key=lambda plan: plan["tokens"])
    assert any(plan["name"].startswith("for 0.9") for plan in plans)
    assert f"the cheapest way to 0.9 that is known: {best['name']}" in found["answers"][-1]
    for plan in plans:
        if plan["name"] == "for 0.9":
            assert plan["known"]["estimate"] == pytest.approx(0.9, abs=0.02), "and no more than that"
    lead_migrate("assess", *command, "--keep", 0.9)
    assert re.search(r"^next: .* (translate|reembed|fit) ", capsys.readouterr().err, re.MULTILINE)
    code, line = complaint(capsys, "assess", *command[:3], "--keep", 0.9)
    assert code == 2 and "nothing says what plans keep" in line
    code, line = complaint(capsys, "assess", *command, "--keep", 0.8, "--budget", "$5")
    assert code == 2 and "leave one of them out" in line


@pytest.mark.parametrize("budget", ["0tok", "manytok", "-5", "1.5tok", "lots", "nan", "$"])
def test_a_budget_that_is_none_is_refused(source_folder, budget, capsys):
    assert lead_migrate("assess", source_folder, "--target", "tfidf:24", f"--budget={budget}") == 2
    assert f"--budget {budget} is neither dollars such as $50 nor tokens" in capsys.readouterr().err
