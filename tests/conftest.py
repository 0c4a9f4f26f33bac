import hashlib
from pathlib import Path

import pytest

from migrate.datasets.beir import write_beir
from migrate.datasets.stdlib import stdlib_beir
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder

SOURCE_SPEC = "tfidf:32"


@pytest.fixture(scope="session")
def corpus():
    """150 docstrings with a question each."""
    return stdlib_beir(max_docs=150, seed=3)


@pytest.fixture(scope="session")
def beir(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "docstrings"
    write_beir(folder, corpus.documents, corpus.queries, corpus.qrels)
    return folder


@pytest.fixture(scope="session")
def source_folder(corpus, tmp_path_factory):
    """A store of the corpus, embedded lexically; nobody writes to it."""
    folder = tmp_path_factory.mktemp("stores") / "source"
    embed_corpus(lambda: corpus.documents, load_embedder(SOURCE_SPEC), folder)
    return folder


@pytest.fixture
def digest():
    """Hash of every file of a folder, by name."""

    def hashes(folder: Path):
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}

    return hashes
