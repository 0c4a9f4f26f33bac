"""As `test_own_search.py`, for databases, whose clients take long to import."""

import gc
import re

import chromadb
import numpy as np
import pytest
from kind_base import records_of
from kind_pgvector import Pgvector
from topics import DOCUMENTS, OF_TARGET, TARGET, Topics, make_store
from topics import audit as audit_by
from topics import pool as by_pool

from migrate.audit.results import FULL, TRANSLATED
from migrate.errors import UsageError
from migrate.stores import open_store
from migrate.vectors import unit_rows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("reference") / "reference", metric="l2", manifest=OF_TARGET)


def audit_of(*arguments, **options):
    """An audit at a margin that 60 queries can show to be kept."""
    return audit_by(*arguments, **{"margin": 0.8, **options})


def test_a_setting_that_the_database_does_not_allow_is_refused_before_anything_is_embedded(reference):
    location = Pgvector().make(None, records_of(DOCUMENTS, TARGET.embed_documents(DOCUMENTS)))
    fresh = Topics()
    options = {"embedder": fresh, "search_effort": 5_000}
    with pytest.raises(UsageError, match=r"--search-effort 5,000: .*ef_search"):
        audit_of(open_store(location), reference, **options)
    assert not fresh.asked


def vectors_of_any_length(embedder=TARGET, documents=DOCUMENTS):
    lengths = np.random.default_rng(0).uniform(0.2, 3, size=(len(documents), 1)).astype(np.float32)
    return embedder.embed_documents(documents) * lengths


def in_chroma(folder, space, vectors, **settings):
    """A collection of the target's vectors as a program makes one."""
    client = chromadb.PersistentClient(str(folder))
    collection = client.create_collection("docs", configuration={"hnsw": {"space": space, **settings}})
    collection.add(
        [document.id for document in DOCUMENTS],
        embeddings=vectors,
        documents=[document.text for document in DOCUMENTS],
    )
    client.close()
    store = open_store(f"chroma:{folder}#docs")
    store.companions.keep(OF_TARGET)
    return open_store(store.info.location)


def test_exact_search_of_a_store_that_compares_by_cosine_is_by_cosine(tmp_path):
    """Whatever the lengths of the vectors: its own search, which misses nothing here, answers the same."""
    vectors = vectors_of_any_length()
    new = in_chroma(tmp_path / "new", "cosine", vectors, ef_search=200, ef_construction=200)
    full = make_store(tmp_path / "full", vectors=vectors, manifest=OF_TARGET)
    unit = make_store(tmp_path / "unit", vectors=unit_rows(vectors), manifest=OF_TARGET)
    for reference in (full, unit, by_pool()):
        report = audit_of(new, reference)
        (search,) = report.examination.searches
        assert search.by_index == pytest.approx(1, abs=1e-3) and search.exactly == pytest.approx(1, abs=1e-3)
        assert report.arm(FULL).mean("nDCG@10") == pytest.approx(report.arm(TRANSLATED).mean("nDCG@10"), abs=1e-3)


def test_the_line_that_is_named_for_a_collection_runs_and_finds_more(reference, tmp_path):
    poor = {"ef_search": 8, "max_neighbors": 2, "ef_construction": 2}
    # Chroma keeps the graph from so many documents on; one of fewer is built anew, and another, each time it is opened
    poor |= {"batch_size": len(DOCUMENTS), "sync_threshold": len(DOCUMENTS)}
    location = in_chroma(tmp_path / "new", "l2", TARGET.embed_documents(DOCUMENTS), **poor).info.location
    shares = []
    while True:
        (search,) = audit_of(open_store(location), reference).examination.searches
        shares.append(search.of_exact)
        pattern = r"a greater ef_search finds more, .*: (collection\..*), open it anew and audit again"
        match = re.fullmatch(pattern, search.remedy or "")
        if match is None:
            break
        gc.collect()  # a client that is still open has the old setting
        client = chromadb.PersistentClient(str(tmp_path / "new"))
        exec(match[1], {"collection": client.get_collection("docs")})
        client.close()
    assert len(shares) > 2 and shares[0] < 0.9
    # A small graph may be built anew when it is opened, and a single one of these may be poor again
    assert max(shares[1:]) > shares[0]
    assert search.remedy is None or search.remedy.startswith("no setting of its search finds more")
