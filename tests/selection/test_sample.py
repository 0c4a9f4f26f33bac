import numpy as np
import pytest
import stores_tools

import migrate
from migrate.embedders import load_embedder
from migrate.errors import StoreError, UsageError, VectorError
from migrate.selection import STRATEGIES, QueryLog, draw_sample, embed_pairs, random_order
from migrate.selection import sample as drawing
from migrate.selection.sample import far_apart, pool_size
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.vectors import Document, Query


@pytest.fixture
def store(source_folder):
    return open_store(source_folder)


def make_store(folder, texts, vectors=None):
    vectors = np.eye(len(texts), 8, dtype=np.float32) + 1 if vectors is None else vectors
    return stores_tools.make_store(folder, [Document(f"d{i}", text) for i, text in enumerate(texts)], vectors)


@pytest.fixture
def copies(tmp_path):
    """Ten texts, each of them twelve times; vectors as the texts."""
    numbers = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 12))
    vectors = np.eye(10, 8, dtype=np.float32)[numbers] + 0.1
    return make_store(tmp_path / "copies", [f"text number{number}" for number in numbers], vectors)


def log(*texts, embedder=None):
    return QueryLog([Query(str(number), text) for number, text in enumerate(texts)], embedder)


def test_every_document_is_equally_likely(tmp_path):
    store, counts = make_store(tmp_path / "s", [f"text {row}" for row in range(50)]), np.zeros(50)
    for seed in range(300):
        counts[draw_sample(store, 10, seed=seed).rows] += 1
    # 300 draws of 10 in 50: 60 each, standard deviation 6.9
    assert counts.min() > 60 - 5 * 6.9 and counts.max() < 60 + 5 * 6.9


def test_only_held_documents_are_drawn_at_random(tmp_path):
    store = make_store(tmp_path / "s", [f"text {row}" for row in range(50)])
    held = {f"d{row}" for row in range(0, 50, 2)}
    drawn = [draw_sample(store, 10, seed=seed, holds=lambda it: it.id in held) for seed in range(20)]
    assert all(len(one.rows) == 10 and held.issuperset(it.id for it in one.documents) for one in drawn)
    assert {it.id for one in drawn for it in one.documents} == held
    assert len(draw_sample(store, 40, holds=lambda it: it.id in held).rows) == 25
    # A file of other documents is asked, and says so itself
    assert len(draw_sample(store, 10, holds=lambda it: False).rows) == 10


def test_a_small_store_is_taken_whole(store):
    assert draw_sample(store, 10_000).rows.tolist() == list(range(store.info.count))


