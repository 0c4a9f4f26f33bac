"""A suite that every kind of store keeps to, a class to inherit; pytest runs it, and it imports nothing of pytest's.

>>> class TestMyStore(StoreTests):  # doctest: +SKIP
...     def make_store(self, folder, documents, vectors, metric):
...         my_package.write(folder, documents, vectors, metric)
...         return f"mine:{folder}"
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.errors import LeadMigrateError, StoreError, UsageError, VectorError
from migrate.files import canonical_json, work_folder
from migrate.stores import open_store
from migrate.stores.base import Hits, Metric, Store, read_all
from migrate.stores.faiss.search import open_search
from migrate.stores.outputs import Output
from migrate.stores.registry import output_of
from migrate.stores.serving import is_cosine
from migrate.stores.updates import UpdatableStore
from migrate.vectors import Document, Vectors, unit_rows
from migrate.work.shards import ShardFolder
from migrate.work.writer import Written, put_rows

COUNT = 60
DIM = 8


def example_documents(count: int = COUNT) -> list[Document]:
    """Documents with ids that hold no row numbers, texts and metadata."""
    return [
        Document(f"doc-{3 * ((7 * row + 3) % count)}", f"text of row {row}", {"page": row, "source": "a"})
        for row in range(count)
    ]


def awkward_documents() -> list[Document]:
    """Ids and texts that a careless reader would change: numbers, spaces, quotes, other scripts, nothing, much."""
    ids = ["7", "007", "-1", " spaces ", "line\nbreak", 'quote"s', "naïve/路径#?", "🦆", "x" * 1_000, "null"]
    texts = [
        "",
        "  ",
        "tab\tand\nline",
        "naïve 路径 🦆",
        "long " * 9_000,
        '{"json": [1]}',
        "\\ud800",
        "'",
        "None",
        "x",
    ]
    return [Document(doc_id, text, {"place": row}) for row, (doc_id, text) in enumerate(zip(ids, texts, strict=True))]


def example_vectors(count: int = COUNT, dim: int = DIM, seed: int = 0) -> Vectors:
    """Vectors of different lengths, (count, dim), float32."""
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


class StoreTests(ABC):
    """Inherit it in a class that begins with `Test`, and define `make_store`.

    `metrics` are those that a store of the kind can have. `can_be_empty` says whether one without documents can be
    made at all. `has_rows` says whether documents come in the order in which they were given; in a store without rows
    they come in the order of their ids. `same_bytes` says whether
    a store that was written in another order has the same files. `serves_threads` says whether its client may be used
    by several threads at once; what stands in for a server in tests may not.
    """

    metrics: tuple[Metric, ...] = ("l2", "ip")
    can_be_empty = True
    has_rows = True
    same_bytes = True
    serves_threads = True

    @abstractmethod
    def make_store(self, folder: Path, documents: Sequence[Document], vectors: Vectors, metric: Metric) -> Path | str:
        """Make a store with the kind's own library, or make it again; what it is made in is `folder`, which is there.

        Returns its location, as `open_store` takes it.
        """

    def new_location(self, folder: Path) -> Path | str:
        """Return the place of a new store: `folder`, not there yet, or `KIND:...` for one that lies in no folder."""
        return folder

    def filter_by(self, name: str, value: Any) -> Any:
        """A filter of the kind for documents whose metadata `name` is `value`."""
        return {name: value}

    def _open(self, folder: Path, documents: Sequence[Document] | None = None, vectors: Vectors | None = None) -> Store:
        folder.mkdir(parents=True, exist_ok=True)
        documents = example_documents() if documents is None else documents
        vectors = example_vectors(len(documents)) if vectors is None else vectors
        return open_store(self.make_store(folder, documents, vectors, self.metrics[0]))

    def _order(self, documents: Sequence[Document]) -> list[int]:
        """Return which of the given documents each row of the store has."""
        positions = range(len(documents))
        return list(positions) if self.has_rows else sorted(positions, key=lambda position: documents[position].id)

    def test_info_says_what_is_there(self, tmp_path: Path) -> None:
        for metric in self.metrics:
            folder = tmp_path / metric
            folder.mkdir()
            info = open_store(self.make_store(folder, example_documents(), example_vectors(), metric)).info
            assert (info.count, info.dim, info.metric, info.has_texts) == (COUNT, DIM, metric, True)
            assert info.manifest is None

    def test_ids_vectors_texts_and_metadata_come_back_in_order(self, tmp_path: Path) -> None:
        store, order = self._open(tmp_path / "store"), self._order(example_documents())
        documents = [example_documents()[row] for row in order]
        whole = read_all(store.scan(batch_size=7))
        assert list(whole.ids) == [document.id for document in documents]
        assert np.array_equal(whole.vectors, example_vectors()[order])
        assert list(store.documents()) == documents

    def test_awkward_ids_and_texts_come_back_to_the_byte(self, tmp_path: Path) -> None:
        documents = awkward_documents()
        store = self._open(tmp_path / "store", documents)
        documents = [documents[row] for row in self._order(documents)]
        assert list(read_all(store.scan()).ids) == [document.id for document in documents]
        assert [document.text for document in store.documents()] == [document.text for document in documents]

    def test_batches_are_float32_in_rows(self, tmp_path: Path) -> None:
        sizes = []
        for batch in self._open(tmp_path / "store").scan(batch_size=13):
            assert batch.vectors.dtype == np.float32
            assert batch.vectors.flags.c_contiguous
            assert batch.vectors.shape == (len(batch.ids), DIM)
            sizes.append(len(batch))
        assert sizes == [13, 13, 13, 13, 8]

    def test_a_scan_of_a_slice_is_the_slice_of_a_scan(self, tmp_path: Path) -> None:
        store = self._open(tmp_path / "store")
        whole = read_all(store.scan())
        for start, stop in ((0, None), (10, 50), (11, 12), (COUNT - 1, None), (50, COUNT + 10)):
            rows = read_all(store.scan(start, stop, batch_size=7))
            assert list(rows.ids) == list(whole.ids)[start:stop], (start, stop)
            assert np.array_equal(rows.vectors, whole.vectors[start:stop]), (start, stop)
        assert not list(store.scan(20, 20))
        assert not list(store.scan(COUNT))

    def test_get_gives_what_a_scan_gives_in_the_order_of_rows(self, tmp_path: Path) -> None:
        store = self._open(tmp_path / "store")
        whole = read_all(store.scan())
        for rows in ([COUNT - 1, 0, 17, 17, 3], [], list(range(COUNT))):
            batch = store.get(np.array(rows, np.int64))
            assert list(batch.ids) == [whole.ids[row] for row in rows]
            assert np.array_equal(batch.vectors, whole.vectors[np.array(rows, np.int64)])

    def test_documents_come_in_the_order_of_rows(self, tmp_path: Path) -> None:
        store = self._open(tmp_path / "store")
        documents = [example_documents()[row] for row in self._order(example_documents())]
        rows = [5, 59, 0, 30, 31]
        assert list(store.documents(np.array(rows, np.int64))) == [documents[row] for row in rows]

    def test_a_snapshot_stays_the_same_while_the_store_does(self, tmp_path: Path) -> None:
        store = self._open(tmp_path / "store")
        snapshot = store.snapshot()
        assert store.snapshot() == snapshot
        store.check_unchanged(snapshot)

    def test_a_snapshot_notices_other_vectors_ids_and_texts(self, tmp_path: Path) -> None:
        documents, vectors = example_documents(), example_vectors()
        snapshot = self._open(tmp_path / "store").snapshot()
        other_id = [Document("another", documents[0].text, documents[0].metadata), *documents[1:]]
        other_text = [Document(documents[0].id, "another text", documents[0].metadata), *documents[1:]]
        assert self._open(tmp_path / "vectors", vectors=-vectors).snapshot().difference(snapshot.fingerprint)
        assert self._open(tmp_path / "ids", other_id).snapshot().difference(snapshot.fingerprint)
        texts = self._open(tmp_path / "texts", other_text).snapshot()
        assert texts.difference(snapshot.fingerprint) == "the same vectors, other texts"

    def test_a_store_that_is_written_to_is_not_unchanged(self, tmp_path: Path) -> None:
        store = self._open(tmp_path / "store")
        snapshot = store.snapshot()
        self._open(tmp_path / "store", vectors=example_vectors(seed=1))
        _refused(StoreError, lambda: store.check_unchanged(snapshot), "as the vectors are others now")

    def test_a_destination_is_a_store_of_the_same_kind_with_another_dimension(self, tmp_path: Path) -> None:
        store = self._open(tmp_path / "store")
        for dim in (DIM - 3, DIM + 5):
            vectors = example_vectors(dim=dim, seed=dim)
            new, order = self._written(store, tmp_path / str(dim), vectors)
            assert (new.info.kind, new.info.metric) == (store.info.kind, store.info.metric)
            assert sorted(order) == list(range(COUNT))
            whole, ids, documents = read_all(new.scan()), read_all(store.scan()).ids, list(store.documents())
            assert list(whole.ids) == [ids[row] for row in order], "`order` must say where each row comes from"
            assert np.array_equal(whole.vectors, vectors[order])
            assert list(new.documents()) == [documents[row] for row in order]

    def test_a_destination_refuses_fewer_rows_than_there_are_documents(self, tmp_path: Path) -> None:
        store = self._open(tmp_path / "store")
        output = _Output(self.new_location(tmp_path / "new"), tmp_path / "new")
        output.put(store, 0, next(iter(store.scan(batch_size=10))).vectors)
        _refused(StoreError, lambda: output.finish(store, DIM), "as 50 rows are missing")

    def test_rows_may_be_written_by_several_writers_in_any_order_and_again(self, tmp_path: Path) -> None:
        store, vectors = self._open(tmp_path / "store"), example_vectors(dim=5)
        whole, order = self._written(store, tmp_path / "whole", vectors)
        output = _Output(self.new_location(tmp_path / "new"), tmp_path / "new")
        for start, stop in ((26, COUNT), (0, 13), (13, 26), (13, 26)):
            output.put(store, start, vectors[start:stop])  # by a writer of its own
        written = output.finish(store, 5)
        assert np.array_equal(_order_of(written), order)
        new = output.publish()
        assert np.array_equal(read_all(new.scan()).vectors, vectors[order])
        assert list(new.documents()) == list(whole.documents())
        if self.same_bytes:
            assert _hashes(tmp_path / "new") == _hashes(tmp_path / "whole")

    def test_a_writer_that_finishes_again_leaves_the_same_store(self, tmp_path: Path) -> None:
        store, vectors = self._open(tmp_path / "store"), example_vectors(dim=5)
        output = _Output(self.new_location(tmp_path / "new"), tmp_path / "new")
        output.put(store, 0, vectors)
        for _ in range(2):  # as after a kill between the end of the writing and the final name
            written = output.finish(store, 5)
        new = output.publish()
        assert new.info.count == COUNT
        assert np.array_equal(read_all(new.scan()).vectors, vectors[_order_of(written)])

    def test_what_is_unfinished_has_no_final_name(self, tmp_path: Path) -> None:
        store, vectors = self._open(tmp_path / "store"), example_vectors(dim=5)
        output = _Output(self.new_location(tmp_path / "new"), tmp_path / "new")
        output.put(store, 0, vectors)
        output.finish(store, 5)
        try:
            open_store(output.place.location)
        except LeadMigrateError:
            output.publish()
            open_store(output.place.location)
            return
        raise AssertionError("expected no store under the final name before it was published")

    def test_the_source_is_never_written_to(self, tmp_path: Path) -> None:
        store = self._open(tmp_path / "store")
        hashes = _hashes(tmp_path / "store")
        list(store.scan())
        store.get(np.arange(3))
        list(store.documents())
        store.snapshot()
        documents, vectors = list(store.documents()), read_all(store.scan()).vectors
        self._written(store, tmp_path / "new", example_vectors(dim=5))
        assert _hashes(tmp_path / "store") == hashes
        assert list(store.documents()) == documents
        assert np.array_equal(read_all(store.scan()).vectors, vectors)

    def test_an_empty_store_is_read_or_refused_in_one_line(self, tmp_path: Path) -> None:
        if not self.can_be_empty:
            return
        try:
            store = self._open(tmp_path / "store", [], example_vectors(0))
        except LeadMigrateError as error:
            assert "\n" not in str(error)
            return
        assert store.info.count == 0
        assert not list(store.scan())

    def test_a_search_finds_what_exact_search_does(self, tmp_path: Path) -> None:
        for metric in self.metrics:
            (tmp_path / metric).mkdir()
            store = open_store(self.make_store(tmp_path / metric, example_documents(), example_vectors(), metric))
            for k in (1, 7, COUNT, COUNT + 1_000):
                _expect(open_search(store).search(_QUERIES, k), _exact(store, _QUERIES, k))
            assert open_search(store).search(_QUERIES[:0], 3) == []

    def test_its_own_index_finds_what_exact_search_does_in_so_small_a_store(self, tmp_path: Path) -> None:
        store = self._open(tmp_path / "store")
        searcher = store.searcher()
        if searcher is None or not searcher.has_own_index:
            return
        _expect(searcher.search_index(_QUERIES, 7), _exact(store, _QUERIES, 7))
        assert searcher.search_index(_QUERIES[:0], 3) == []
        setting = searcher.setting
        if setting is not None:
            assert 0 <= setting.value <= setting.most and setting.code.count("{}") == 1
            _expect(searcher.search_index(_QUERIES, 7, setting.most), _exact(store, _QUERIES, 7))

    def test_queries_of_another_dimension_are_refused(self, tmp_path: Path) -> None:
        search = open_search(self._open(tmp_path / "store"))
        _refused(
            VectorError,
            lambda: search.search(np.ones((1, DIM + 1), np.float32), 3),
            "as the queries have another dimension",
        )

    def test_a_search_with_a_filter_finds_the_nearest_of_those_that_pass(self, tmp_path: Path) -> None:
        documents = [
            Document(document.id, document.text, {"part": row % 3, "source": "a"})
            for row, document in enumerate(example_documents())
        ]
        store = self._open(tmp_path / "store", documents)
        passing_ids = {document.id for row, document in enumerate(documents) if row % 3 == 1}
        found = open_search(store).search(_QUERIES, COUNT, self.filter_by("part", 1))
        _expect(found, _exact(store, _QUERIES, COUNT, passing_ids))
        assert not any(hits.ids for hits in open_search(store).search(_QUERIES, 5, self.filter_by("part", 9)))

    def test_a_filter_that_means_nothing_is_refused(self, tmp_path: Path) -> None:
        search = open_search(self._open(tmp_path / "store"))
        _refused(UsageError, lambda: search.search(_QUERIES, 3, object()), "as no kind knows such a filter")

    def test_new_vectors_are_put_where_they_belong_and_nothing_else_changes(self, tmp_path: Path) -> None:
        store = self._open(tmp_path / "store")
        if not isinstance(store, UpdatableStore):
            return
        old_rows, documents, snapshot = read_all(store.scan()), list(store.documents()), store.snapshot()
        ids = [old_rows.ids[row] for row in (COUNT - 1, 3, 17, 3)]
        new = example_vectors(4, seed=9)
        assert store.records.put([*ids, "not there"], np.concatenate([new, new[:1]])) == 3
        assert store.records.put([], new[:0]) == 0
        expected = old_rows.vectors.copy()
        expected[[COUNT - 1, 3, 17, 3]] = new  # of a document that is named twice, the last
        reopened = open_store(store.info.location)
        new_rows = read_all(reopened.scan())
        assert list(new_rows.ids) == list(old_rows.ids)
        assert np.array_equal(new_rows.vectors, expected)
        assert list(reopened.documents()) == documents
        assert reopened.info.count == COUNT
        for searched in (store, reopened):
            assert open_search(searched).search(new[2:3], 1)[0].ids == (ids[2],)
        _refused(StoreError, lambda: store.check_unchanged(snapshot), "as the vectors are others now")

    def test_vectors_that_no_store_should_hold_are_not_put(self, tmp_path: Path) -> None:
        store = self._open(tmp_path / "store")
        if not isinstance(store, UpdatableStore):
            return
        old_rows = read_all(store.scan())
        for wrong in (np.ones((2, DIM + 1)), np.array([[np.nan] * DIM, [1] * DIM]), np.array([[1] * DIM, [0] * DIM])):
            _refused(
                VectorError, partial(store.records.put, list(old_rows.ids[:2]), wrong.astype(np.float32)), f"of {wrong}"
            )
        assert np.array_equal(read_all(open_store(store.info.location).scan()).vectors, old_rows.vectors)

    def test_a_state_changes_with_the_vectors_and_nothing_is_read_for_it(self, tmp_path: Path) -> None:
        store = self._open(tmp_path / "store")
        state = open_store(store.info.location).state()
        if state is None:  # it takes reading to tell
            return
        exports = sorted((work_folder() / "exports").rglob("*"))
        assert canonical_json(open_store(store.info.location).state()) == canonical_json(state)
        assert sorted((work_folder() / "exports").rglob("*")) == exports, "ids or vectors were exported"
        if isinstance(store, UpdatableStore):
            ids = list(read_all(store.scan()).ids)[:1]
            assert store.records.put(ids, example_vectors(1, seed=9)) == 1
            assert canonical_json(open_store(store.info.location).state()) != canonical_json(state)

    def test_threads_that_search_while_vectors_are_put_see_the_old_vector_or_the_new_one(self, tmp_path: Path) -> None:
        if not self.serves_threads:
            return
        store, ends = self._open(tmp_path / "store"), Event()
        ids = list(read_all(store.scan()).ids)
        sides = [example_vectors(seed=0)[self._order(example_documents())], example_vectors(seed=1)]
        rows = {doc_id: row for row, doc_id in enumerate(ids)}
        search = open_search(store)

        def ask(seed: int) -> int:
            n_answers = 0
            while not ends.is_set() or not n_answers:
                queries = example_vectors(2, seed=seed + n_answers)
                both = [_scores(store, queries, side) for side in sides]
                for number, hits in enumerate(search.search(queries, COUNT)):
                    assert len(set(hits.ids)) == len(hits.ids) >= 0.9 * COUNT  # a graph may lose a node or two
                    expected = np.stack([scores[number, [rows[i] for i in hits.ids]] for scores in both])
                    is_close = np.isclose(expected, np.asarray(hits.scores), rtol=1e-3, atol=1e-4)
                    assert is_close.any(axis=0).all(), (hits, expected)
                n_answers += 1
            return n_answers

        with ThreadPoolExecutor(2) as pool:
            searches = [pool.submit(ask, 100 * seed) for seed in range(1, 3)]
            try:
                for turn in range(4 if isinstance(store, UpdatableStore) else 0):
                    for first in range(0, COUNT, 20):
                        part = slice(first, first + 20)
                        assert isinstance(store, UpdatableStore)
                        assert store.records.put(ids[part], sides[(turn + 1) % 2][part]) == 20
            finally:
                ends.set()
            assert all(thread.result() for thread in searches)

    def _written(self, store: Store, folder: Path, vectors: Vectors) -> tuple[Store, NDArray[np.int64]]:
        """The new store, and the row of the source that each of its rows is of."""
        output = _Output(self.new_location(folder), folder)
        for start in range(0, COUNT, 13):
            output.put(store, start, vectors[start : start + 13])
        written = output.finish(store, vectors.shape[1])
        return output.publish(), _order_of(written)


_QUERIES = example_vectors(3, seed=5)


def _scores(store: Store, queries: Vectors, vectors: Vectors) -> Any:
    """Each query with each vector, (q, n): inner products, squared distances, or cosines."""
    if store.info.metric == "l2":
        return ((queries[:, None] - vectors[None]).astype(np.float64) ** 2).sum(axis=2)
    if is_cosine(store.info):
        queries, vectors = unit_rows(queries), unit_rows(vectors)
    return queries.astype(np.float64) @ vectors.T


def _exact(store: Store, queries: Vectors, k: int, passing_ids: set[str] | None = None) -> list[Hits]:
    """The nearest of all documents, or of those in `passing_ids`."""
    whole = read_all(store.scan())
    rows = [row for row, doc_id in enumerate(whole.ids) if passing_ids is None or doc_id in passing_ids]
    scores = _scores(store, queries, whole.vectors[rows])
    order = np.argsort(scores if store.info.metric == "l2" else -scores, axis=1)[:, :k]
    return [
        Hits(tuple(whole.ids[rows[position]] for position in positions), scores[query, positions].astype(np.float32))
        for query, positions in enumerate(order)
    ]


def _expect(found: list[Hits], expected: list[Hits]) -> None:
    assert len(found) == len(expected)
    for hits, exact in zip(found, expected, strict=True):
        assert hits.ids == exact.ids
        assert hits.scores.dtype == np.float32
        assert np.allclose(hits.scores, exact.scores, rtol=1e-4, atol=1e-4)


class _Output:
    """A place for a new store, as a command fills it."""

    def __init__(self, location: Path | str, folder: Path) -> None:
        self.place: Output = output_of(location)
        self._content, shards = (folder.with_name(f"{folder.name}.{ending}") for ending in ("content", "shards"))
        for path in (self._content, shards):
            path.mkdir()
        self._shards = ShardFolder(shards)

    def put(self, store: Store, start: int, vectors: Vectors) -> None:
        """Write rows `start` and on, by a writer that is made for them."""
        writer = self.place.writer(store, self._content, vectors.shape[1])
        writer.begin()
        put_rows(writer, self._shards, start, vectors)

    def finish(self, store: Store, dim: int) -> Written:
        """Complete the store by another writer."""
        writer = self.place.writer(store, self._content, dim)
        writer.begin()
        for shard in self._shards:
            put = self._shards.details(shard)["put"]
            assert put is None or writer.is_sound(shard, put)
        return writer.finish(self._shards.all_rows(dim, COUNT), self._shards)

    def publish(self) -> Store:
        """Give the store its name, and open it."""
        self.place.publish(self._content, force=False)
        return open_store(self.place.location)


def _refused(kind: type[LeadMigrateError], call: Callable[[], object], why: str) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"expected a {kind.__name__}, {why}")


def _order_of(written: Written) -> NDArray[np.int64]:
    return np.arange(COUNT) if written.order is None else written.order


def _hashes(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
