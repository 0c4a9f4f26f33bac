"""Rankings by the own search of a store, held against FAISS itself, and against exact search."""

import faiss
import numpy as np
import pytest

from migrate.errors import StoreError
from migrate.search.own_index import rank_by_index
from migrate.search.runs import Rankings, search
from migrate.stores import create_store, open_store
from migrate.stores.base import Hits
from migrate.stores.faiss.search import FaissSearcher
from migrate.vectors import Document

COUNT, DIM, ASKED = 400, 8, 30
QUERY_IDS = [f"q{row}" for row in range(ASKED)]


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(3).normal(size=(COUNT, DIM)).astype(np.float32)


@pytest.fixture(scope="module")
def queries():
    return np.random.default_rng(4).normal(size=(ASKED, DIM)).astype(np.float32)


def store_of(folder, vectors, kind="Flat", **settings):
    """A FAISS store of that kind of index, with ids that are no row numbers."""
    writer = create_store(folder, format="faiss", dim=DIM, metric="ip")
    writer.append([Document(f"d{row:03}", f"text {row}") for row in range(COUNT)], vectors)
    writer.finish()
    index = faiss.index_factory(DIM, kind, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add_with_ids(vectors, np.arange(COUNT)) if "IDMap" in kind else index.add(vectors)
    for name, value in settings.items():
        faiss.ParameterSpace().set_index_parameter(index, name, value)
    faiss.write_index(index, str(folder / "index.faiss"))
    return open_store(folder), index


def as_itself(ids):
    return ids


def names(labels):
    return tuple(f"d{label:03}" for label in labels.tolist() if label >= 0)


@pytest.mark.parametrize(
    ("kind", "settings", "effort"),
    [
        ("IVF16,Flat", {"nprobe": 1}, None),
        ("IVF16,Flat", {"nprobe": 1}, 5),
        ("IVF16,SQ8", {"nprobe": 3}, None),
        ("HNSW4", {"efSearch": 4}, None),
        ("HNSW4", {"efSearch": 4}, 40),
        ("IDMap2,IVF16,Flat", {"nprobe": 2}, 8),
        ("PCA4,Flat", {}, None),
    ],
)
def test_the_first_ten_are_those_of_a_question_for_ten(kind, settings, effort, vectors, queries, tmp_path):
    store, index = store_of(tmp_path, vectors, kind, **settings)
    assert store.searcher().has_own_index
    run = rank_by_index(store.searcher(), QUERY_IDS, queries, as_itself, depths=(10, 50), effort=effort)
    if effort is not None:
        faiss.ParameterSpace().set_index_parameter(index, store.searcher().setting.name, effort)
    _, ten = index.search(queries, 10)
    _, fifty = index.search(queries, 50)
    for row, query_id in enumerate(QUERY_IDS):
        first = names(ten[row])
        assert run.rankings[query_id][: len(first)] == first
        assert set(run.rankings[query_id]) <= {*first, *names(fifty[row])}
        assert len(run.rankings[query_id]) == min(len({*first, *names(fifty[row])}), 50)
    exact = search(store.scan(), QUERY_IDS, queries, metric="ip", depth=10)
    assert any(run.top(query_id, 10) != exact.top(query_id, 10) for query_id in QUERY_IDS)


def test_an_index_that_misses_nothing_ranks_as_exact_search_does(vectors, queries, tmp_path):
    store, _ = store_of(tmp_path, vectors, "IVF16,Flat", nprobe=16)
    run = rank_by_index(store.searcher(), QUERY_IDS, queries, as_itself, depths=(10, 100))
    exact = search(store.scan(), QUERY_IDS, queries, metric="ip", depth=100)
    assert run.rankings == exact.rankings
    np.testing.assert_allclose(run.scores["q0"], exact.scores["q0"], rtol=1e-5)


def test_it_is_asked_deeper_where_rows_are_chunks_or_left_out(vectors, queries, tmp_path):
    """Four rows to a document, and two documents of three left out: ten documents are in some 120 rows."""
    store, _ = store_of(tmp_path, vectors, "IVF16,Flat", nprobe=16)

    def judged(ids):
        documents = [int(doc_id[1:]) // 4 for doc_id in ids]
        return [None if document % 3 else f"p{document}" for document in documents]

    run = rank_by_index(store.searcher(), QUERY_IDS, queries, judged, depths=(10, 30))
    batches = [batch for batch in store.scan() if len(batch)]
    (batch,) = batches
    rows = [row for row, document in enumerate(judged(batch.ids)) if document is not None]
    kept = type(batch)([judged(batch.ids)[row] for row in rows], batch.vectors[rows])
    expected = search([kept], QUERY_IDS, queries, metric="ip", depth=30)
    assert {query_id: run.top(query_id, 30) for query_id in QUERY_IDS} == expected.rankings
    assert all(len(ranking) == 30 for ranking in run.rankings.values())


def test_an_index_that_has_no_more_answers_with_what_it_has(vectors, queries, tmp_path):
    store, index = store_of(tmp_path, vectors, "IVF128,Flat", nprobe=1)
    run = rank_by_index(store.searcher(), QUERY_IDS, queries, as_itself, depths=(10, 100))
    _, labels = index.search(queries, 100)
    assert [len(run.rankings[query_id]) for query_id in QUERY_IDS] == (labels >= 0).sum(axis=1).tolist()
    assert min(len(ranking) for ranking in run.rankings.values()) < 10


class Scripted(FaissSearcher):
    """The search of a real store, which answers as it is told."""

    def search_index(self, queries, k, effort=None):
        return [Hits(self.answer[:k], np.array(self.scores[:k], np.float32)) for _ in queries]


def test_answers_that_repeat_tie_or_name_no_document_keep_their_places(vectors, queries, tmp_path):
    store, _ = store_of(tmp_path, vectors, "HNSW4")
    searcher = Scripted(store, store.index_path, None)
    searcher.answer, searcher.scores = ("d007", "gone", "d003", "d001", "d007"), (4.0, 3.0, 2.0, 2.0, 1.0)
    run = rank_by_index(searcher, QUERY_IDS[:1], queries[:1], as_itself, depths=(10,))
    assert run == Rankings({"q0": ("d007", "gone", "d001", "d003")}, {"q0": (4.0, 3.0, 2.0, 2.0)})
    assert rank_by_index(searcher, [], queries[:0], as_itself, depths=(10,)) == Rankings({})


def test_a_damaged_graph_ends_its_own_process_only(vectors, queries, tmp_path):
    """Links to documents that are not there: FAISS follows them wherever they lead."""
    store_of(tmp_path, vectors, "HNSW4")
    path = tmp_path / "index.faiss"
    index = faiss.read_index(str(path))
    links = faiss.vector_to_array(index.hnsw.neighbors)
    links[links >= 0] = 2_000_000_000
    faiss.copy_array_to_vector(links, index.hnsw.neighbors)
    faiss.write_index(index, str(path))
    with pytest.raises(StoreError) as error:
        rank_by_index(open_store(tmp_path).searcher(), QUERY_IDS, queries, as_itself, depths=(10,))
    assert str(path) in str(error.value) and "build it again" in str(error.value)
