"""`voyage:`, `cohere:` and `gemini:` against local servers that speak their protocols."""

from dataclasses import dataclass

import numpy as np
import pytest
from openai_server import KEY, TOO_FEW, TRUNCATED, do_not_wait, status, vector_of
from provider_servers import provider_server

from migrate.cost.meter import SpendingCap
from migrate.embedders import load_embedder
from migrate.embedders.kinds import may_cost_money, parse_spec
from migrate.errors import AuthenticationError, RemoteError, SpendingError
from migrate.vectors import Document, Query


@dataclass(frozen=True)
class Provider:
    kind: str
    model: str
    dim: int
    most: int
    tasks: tuple[str | None, str | None]
    prefixes: tuple[str, str] = ("", "")

    @property
    def spec(self):
        return f"{self.kind}:{self.model}"


PROVIDERS = [
    Provider("voyage", "voyage-4", 1024, 1_000, ("document", "query")),
    Provider("cohere", "embed-v4.0", 1536, 96, ("search_document", "search_query")),
    Provider("gemini", "gemini-embedding-001", 3072, 100, ("RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY")),
    Provider(
        "gemini", "gemini-embedding-2", 3072, 100, (None, None),
        ("title: none | text: ", "task: search result | query: "),
    ),
]  # fmt: skip


@pytest.fixture(params=PROVIDERS, ids=lambda provider: provider.model)
def provider(request):
    return request.param


@pytest.fixture
def server(provider, monkeypatch):
    with provider_server(provider.kind, key=KEY) as running:
        monkeypatch.setenv(f"{provider.kind.upper()}_BASE_URL", running.url)
        monkeypatch.setenv(f"{provider.kind.upper()}_API_KEY", KEY)
        yield running


def documents(count):
    return [Document(f"d{number}", f"text number {number}") for number in range(count)]


def test_documents_and_queries_are_embedded_as_what_they_are(provider, server):
    embedder = load_embedder(provider.spec)
    texts = [Document("a", "one text"), Document("b", "another one")]
    vectors = embedder.embed_documents(texts)
    asked = embedder.embed_queries([Query("q", "one text")])
    expected = [vector_of(provider.prefixes[0] + text.text, provider.dim) for text in texts]
    assert np.allclose(vectors, expected, atol=1e-6)
    assert np.allclose(asked, [vector_of(provider.prefixes[1] + "one text", provider.dim)], atol=1e-6)
    assert {request.task for request in server.requests[:-1]} == {provider.tasks[0]}
    assert server.requests[-1].task == provider.tasks[1]
    assert embedder.identity.spec == provider.spec and embedder.identity.dim == provider.dim


def test_shorter_vectors_are_asked_for(provider, server):
    vectors = load_embedder(f"{provider.spec},dimensions=256").embed_documents(documents(2))
    assert vectors.shape == (2, 256) and server.requests[0].dimensions == 256


@pytest.mark.slow
def test_requests_hold_no_more_texts_than_the_api_takes(provider, server):
    vectors = load_embedder(f"{provider.spec},concurrency=1").embed_documents(documents(250))
    assert len(vectors) == 250
    assert max(len(request.inputs) for request in server.requests) <= provider.most


def test_passing_faults_are_tried_again_and_a_429_is_waited_for(provider, server, monkeypatch):
    waits = do_not_wait(monkeypatch)
    server.faults += [status(429, "slow down", retry_after="7"), status(503), TRUNCATED, TOO_FEW]
    vectors = load_embedder(f"{provider.spec},batch-size=2").embed_documents(documents(6))
    assert np.allclose(vectors[5], vector_of(f"{provider.prefixes[0]}text number 5", provider.dim), atol=1e-6)
    assert 7 in waits


def test_a_request_of_too_many_tokens_is_halved(provider, server):
    server.faults.append(status(400, "The max allowed tokens per submitted batch is 120000. Your batch has 143210."))
    vectors = load_embedder(f"{provider.spec},batch-size=4").embed_documents(documents(4))
    assert [len(request.inputs) for request in server.requests] == [4, 2, 2] and len(vectors) == 4


def test_a_refused_or_missing_key_names_its_variable_and_not_itself(provider, server, monkeypatch):
    variable = f"{provider.kind.upper()}_API_KEY"
    monkeypatch.setenv(variable, "wrong-key")
    with pytest.raises(AuthenticationError, match=variable) as refused:
        load_embedder(provider.spec).embed_documents(documents(1))
    assert "wrong-key" not in str(refused.value) and len(server.requests) == 1
    monkeypatch.delenv(variable)
    monkeypatch.delenv(f"{provider.kind.upper()}_BASE_URL")
    with pytest.raises(AuthenticationError, match=f"needs a key; set {variable}$"):
        load_embedder(provider.spec).embed_documents(documents(1))


def test_a_redirect_takes_the_key_to_no_other_host(provider, server):
    server.faults.append(status(307, location="http://elsewhere.invalid/v1"))
    with pytest.raises(RemoteError, match="elsewhere"):
        load_embedder(provider.spec).embed_documents(documents(1))
    assert len(server.requests) == 1


def test_an_unknown_model_ends_the_command(server, provider):
    with pytest.raises(RemoteError, match="knows no model 'nonsense'"):
        load_embedder(f"{provider.kind}:nonsense").embed_documents(documents(1))
    assert len(server.requests) == 1


def test_spending_stops_at_the_cap(provider, server):
    embedder = load_embedder(provider.spec)
    price = embedder.profile.price_usd_per_mtok
    assert price and may_cost_money(provider.spec)
    cap = SpendingCap(price * 60 / 1e6)
    metered = cap.meter(embedder)
    with pytest.raises(SpendingError):
        metered.embed_each(documents(200), "document", lambda positions, vectors: None)
    assert 0 < cap.spent_usd <= cap.cap_usd and len(server.billed) < 40


def test_a_text_has_one_vector_as_a_document_and_another_as_a_query_in_the_cache(provider, server, tmp_path):
    embedder = load_embedder(provider.spec, cache=tmp_path / "cache.sqlite")
    embedder.embed_documents([Document("a", "one text")])
    embedder.embed_queries([Query("q", "one text")])
    sent = len(server.requests)
    again = load_embedder(provider.spec, cache=tmp_path / "cache.sqlite")
    again.embed_documents([Document("a", "one text")])
    again.embed_queries([Query("q", "one text")])
    assert sent >= 2 and len(server.requests) == sent


def test_bare_names_are_those_of_the_registry_and_have_no_limits_of_openai(provider):
    assert parse_spec(provider.model) == (provider.kind, provider.model)
    profile = load_embedder(provider.model).profile
    assert profile.rate_limits == () and profile.is_api and profile.request_texts == provider.most
    assert not profile.counter.exact
