"""`assess`, and what the spending commands say, ask and stop at."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from stores_tools import make_store

from migrate.selection.model_match import ASKED_AGAIN
from migrate.vectors import Document

pytestmark = pytest.mark.slow

SMALL, TINY = "openai:text-embedding-3-small", "openai:tiny"
ASSESS = f"assess store --target {SMALL}"
FIT = f"fit store --target {SMALL} --sample 50 --kind mean"
COSTLY = "--max-cost $0.00001"


@pytest.fixture(autouse=True)
def _store(store):
    pass


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A store of so many documents that a sample of them and its proof are less; nobody writes to it."""
    folder = tmp_path_factory.mktemp("large") / "many"
    documents = [Document(f"d{row}", f"text number {row} of {row % 97} and {row % 89}") for row in range(12_000)]
    make_store(folder, documents, np.random.default_rng(0).normal(size=(12_000, 8)).astype(np.float32))
    return folder


@pytest.fixture
def assessed(lead_migrate):
    return lambda line: lead_migrate(f"{line} --json").document


def plans_of(found):
    return {plan["name"]: plan for plan in found["plans"]}


def test_nothing_is_asked_and_no_key_is_needed(server, lead_migrate):
    ended = lead_migrate(ASSESS)
    assert server.requests == [] and not Path("cache").exists()
    assert max(map(len, ended.out.split("\n"))) <= 100
    assert "the better deal is the full re-embed" in ended.said


def test_plans_stand_side_by_side(assessed):
    plans = plans_of(assessed(f"{ASSESS},rate=1000tok/min --price 1000"))
    assert list(plans) == ["full re-embed", "migrate", "two-stage 50", "stay"]
    full, stay = plans["full re-embed"], plans["stay"]
    assert full["documents"] == plans["migrate"]["documents"] == 150, "sample and proof are more than so small a store"
    assert full["usd"] == pytest.approx(full["tokens"] / 1000) and full["minutes"] == pytest.approx(full["usd"])
    assert (stay["documents"], stay["tokens"], stay["usd"], stay["minutes"]) == (0, 0, 0, 0)
    assert full["quality"] == {"measure": "retention", "estimate": 1, "lower": 1, "upper": 1}
    assert stay["quality"] == {"measure": "retention", "estimate": None, "lower": 0.88, "upper": 1.13}
    assert plans["two-stage 50"]["quality"] is None


def test_a_large_store_is_migrated_by_a_sample_and_its_proof(many, assessed):
    found = assessed(f"assess {many} --target {SMALL}")
    plans = plans_of(found)
    assert [plan["documents"] for plan in plans.values()] == [12_000, 1_000 + 20 * 200, 12_000, 0]
    assert plans["migrate"]["tokens"] == pytest.approx(plans["full re-embed"]["tokens"] * 5 / 12, abs=1)
    assert found["full_is_better"], "it costs cents"


def test_an_audit_tells_what_each_plan_keeps(write_vectors, judged, assessed, lead_migrate):
    write_vectors("vectors.npz", "tfidf:48")
    lead_migrate("fit store --target file:vectors.npz --sample 60 --kind ridge -o stitch")
    base = "assess store --target tfidf:48"
    lead_migrate("translate store stitch -o new")
    lead_migrate("embed judged/corpus.jsonl --model file:vectors.npz --no-chunks -o full")
    audit = "audit new --reference full --judged judged --target file:vectors.npz --two-stage 50"
    lead_migrate(f"{audit} --source store --margin 0.8 --report report.json", code=(0, 1, 3))
    before = Path("report.json").read_bytes()
    plans = plans_of(assessed(f"{base} --audit report.json"))
    options = {option["name"]: option["retention"] for option in json.loads(before)["options"]}
    for plan, option in (("migrate", "translated"), ("two-stage 50", "two-stage 50"), ("stay", "stay")):
        assert plans[plan]["quality"] == {"measure": "retention", **options[option]}
    text = lead_migrate(f"{base} --audit report.json").out
    assert max(map(len, text.split("\n"))) <= 100
    assert f"{100 * options['stay']['estimate']:.1f} % ({100 * options['stay']['lower']:.1f}-" in text
    told = lead_migrate(f"{base} --report report.json --force", code=2).complaint
    assert "a report of an audit is there; --audit reads it;" in told
    assert Path("report.json").read_bytes() == before
    told = lead_migrate(f"{base} --audit stitch/lead-migrate.json", code=4).complaint
    assert "stitch/lead-migrate.json" in told and "and is 'stitch'" in told


