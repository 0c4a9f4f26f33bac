"""Hashes of what is written, for a store of each kind that documents are read from."""

import fault_stores as stores
import pytest

from migrate.embed import reembed_store
from migrate.embedders import load_embedder
from migrate.stores import open_store

pytestmark = pytest.mark.slow

KINDS = [stores.langchain, stores.llamaindex, stores.parquet, stores.dataset]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_store_that_was_written_is_the_one_of_its_manifest(kind, place):
    kind(place)
    store, embedder = open_store(place / "store"), load_embedder("tfidf:4")
    assert store.companions.verify() == (), "somebody else wrote it"
    embedder.fit(store.documents())
    reembed_store(store, embedder, place / "out")
    made = open_store(place / "out", verify=True)
    assert set(made.companions.verify()) == {made.info.details["index"], *made.document_files}
    assert len(made.document_files) >= 1
    assert made.snapshot().texts_hash is not None