def test_a_store_of_blanks_is_refused(tmp_path):
    store = make_store(tmp_path / "s", [" ", ""])
    with pytest.raises(StoreError, match="all its texts are blank"):
        draw_sample(store, 3)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_text_comes_twice_whatever_the_strategy(strategy, copies):
    query_log = log("number3", "number5") if strategy == "query-log" else None
    for size in (4, 10, 50):
        sample = draw_sample(copies, size, strategy=strategy, query_log=query_log, seed=1)
        texts = [document.text for document in sample.documents]
        assert len(texts) == len(set(texts)) == min(size, 10)
        assert [document.id for document in sample.documents] == list(copies.get(sample.rows).ids)
        assert np.all(np.diff(sample.rows) > 0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_strategy_takes_a_blank_document(strategy, tmp_path):
    vectors = np.ones((40, 8), dtype=np.float32)
    vectors[::2] = -vectors[::2] * np.arange(1, 9)  # the blank ones stand apart, where `diverse` would go first
    store = make_store(tmp_path / "s", [" " if row % 2 == 0 else f"word {row}" for row in range(40)], vectors)
    query_log = log("word") if strategy == "query-log" else None
    sample = draw_sample(store, 15, strategy=strategy, query_log=query_log)
    assert len(sample.rows) == 15 and np.all(sample.rows % 2 == 1)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_is_decided_by_the_seed(strategy, store):
    query_log = log("file", "string") if strategy == "query-log" else None
    options = {"strategy": strategy, "query_log": query_log}
    rows = [draw_sample(store, 40, **options, seed=seed).rows.tolist() for seed in (1, 1, 2)]
    assert rows[0] == rows[1] and (rows[0] != rows[2] or strategy == "query-log")


def test_a_diverse_sample_reaches_clusters_that_chance_misses(tmp_path):
    """Seven clusters of three documents beside 600 of one kind: seven draws of 621 meet about none of them."""
    rng = np.random.default_rng(0)
    cluster = np.concatenate([np.zeros(600, dtype=int), np.repeat(np.arange(1, 8), 3)])
    vectors = np.eye(8, dtype=np.float32)[cluster] + 0.01 * rng.normal(size=(621, 8)).astype(np.float32)
    store = make_store(tmp_path / "s", [f"text {row}" for row in range(621)], vectors)

    def met(strategy):
        samples = [draw_sample(store, 8, strategy=strategy, seed=seed).rows for seed in range(10)]
        return np.mean([len(set(cluster[rows])) for rows in samples])

    assert met("diverse") > 7.5
    assert met("random") < 3


def test_a_diverse_sample_is_chosen_from_a_bounded_pool(store, monkeypatch):
    pools = []

    def spy(vectors, size, **options):
        pools.append(len(vectors))
        return np.arange(size)

    monkeypatch.setattr(drawing, "far_apart", spy)
    monkeypatch.setattr(drawing, "pool_size", lambda size, dim: 3 * size)
    assert len(draw_sample(store, 20, strategy="diverse").rows) == 20
    assert pools == [60]


def test_a_log_that_touches_too_little_is_filled_at_random(tmp_path):
    store = make_store(tmp_path / "s", [f"tea {row}" if row in (3, 8) else f"none {row}" for row in range(20)])
    samples = [draw_sample(store, 6, query_log=log("tea"), seed=seed) for seed in range(20)]
    assert all({3, 8} <= set(sample.rows.tolist()) and len(sample.rows) == 6 for sample in samples)
    assert {(sample.strategy, sample.from_log) for sample in samples} == {("query-log", 2)}
    assert len(set().union(*(sample.rows.tolist() for sample in samples))) == 20


def test_copies_that_a_log_finds_count_once(copies):
    sample = draw_sample(copies, 5, query_log=log("number3", "number5", "number3 number5"))
    assert sample.from_log == 2
    assert {"text number3", "text number5"} < {document.text for document in sample.documents}


@pytest.mark.parametrize(
    ("strategy", "with_log", "message"),
    [
        ("query-log", False, "needs a query log"),
        ("random", True, "the strategy random does not read a query log"),
        ("diverse", True, "the strategy diverse does not read a query log"),
        ("best", False, "unknown strategy 'best'; choose one of random, diverse, query-log"),
    ],
)
def test_a_strategy_and_a_log_must_go_together(strategy, with_log, message, store):
    with pytest.raises(UsageError, match=message):
        draw_sample(store, strategy=strategy, query_log=log("a") if with_log else None)


def test_pairs_stand_side_by_side(store, corpus):
    embedder = load_embedder("tfidf:16")
    embedder.fit(corpus.documents)
    sample = draw_sample(store, 20, seed=4)
    pairs = embed_pairs(store, embedder, sample)
    assert pairs.ids == tuple(document.id for document in sample.documents)
    assert np.array_equal(pairs.source, store.get(sample.rows).vectors)
    assert np.array_equal(pairs.target[3:4], embedder.embed_documents(sample.documents[3:4]))


def test_every_copy_of_a_sampled_text_is_translated_to_its_true_vector(copies, tmp_path):
    embedder = load_embedder("tfidf:4")
    fitted = migrate.fit(copies, embedder, kind="ridge", sample=4)
    done = migrate.translate(copies, fitted, tmp_path / "new")
    true = dict(zip(fitted.sample.ids, fitted.sample.vectors, strict=True))
    text_of = {document.id: document.text for document in copies.documents()}
    by_text = {text_of[doc_id]: vector for doc_id, vector in true.items()}
    new = read_all(open_store(tmp_path / "new").scan())
    held = [(text_of[doc_id], vector) for doc_id, vector in zip(new.ids, new.vectors, strict=True)]
    assert all(np.array_equal(vector, by_text[text]) for text, vector in held if text in by_text)
    assert done.n_true == 4 * 12


def test_a_bad_old_vector_is_named(tmp_path):
    vectors = np.ones((3, 8), dtype=np.float32)
    vectors[1] = 0
    store = make_store(tmp_path / "s", ["a", "b", "c"], vectors)
    embedder = load_embedder("tfidf:1")
    with pytest.raises(VectorError, match="zero vector for document 'd1'"):
        embed_pairs(store, embedder, draw_sample(store, 3))


def test_the_order_of_rows_changes_neither_the_sample_nor_the_order_it_is_drawn_in(tmp_path):
    texts = [f"text {number}" for number in range(200)]
    documents = [Document(f"d{number}", text) for number, text in enumerate(texts)]
    shuffled = [documents[row] for row in np.random.default_rng(1).permutation(200)]
    drawn = []
    for name, some in (("first", documents), ("second", shuffled)):
        store = stores_tools.make_store(tmp_path / name, some, np.ones((200, 8), np.float32))
        order = store.ids(random_order(store, 3))
        assert sorted(order) == sorted(document.id for document in documents)
        drawn.append((order, {document.id for document in draw_sample(store, 30, seed=3).documents}))
    assert drawn[0] == drawn[1]
    assert drawn[0][1] == set(drawn[0][0][:30])
    assert drawn[0][0] != store.ids(random_order(store, 4))


def test_rows_are_distinct_even_where_vectors_are_copies():
    vectors = np.repeat(np.eye(3, dtype=np.float32), 10, axis=0)
    chosen = far_apart(vectors, 30, seed=0)
    assert sorted(chosen.tolist()) == list(range(30))
    assert len({row // 10 for row in chosen[:3].tolist()}) == 3, "one of each kind before any copy"


@pytest.mark.slow
def test_a_row_is_drawn_in_proportion_to_its_squared_distance():
    angles = np.array([0, 0.2, 0.5, 1.2])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    pairs = [tuple(far_apart(vectors, 2, seed=seed).tolist()) for seed in range(6000)]
    seconds = [second for first, second in pairs if first == 0]
    squared = 2 - 2 * np.cos(angles)
    found = np.bincount(seconds, minlength=4) / len(seconds)
    assert np.abs(found - squared / squared.sum()).max() < 0.05  # 1,500 draws: standard deviation 0.013 at most
    assert np.bincount([first for first, _ in pairs]).min() > 1300


def test_the_length_of_a_vector_does_not_matter():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, 5)).astype(np.float32)
    powers_of_two = 2.0 ** rng.integers(-5, 6, size=(200, 1))  # exact, so that nothing is rounded differently
    longer = (vectors * powers_of_two).astype(np.float32)
    before = vectors.copy()
    assert np.array_equal(far_apart(vectors, 40, seed=3), far_apart(longer, 40, seed=3))
    assert np.array_equal(vectors, before)


@pytest.mark.parametrize(
    ("size", "dim", "expected"),
    [(100, 384, 10_000), (1_000, 384, 20_000), (8_000, 384, 87_381), (8_000, 64, 100_000), (1_000, 4096, 8_192),
     (200_000, 4096, 200_000)],
)  # fmt: skip
def test_the_pool_is_bounded_by_rows_and_by_memory(size, dim, expected):
    assert pool_size(size, dim) == expected
