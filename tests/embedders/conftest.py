import pytest
from openai_server import OpenAIServer

from migrate.embedders import load_embedder
from migrate.vectors import Document


@pytest.fixture
def server():
    with OpenAIServer() as running:
        yield running


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def minilm():
    """The packaged model; nobody changes it."""
    return load_embedder("packaged:all-MiniLM-L6-v2", device="cpu")


@pytest.fixture
def documents():
    """Make documents d0, d1, ... of some texts."""

    def make(*texts):
        return [Document(f"d{number}", text) for number, text in enumerate(texts)]

    return make


@pytest.fixture
def models():
    import langchain_models

    return langchain_models
