"""`assess`, and what the spending commands say, ask and stop at."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from stores_tools import make_store

from migrate.vectors import Document

pytestmark = pytest.mark.slow

SMALL, TINY = "openai:text-embedding-3-small", "openai:tiny"
ASSESS = f"assess store --target {SMALL}"
FIT = f"fit store --target {SMALL} --sample 50 --kind mean"
COSTLY = "--max-cost $0.00001"


@pytest.fixture(autouse=True)
def _store(store):
    pass


@pytest.fixture
def assessed(lead_migrate):
    return lambda line: lead_migrate(f"{line} --json").document


def plans_of(found):
    return {plan["name"]: plan for plan in found["plans"]}


def test_nothing_is_asked_and_no_key_is_needed(server, lead_migrate):
    ended = lead_migrate(ASSESS)
    assert server.requests == [] and not Path("cache").exists()
    assert max(map(len, ended.out.split("\n"))) <= 100
    assert "a full re-embed is the better deal here: it costs $0.00" in ended.out
    assert "cheapest plan expected to be SAFE: full re-embed" in ended.out and "downtime is none" in ended.out


def test_plans_stand_side_by_side(assessed):
    plans = plans_of(assessed(f"{ASSESS},rate=1000tok/min --price 1000"))
    names = ["full re-embed", "stay", *(f"migrate {share}%" for share in (1, 5, 10, 20, 50))]
    assert list(plans) == [*names, "two-stage 50, 1,000 queries, at most"]
    full, tenth = plans["full re-embed"], plans["migrate 10%"]
    assert (full["documents"], tenth["documents"]) == (150, 15)
    assert full["usd"] == pytest.approx(full["tokens"] / 1000) and full["minutes"] == pytest.approx(full["usd"])
    assert tenth["tokens"] == pytest.approx(full["tokens"] / 10, abs=1)
    assert {plan["downtime"] for plan in plans.values()} == {"none"}
    assert tenth["quality"] == "too few to learn from" and plans["migrate 50%"]["quality"] == "nothing yet"
    assert full["batch_usd"] is None, "a price that was given says nothing of the batch service"


def test_a_budget_is_told_what_it_buys(assessed):
    base = f"{ASSESS} --price 1000"
    full = assessed(base)["plans"][0]["usd"]
    found = assessed(f"{base} --budget ${full / 2:.4f}")
    (bought,) = [plan for plan in found["plans"] if plan["name"].startswith("what $")]
    assert bought["documents"] in (74, 75) and bought["usd"] <= full / 2 + 2e-3
    assert "buys true vectors for 50.0 % of the store" in found["answers"][-1]
    assert "buys everything" in assessed(f"{base} --budget 1000")["answers"][-1]


def test_a_stitch_and_an_audit_tell_what_is_known(write_vectors, judged, assessed, lead_migrate):
    write_vectors("vectors.npz", "tfidf:48")
    lead_migrate("fit store --target file:vectors.npz --sample 60 --kind ridge -o stitch")
    base = "assess store --target tfidf:48,rate=1/h --price 1000000"
    found = assessed(f"{base} --stitch stitch")
    known, larger, two_stage = [plan for plan in found["plans"] if plan["known"]]
    assert (known["documents"], larger["documents"]) == (0, 15), "the 60 of the sample are paid for"
    assert {plan["known"]["measure"] for plan in (known, larger, two_stage)} == {"expected overlap@10"}
    assert known["known"]["estimate"] <= larger["known"]["estimate"] <= larger["known"]["upper"]
    selection = json.loads(Path("stitch/lead-migrate.json").read_text())["details"]["selection"]
    kept, overlap = selection["partial"], selection["candidates"][0]["scores"]["overlap_at_10"]
    assert kept["overlap"][0] == pytest.approx(overlap) and kept["overlap"][-1] == 1
    assert known["known"]["estimate"] == pytest.approx(np.interp(60 / 150, kept["shares"], kept["overlap"]))
    assert two_stage["known"]["estimate"] == kept["two_stage"] > overlap
    assert "not known yet; the fit measured expected overlap@10" in found["answers"][0]

    lead_migrate("translate store stitch -o new")
    lead_migrate("embed judged/corpus.jsonl --model file:vectors.npz --no-chunks -o full")
    audit = "audit new --reference full --judged judged --target file:vectors.npz"
    lead_migrate(f"{audit} --source store --margin 0.8 --report report.json", code=(0, 1, 3))
    before = Path("report.json").read_bytes()
    found = assessed(f"{base} --stitch stitch --audit report.json")
    (stay,) = [plan for plan in found["plans"] if plan["kind"] == "stay"]
    (option,) = [option for option in json.loads(before)["options"] if option["name"] == "stay"]
    assert stay["known"]["estimate"] == option["retention"]["estimate"]
    text = lead_migrate(f"{base} --audit report.json").out
    assert max(map(len, text.split("\n"))) <= 100
    told = lead_migrate(f"{base} --report report.json --force", code=2).complaint
    assert "a report of an audit is there; --audit reads it;" in told
    assert Path("report.json").read_bytes() == before
    told = lead_migrate(f"{base} --audit stitch/lead-migrate.json", code=4).complaint
    assert "this is not the report of an audit; name one that `audit --report` wrote" in told


def test_a_stitch_of_another_store_is_refused(judged, lead_migrate):
    lead_migrate("embed judged --model tfidf:16 --no-chunks -o other")
    lead_migrate("fit other --target tfidf:8 --sample 50 --kind mean -o stitch")
    told = lead_migrate("assess store --target tfidf:8 --stitch stitch", code=4).complaint
    assert "the stitch was not fitted on" in told


def test_a_local_model_can_be_timed_and_a_paid_one_cannot(assessed, lead_migrate):
    found = assessed("assess store --target tfidf:16 --calibrate")
    assert found["rate"]["source"] == "as measured here on 28 documents"
    assert found["plans"][0]["minutes"] == pytest.approx(150 / found["rate"]["requests_per_min"])
    assert "nothing is spent here" in lead_migrate(f"{ASSESS} --calibrate", code=2).complaint


def test_the_page_holds_answers_plans_and_a_drawing(lead_migrate):
    lead_migrate(f"{ASSESS} --report cost.html")
    html = Path("cost.html").read_text()
    assert html.count('<svg role="img"') == 1 and html.count("<circle") == 7 and "better deal" in html
    assert "http" not in html.split("<svg")[1].split("</svg>")[0]
    assert "exists" in lead_migrate(f"{ASSESS} --report cost.html", code=2).complaint


def test_a_query_log_says_what_two_stage_meets(corpus, assessed):
    Path("log.txt").write_text(corpus.queries[0].text.replace("\n", " "))
    (plan,) = [plan for plan in assessed(f"{ASSESS} --query-log log.txt")["plans"] if plan["kind"] == "two-stage"]
    assert plan["name"] == "two-stage 50, 1,000 queries"


def test_a_fit_says_what_it_costs_and_what_is_in_the_cache_is_paid_for(server, assessed, lead_migrate):
    told = lead_migrate(f"{FIT} -o first").err
    served = sum(len(text.split()) for text in server.texts_served)
    assert re.search(r"to embed: 50 documents, about [\d,]+ tokens, \$0\.00", told)
    assert f"embedded: {served:,} tokens, " in told and "(estimate: " in told
    told = lead_migrate(f"{FIT} -o second").err
    assert "to embed: 0 documents, about 0 tokens, $0.00 (50 more are in the cache)" in told
    assert len(server.texts_served) == 50
    found = assessed(ASSESS)
    assert (found["texts"]["cached"], found["plans"][0]["documents"]) == (50, 100)


def test_a_price_beyond_the_cap_is_refused_where_nobody_can_be_asked(server, lead_migrate):
    told = lead_migrate(f"{FIT} -o stitch {COSTLY}", code=2)
    assert "raise --max-cost, or agree with --yes" in told.complaint
    assert "embedded" not in told.err, "nothing is said at the end of what nobody agreed to"
    assert server.requests == []
    lead_migrate(f"{FIT} -o stitch {COSTLY} --yes")
    assert len(server.texts_served) == 50


@pytest.mark.parametrize(("answer", "code", "served"), [("y", 0, 50), ("n", 2, 0)])
def test_a_person_is_asked(answer, code, served, server, monkeypatch, lead_migrate):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: answer)
    lead_migrate(f"{FIT} -o stitch {COSTLY}", code=code)
    assert len(server.texts_served) == served


def test_every_spending_command_asks_before_it_starts(judged, server, lead_migrate):
    lead_migrate(f"{FIT} -o stitch")
    lead_migrate("translate store stitch -o new")
    served = len(server.texts_served)
    for command in (
        f"embed judged --model {SMALL} -o out",
        "translate store stitch --reembed 50% --policy random -o out",
        "audit new --reference build --judged judged",
        f"run store --target {SMALL} --judged judged -o out",
        f"reembed store --target {SMALL} -o out",
    ):
        told = lead_migrate(f"{command} {COSTLY}", code=2).complaint
        assert "more than --max-cost (<$0.0001)" in told, command
        assert not Path("out").exists()
    assert len(server.texts_served) == served


def test_a_model_that_costs_nothing_or_has_no_price_is_not_asked_about(server, lead_migrate):
    told = lead_migrate(f"fit store --target tfidf:16 {COSTLY} -o stitch").err
    assert "to embed: the target model costs no money" in told
    fit = f"fit store --target {TINY} --sample 50 --kind mean {COSTLY}"
    assert "tokens, no price known" in lead_migrate(f"{fit} -o tiny").err
    assert "raise --max-cost" in lead_migrate(f"{fit} -o other --price 10 --cache none", code=2).complaint


@pytest.mark.usefixtures("server")
def test_assess_and_fit_agree_on_the_better_deal_without_a_price(lead_migrate):
    documents = [Document(f"d{row}", f"text number {row} of {row % 97} and {row % 89}") for row in range(12_000)]
    make_store(Path("many"), documents, np.random.default_rng(0).normal(size=(12_000, 8)).astype(np.float32))
    found = lead_migrate(f"assess many --target {TINY}")
    assert "tokens decide, and fit and audit are the better deal where they are SAFE" in found.said
    assert found.next.startswith("run many --target")
    assert "the better deal is the fit " in lead_migrate(f"fit many --target {TINY} --kind mean -o st").told


def test_a_rate_of_requests_does_not_lift_the_limit_of_tokens(lead_migrate):
    assert "3,000 requests/min and 40,000 tokens/min" in lead_migrate(f"{ASSESS},rate=50/s --tier free").said


@pytest.fixture
def fitted(lead_migrate):
    """What assesses a stitch."""
    lead_migrate("fit store --target tfidf:24 --sample 60 -q --kind ridge+text -o fitted")
    return "assess store --target tfidf:24 --stitch fitted"


def test_a_budget_in_tokens_says_what_to_expect_and_what_to_type(fitted, assessed, lead_migrate):
    found = assessed(f"{fitted} --budget 9500tok")
    plans = plans_of(found)
    bought = plans["what 9,500 tokens buy"]
    sample = found["texts"]["cached_tokens"]
    assert found["texts"]["cached"] == 60 and plans["full re-embed"]["documents"] == 90
    assert 0.9 * 9500 < sample + bought["tokens"] <= 1.02 * 9500, "the sample counts"
    assert bought["known"]["measure"] == "expected overlap@10"
    assert any(answer.startswith("the most to expect of 9,500 tokens: ") for answer in found["answers"])
    following = lead_migrate(f"{fitted} --budget 9500tok").next
    assert following.startswith("reembed ") and " --stitch fitted -o " in following


def test_the_cheapest_plan_for_a_quality_is_found_and_typed(fitted, assessed, lead_migrate):
    command = f"{fitted} --cache none"
    found = assessed(f"{command} --keep 0.9")
    plans = [plan for plan in found["plans"] if plan["known"] and plan["known"]["estimate"] >= 0.9]
    best = min(plans, key=lambda plan: plan["tokens"])
    assert any(plan["name"].startswith("for 0.9") for plan in plans)
    assert f"the cheapest way to 0.9 that is known: {best['name']}" in found["answers"][-1]
    for plan in plans:
        if plan["name"] == "for 0.9":
            assert plan["known"]["estimate"] == pytest.approx(0.9, abs=0.02), "and no more than that"
    assert re.match(r"(translate|reembed|fit) ", lead_migrate(f"{command} --keep 0.9").next)
    told = lead_migrate("assess store --target tfidf:24 --keep 0.9", code=2).complaint
    assert "nothing says what plans keep" in told
    assert "leave one of them out" in lead_migrate(f"{command} --keep 0.8 --budget $5", code=2).complaint


@pytest.mark.parametrize("budget", ["-5", "lots"])
def test_a_budget_that_is_none_is_refused(budget, lead_migrate):
    told = lead_migrate(f"assess store --target tfidf:24 --budget={budget}", code=2).complaint
    assert f"--budget {budget} is neither dollars such as $50 nor tokens" in told


def test_old_prices_are_warned_of_once_a_day_by_whichever_command_comes_first(server, lead_migrate, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1893456000")  # 2030-01-01
    old = "months old; check developers.openai.com"
    assert old in lead_migrate(ASSESS).told
    assert old not in lead_migrate(ASSESS).told
    assert old not in lead_migrate(f"{FIT} -o stitch").told
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1893542400")
    assert old in lead_migrate(f"{FIT} -o another").told
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1893628800")
    assert old not in lead_migrate(f"{ASSESS} --price 1").told
    assert old in lead_migrate(ASSESS).told