def test_a_local_model_can_be_timed_and_a_paid_one_cannot(assessed, lead_migrate):
    found = assessed("assess store --target tfidf:16 --calibrate")
    assert found["rate"]["source"] == "as measured here on 28 documents"
    assert found["plans"][0]["minutes"] == pytest.approx(150 / found["rate"]["requests_per_min"])
    assert "nothing is spent here" in lead_migrate(f"{ASSESS} --calibrate", code=2).complaint


def test_the_page_holds_the_table_and_the_answer(lead_migrate):
    lead_migrate(f"{ASSESS} --report cost.html")
    html = Path("cost.html").read_text()
    assert "better deal" in html and "88 to 113 % elsewhere" in html
    Path("cost.html").write_text("another page")
    assert "exists" in lead_migrate(f"{ASSESS} --report cost.html", code=2).complaint


def test_a_fit_says_what_it_costs_and_what_is_in_the_cache_is_paid_for(server, assessed, lead_migrate):
    told = lead_migrate(f"{FIT} -o first").err
    served = sum(len(text.split()) for text in server.texts_served)
    assert re.search(r"50 documents,.* [\d,]+ tokens, \$0\.00", told)
    assert f"embedded: {served:,} tokens, " in told and "(estimate: " in told
    told = lead_migrate(f"{FIT} -o second").err
    assert "to embed: 0 documents, " in told and "(50 more are in the cache)" in told
    assert len(set(server.texts_served)) == 50 and len(server.texts_served) == 50 + 2 * ASKED_AGAIN
    found = assessed(ASSESS)
    assert (found["texts"]["cached"], found["plans"][0]["documents"]) == (50, 100)


def test_a_price_beyond_the_cap_is_refused_where_nobody_can_be_asked(server, lead_migrate):
    told = lead_migrate(f"{FIT} -o stitch {COSTLY}", code=2)
    assert "raise --max-cost, or agree with --yes" in told.complaint
    assert "embedded" not in told.err, "nobody agreed"
    assert server.requests == []
    lead_migrate(f"{FIT} -o stitch {COSTLY} --yes")
    assert len(server.texts_served) == 50 + ASKED_AGAIN


@pytest.mark.parametrize(("answer", "code", "served"), [("y", 0, 50 + ASKED_AGAIN), ("n", 2, 0)])
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
    assert "to embed: up to 150 texts; the target model costs no money" in told
    fit = f"fit store --target {TINY} --sample 50 --kind mean {COSTLY}"
    assert "tokens, no price known" in lead_migrate(f"{fit} -o tiny").err
    assert "raise --max-cost" in lead_migrate(f"{fit} -o other --price 10 --cache none", code=2).complaint


@pytest.mark.usefixtures("server")
def test_assess_and_fit_agree_on_the_better_deal_without_a_price(many, lead_migrate):
    found = lead_migrate(f"assess {many} --target {TINY}")
    assert "the better deal is a migration" in found.said
    assert found.next.startswith(f"run {many} --target")
    assert "the better deal is the fit " in lead_migrate(f"fit {many} --target {TINY} --kind mean -o st").told


def test_a_rate_of_requests_does_not_lift_the_limit_of_tokens(lead_migrate):
    assert "3,000 requests/min and 40,000 tokens/min" in lead_migrate(f"{ASSESS},rate=50/s --tier free").said


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
