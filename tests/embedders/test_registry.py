import pytest

from migrate.embedders.registry import find_model, known_models, suggest_models


def test_knows_the_17_models_of_lead_and_three_more():
    assert len(known_models()) == 20
    assert len({facts.name for facts in known_models()}) == 20
    assert len({facts.short_name.lower() for facts in known_models()}) == 20


@pytest.mark.parametrize("name", ["intfloat/e5-base-v2", "e5-base-v2", "E5-Base-V2", "INTFLOAT/e5-base-v2"])
def test_finds_a_model_by_any_spelling(name):
    assert find_model(name).name == "intfloat/e5-base-v2"


def test_finds_openai_models_as_lead_spells_them_and_does_not_guess():
    assert find_model("openai/text-embedding-3-large").spec == "openai:text-embedding-3-large"
    assert find_model("e5-base") is None
    assert find_model("other/e5-base-v2") is None
    assert suggest_models("e5-base-v3")[0] == "intfloat/e5-base-v2"


def test_prefixes_are_those_of_the_model_cards():
    e5, bge, gte = find_model("e5-small-v2"), find_model("bge-small-en-v1.5"), find_model("gte-small")
    assert (e5.document_prefix, e5.query_prefix) == ("passage: ", "query: ")
    assert (bge.document_prefix, bge.query_prefix[:9]) == ("", "Represent")
    assert (gte.document_prefix, gte.query_prefix) == ("", "")


def test_only_apis_have_a_price():
    for facts in known_models():
        assert (facts.price_usd_per_mtok is not None) == (facts.provider == "openai")
