import tomllib
from datetime import date
from pathlib import Path

import pytest

import migrate
from migrate.embedders import load_embedder
from migrate.embedders.kinds import parse_spec
from migrate.embedders.registry import find_model, known_models, rate_limits, suggest_models
from migrate.errors import UsageError

LEAD = 17


def test_has_every_row_of_the_file_under_names_of_their_own():
    rows = tomllib.loads((Path(migrate.__file__).parent / "embedders/models.toml").read_text())["model"]
    assert [facts.name for facts in known_models()] == [row["name"] for row in rows]
    assert len({facts.name.lower() for facts in known_models()}) == len(rows)
    assert len({facts.short_name.lower() for facts in known_models()}) == len(rows)


def test_lead_comes_first_and_is_complete():
    lead = known_models()[:LEAD]
    assert (lead[0].name, lead[-1].name) == ("intfloat/e5-small-v2", "text-embedding-3-large")
    assert all(facts.is_complete and facts.max_tokens for facts in lead)


@pytest.mark.parametrize(
    "name",
    [
        "text-embedding-3-small",
        "text-embedding-3-large",
        "text-embedding-ada-002",
        "gemini-embedding-001",
        "gemini-embedding-2",
        "text-embedding-004",
        "embedding-001",
        "voyage-4-large",
        "voyage-4",
        "voyage-4-lite",
        "voyage-3-large",
        "voyage-3.5",
        "embed-v4.0",
        "embed-english-v3.0",
        "embed-english-v2.0",
        "amazon.titan-embed-text-v1",
        "amazon.titan-embed-text-v2:0",
        "mistral-embed",
        "jina-embeddings-v3",
        "jina-embeddings-v4",
        "jina-embeddings-v5-text-small",
        "nomic-embed-text-v1.5",
        "bge-m3",
        "Qwen3-Embedding-0.6B",
        "Qwen3-Embedding-4B",
        "Qwen3-Embedding-8B",
        "embeddinggemma-300m",
        "snowflake-arctic-embed-l-v2.0",
        "multilingual-e5-large",
        "NV-Embed-v2",
    ],
)
def test_knows_the_models_that_stores_are_built_with_and_moved_to(name):
    assert find_model(name).short_name == name


def test_every_row_says_where_it_is_from_and_when_it_was_looked_at():
    for facts in known_models():
        assert facts.sources, facts.name
        assert all(source in ("card", "mteb") or source.startswith("https://") for source in facts.sources), facts.name
        assert date(2026, 1, 1) <= facts.checked <= date.today(), facts.name
        assert facts.dim > 0, facts.name
        assert all(0 < dim != facts.dim for dim in facts.shorter), facts.name
        assert facts.lifecycle.successor is None or find_model(facts.lifecycle.successor) is not None, facts.name


def test_what_is_off_has_no_price_and_names_a_successor_that_is_there():
    today = date(2026, 11, 26)
    off = [facts for facts in known_models() if facts.lifecycle.off_since is not None]
    assert {facts.name for facts in off} >= {"text-embedding-004", "embed-english-v2.0"}
    for facts in off:
        assert facts.price_usd_per_mtok is None
        assert not find_model(facts.lifecycle.successor).lifecycle.is_off(today)


def test_says_how_long_a_model_will_be_there():
    cohere, ada = find_model("embed-english-v2.0"), find_model("text-embedding-ada-002")
    assert cohere.lifecycle.stage(date(2026, 4, 3)) == "off from 2026-04-04"
    gone = cohere.going_away(date(2026, 4, 4))
    assert gone.startswith("embed-english-v2.0 is off since 2026-04-04; ")
    assert "embed-english-v3.0" in gone
    assert ada.lifecycle.stage(date(2026, 4, 4)) == "legacy"
    assert find_model("text-embedding-3-small").lifecycle.stage(date(2026, 4, 4)) == "active"
    assert find_model("text-embedding-3-small").going_away(date(2026, 4, 4)) == ""


def test_says_that_a_price_is_old_after_three_months():
    facts = find_model("text-embedding-3-small")
    year, month = facts.checked.year, facts.checked.month
    assert facts.price_age(facts.checked) == ""
    assert facts.price_age(date(year + (month > 10), (month + 1) % 12 + 1, 28)) == ""
    assert ", 3 months old" in facts.price_age(date(year + (month > 9), (month + 2) % 12 + 1, 1))
    assert find_model("e5-base-v2").price_age(date(2040, 1, 1)) == ""


def test_models_of_one_family_share_a_space():
    families = {facts.family for facts in known_models() if facts.name.startswith("voyage-4")}
    assert families == {"voyage-4"}
    assert find_model("voyage-3.5").family is None


@pytest.mark.parametrize("name", ["intfloat/e5-base-v2", "e5-base-v2", "E5-Base-V2", "INTFLOAT/e5-base-v2"])
def test_finds_a_model_by_any_spelling(name):
    assert find_model(name).name == "intfloat/e5-base-v2"


def test_finds_openai_models_as_lead_spells_them_and_does_not_guess():
    assert find_model("openai/text-embedding-3-large").spec == "openai:text-embedding-3-large"
    assert find_model("e5-base") is None
    assert find_model("other/e5-base-v2") is None
    assert suggest_models("e5-base-v3")[0] == "intfloat/e5-base-v2"


def test_a_name_is_that_of_the_provider_that_was_asked_for():
    assert find_model("mistral-embed", "openai") is None
    assert find_model("mistral-embed", "mistral") is find_model("mistral-embed")
    assert load_embedder("openai:mistral-embed", base_url="http://127.0.0.1:9/v1").profile.price_usd_per_mtok is None


def test_a_model_of_a_provider_without_a_kind_is_refused_with_the_way_to_it():
    with pytest.raises(UsageError, match=r"^mistral-embed .* mistral.*langchain:MODULE:NAME"):
        parse_spec("mistral-embed")


def test_prefixes_are_those_of_the_model_cards():
    e5, bge, gte = find_model("e5-small-v2"), find_model("bge-small-en-v1.5"), find_model("gte-small")
    assert (e5.document.prefix, e5.query.prefix) == ("passage: ", "query: ")
    assert (bge.document.prefix, bge.query.prefix[:9]) == ("", "Represent")
    assert (gte.document.prefix, gte.query.prefix) == ("", "")
    assert find_model("Qwen3-Embedding-0.6B").query.prefix is None, "its own configuration has it"


def test_only_apis_have_a_price_and_only_weights_a_licence():
    for facts in known_models():
        is_local = facts.provider == "sentence-transformers"
        assert not (is_local and facts.price_usd_per_mtok is not None), facts.name
        assert (facts.licence is not None) == is_local, facts.name


def test_the_limits_of_openai_grow_with_the_tier():
    limits = rate_limits()
    assert [limit.tier for limit in limits] == ["free", "1", "2", "3", "4", "5"]
    assert limits[1].tokens_per_min == 1_000_000
    assert sorted(limits, key=lambda limit: (limit.requests_per_min, limit.tokens_per_min)) == list(limits)
