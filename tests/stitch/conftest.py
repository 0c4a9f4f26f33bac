import pytest
from stitch_worlds import make_world  # noqa: F401 - a fixture of the tests here
from tokenizers import Tokenizer

from migrate.embedders.weights import packaged_model_path


@pytest.fixture(scope="session")
def texts(corpus):
    return [document.text for document in corpus.documents]


@pytest.fixture(scope="session")
def minilm():
    """The tokenizer of all-MiniLM-L6-v2."""
    tokenizer = Tokenizer.from_file(str(packaged_model_path() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
