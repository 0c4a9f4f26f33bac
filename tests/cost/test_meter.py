import pytest
from openai_server import OpenAIServer

from migrate.cost.meter import SpendingCap, put_meter
from migrate.embedders import load_embedder
from migrate.errors import SpendingError
from migrate.vectors import Document

pytestmark = pytest.mark.slow

SPEC = "openai:text-embedding-3-small"
DOCUMENTS = [Document(f"d{number}", f"word{number} " * 10) for number in range(100)]


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    with OpenAIServer() as running:
        yield running


def metered(server, cache, cap_usd, price=1_000.0):
    """A dollar for a thousand tokens: the server counts a token a word, so a document costs a cent."""
    counter = load_embedder(SPEC).profile.counter
    embedder, meter = put_meter(load_embedder(SPEC, base_url=server.url, cache=cache, batch_size=10), counter, price)
    meter.cap.cap_usd = cap_usd
    return embedder, meter


def test_what_the_cap_has_no_room_for_is_not_sent_and_what_was_paid_for_is_not_paid_for_again(server, tmp_path):
    embedder, meter = metered(server, tmp_path / "cache", 0.6)
    with pytest.raises(SpendingError, match="raise --max-cost") as refused:
        embedder.embed_documents(DOCUMENTS)
    assert refused.value.exit_code == 2
    paid = len(server.texts_served)
    assert 0 < paid < 100
    assert 0.5 < meter.usd <= 0.6, "and what it has room for is"
    again, meter = metered(server, tmp_path / "cache", None)
    again.embed_documents(DOCUMENTS)
    assert sorted(server.texts_served) == sorted(document.text for document in DOCUMENTS)
    assert meter.tokens == 10 * (100 - paid), "the server's own count of the rest"


def test_models_share_one_cap(server, tmp_path):
    cap, counter = SpendingCap(1.0), load_embedder(SPEC).profile.counter
    models = [load_embedder(SPEC, base_url=server.url, cache=tmp_path / name, batch_size=10) for name in "ab"]
    (first, one), (second, other) = (put_meter(model, counter, 1_000.0, cap) for model in models)
    first.embed_documents(DOCUMENTS[:40])
    with pytest.raises(SpendingError, match=r"\$0\..* are spent, .* beyond the limit of \$1\.00"):
        second.embed_documents(DOCUMENTS)
    assert 0.4 <= one.usd < cap.spent_usd <= 1.0
    assert cap.spent_usd == pytest.approx(one.usd + other.usd)
    cap.cap_usd = 3.0
    second.embed_documents(DOCUMENTS)
    assert other.tokens == 1_000


def test_nothing_is_sent_where_nothing_fits(server, tmp_path):
    for cache in (tmp_path / "cache", None):
        embedder, meter = metered(server, cache, 0.001)
        with pytest.raises(SpendingError):
            embedder.embed_documents(DOCUMENTS)
        assert (meter.tokens, server.texts_served) == (0, [])


def test_without_a_price_nothing_stops(server, tmp_path):
    embedder, meter = metered(server, tmp_path / "cache", 0.0, price=None)
    assert embedder.embed_documents(DOCUMENTS).shape == (100, 1536)
    assert (meter.tokens, meter.usd) == (1_000, None)
