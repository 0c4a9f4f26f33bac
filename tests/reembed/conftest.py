import pytest

import migrate
from migrate.embedders import load_embedder
from migrate.stores import open_store


@pytest.fixture(scope="session")
def fitted(source_folder):
    return migrate.fit(open_store(source_folder), load_embedder("tfidf:24"), kind="ridge", sample=40)


@pytest.fixture
def store(source_folder):
    return open_store(source_folder)


@pytest.fixture
def target(store):
    """The model that the stitch leads to, as it was fitted."""
    embedder = load_embedder("tfidf:24")
    embedder.fit(store.documents())
    return embedder
