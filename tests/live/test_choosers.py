"""Queries that were served live chose the documents that the worker embedded: they do not judge the store."""

import numpy as np
import pytest
from worker_tools import Hashed, translate

from migrate.embedders.cache import UNKNOWN_QUERY, CachedEmbedder
from migrate.live.options import LiveLimits
from migrate.live.searcher import LiveSearcher
from migrate.live.worker import Worker, WorkerOptions
from migrate.selection.choosers import choosers_in, digests_of
from migrate.steps.reembed.fill import backfill_store
from migrate.stores import open_store
from migrate.vectors import Query

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_folders")]
TEXTS = [f"what is said of {number}?" for number in range(6)]


def serve(location, embedder, queries, *, embedded=2):
    with LiveSearcher(location, embedder, limits=LiveLimits(depth=8, max_documents=embedded)) as searcher:
        for query in queries:
            searcher.search(query)
    Worker(location, embedder, WorkerOptions(once=True, from_queue=True)).run()


@pytest.mark.parametrize("kind", ["folder", "sqlite-vec"])
def test_served_queries_are_choosers_of_what_the_worker_embedded(kind, source_folder, embedder, place_of, tmp_path):
    location = place_of(kind)
    translate(source_folder, embedder, location)
    assert choosers_in(open_store(location), embedder).queries == frozenset()
    serve(location, embedder, TEXTS)
    if kind == "folder":
        backfill_store(open_store(location), embedder, tmp_path / "complete")
        location = tmp_path / "complete"
    chose = choosers_in(open_store(location), embedder)
    assert chose.queries == digests_of(Query("asked", text) for text in TEXTS)


def test_queries_of_which_only_vectors_are_known_leave_the_origin_open(source_folder, embedder, place_of, tmp_path):
    location = place_of("folder")
    translate(source_folder, embedder, location)
    serve(location, embedder, [np.asarray(Hashed().one(text)) for text in TEXTS])
    backfill_store(open_store(location), embedder, tmp_path / "complete")
    store = open_store(tmp_path / "complete")
    assert UNKNOWN_QUERY in store.info.manifest.chosen_by
    assert choosers_in(store, embedder).unexplained.any()


def test_what_queries_embedded_themselves_is_remembered_without_a_worker(source_folder, embedder, place_of):
    location = place_of("folder")
    translate(source_folder, embedder, location)
    with LiveSearcher(location, embedder, limits=LiveLimits(depth=8, max_documents=8, max_ms=5_000)) as searcher:
        searcher.search(TEXTS[0])
    cached = CachedEmbedder(Hashed(), embedder.path)
    texts = list(open_store(location).documents())
    choices = {choice for choice in cached.choices(texts, "document") if choice is not None}
    assert cached.choosers(choices) == digests_of([Query("asked", TEXTS[0])])
