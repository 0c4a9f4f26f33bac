"""The cost of vectors near the model's: real ones of all-MiniLM-L6-v2, as another host or precision might give them."""

import copy

import numpy as np
import pytest

import migrate
from migrate.audit.query_set import QuerySet
from migrate.check import Cause
from migrate.datasets.stdlib import SMALL, stdlib_beir, vectors_of
from migrate.embedders import load_embedder
from migrate.stores import open_store
from migrate.stores.create import create_store
from migrate.vectors import unit_rows

SPEC = f"file:{vectors_of(SMALL)}"


@pytest.fixture(scope="module")
def docstrings():
    """1,500 documents of which the package has the model's vectors, and 200 queries."""
    return stdlib_beir(with_vectors=True)


@pytest.fixture(scope="module")
def own(docstrings):
    """The model's vectors of these documents."""
    with np.load(vectors_of(SMALL)) as arrays:
        rows = dict(zip(arrays["doc_ids"].tolist(), arrays["docs"].astype(np.float32), strict=True))
    return unit_rows(np.stack([rows[document.id] for document in docstrings.documents]))


@pytest.fixture
def check(docstrings, tmp_path):
    """Checks a store of these documents with other vectors."""

    def checked(vectors, count=1_500, **options):
        folder = tmp_path / "store"
        folder.mkdir()
        writer = create_store(folder, format="faiss", dim=384)
        writer.append(list(docstrings.documents[:count]), np.ascontiguousarray(vectors[:count], np.float32))
        writer.finish()
        return migrate.check(open_store(folder), SPEC, **options)

    return checked


def in_bits(rows, bits):
    """Vectors in so many bits a number, on one scale."""
    step = np.abs(rows).max() / (2 ** (bits - 1) - 1)
    return unit_rows((np.round(rows / step) * step).astype(np.float32))


def sheared(rows):
    dim = rows.shape[1]
    return unit_rows(
        (rows @ (np.eye(dim) + 0.03 * np.random.default_rng(0).normal(size=(dim, dim)))).astype(np.float32)
    )


@pytest.mark.parametrize("change", [lambda rows: rows.astype(np.float16), lambda rows: in_bits(rows, 8)])
def test_rounding_within_the_limit_has_no_cost_to_tell(change, own, check):
    found = check(change(own), sample=100)
    assert found.compatible and found.retrieval is None


@pytest.mark.slow
@pytest.mark.parametrize(("change", "repairs"), [(lambda rows: in_bits(rows, 4), "none"), (sheared, "most")])
def test_a_stitch_repairs_what_is_linear_and_nothing_else(change, repairs, own, check):
    found = check(change(own), sample=800)
    repair, overlap = found.retrieval.repair, found.retrieval.overlap
    assert (found.cause, repair.repairs) == (Cause.NEAR, repairs)
    assert (repair.overlap.lower > overlap.upper) == (repairs == "most")
    assert overlap.lower < overlap.estimate < overlap.upper < 1


def test_the_overlap_is_that_of_exact_search_in_a_sample_of_everything(own, check):
    count = 60
    stored = in_bits(own, 3)
    found = check(stored, count=count, sample="all").retrieval
    rankings = []
    for documents in (own[:count], stored[:count]):
        cosines = own[:count] @ documents.T
        np.fill_diagonal(cosines, -np.inf)
        rankings.append([set(row[:10]) for row in np.argsort(-cosines, axis=1).tolist()])
    shares = np.array([len(true & near) / 10 for true, near in zip(*rankings, strict=True)])
    assert found.overlap.estimate == pytest.approx(shares.mean()) and found.overlap.estimate < 0.99
    half_width = 1.96 * shares.std(ddof=1) / np.sqrt(count)
    assert found.overlap.upper - found.overlap.estimate == pytest.approx(half_width)
    assert (found.documents, found.chance, found.larger) == (count, pytest.approx(10 / 59), None)


def test_a_small_sample_tries_no_stitch_and_says_what_a_larger_one_takes(own, check):
    found = check(sheared(own)).retrieval
    assert found.repair is None and found.stitch is None
    assert (found.documents, found.store_documents) == (32, 1_500)
    assert (found.larger.documents, found.larger.further, found.larger.usd) == (1_000, 968, 0.0)
    assert found.larger.tokens > 968


def test_a_store_of_few_different_texts_is_not_asked_for_more(docstrings, make_store):
    """What the printed command finds must not print the same command again."""
    texts = [document.text for document in docstrings.documents[:40]] * 4
    model = load_embedder("tfidf:32")
    model.fit([migrate.Document(str(row), text) for row, text in enumerate(texts)])
    rows = model.embed_documents([migrate.Document(str(row), text) for row, text in enumerate(texts)])
    store = make_store(texts, sheared(rows))
    first = migrate.check(store, model).retrieval.larger
    assert first.documents == 160
    again = migrate.check(store, model, sample=first.documents).retrieval
    assert (again.documents, again.larger, again.repair) == (40, None, None)


def test_of_too_few_documents_nothing_is_told(own, check):
    found = check(sheared(own), count=20)
    assert found.cause is Cause.NEAR and found.retrieval is None


def ndcg_by_hand(queries, documents, relevant):
    """The mean nDCG@10 of queries that one document each answers."""
    ranks = [int((scores > scores[row]).sum()) for scores, row in zip(queries @ documents.T, relevant, strict=True)]
    return np.mean([1 / np.log2(rank + 2) if rank < 10 else 0 for rank in ranks])


@pytest.mark.slow
def test_judged_queries_tell_what_is_retained(docstrings, own, check):
    judged = QuerySet(docstrings.queries, docstrings.qrels, "docstrings")
    stored = sheared(own)
    found = check(stored, sample="all", judged=judged).retrieval.judged
    with np.load(vectors_of(SMALL)) as arrays:
        rows = dict(zip(arrays["query_ids"].tolist(), arrays["queries"].astype(np.float32), strict=True))
    queries = unit_rows(np.stack([rows[query.id] for query in docstrings.queries]))
    row_of = {document.id: row for row, document in enumerate(docstrings.documents)}
    relevant = [row_of[next(iter(docstrings.qrels[query.id]))] for query in docstrings.queries]
    full, kept = (ndcg_by_hand(queries, documents, relevant) for documents in (own, stored))
    assert found.queries == 200
    assert found.retention.estimate == pytest.approx(kept / full, abs=1e-3)
    assert 0.5 < found.retention.lower < kept / full < found.retention.upper < 1.1


def test_too_few_judged_queries_are_counted_and_not_embedded(docstrings, own, check):
    foreign = [migrate.Query(query.id, f"{query.text} of which there is no vector") for query in docstrings.queries]
    judged = QuerySet(foreign, docstrings.qrels, "docstrings")
    found = check(sheared(own), judged=judged).retrieval.judged
    assert found.queries < 20 and found.retention is None


@pytest.mark.parametrize(("sample", "is_told"), [(10, True), (40, False)])
def test_a_sample_too_small_for_judged_queries_is_told(sample, is_told, docstrings, own, check):
    judged = QuerySet(docstrings.queries, docstrings.qrels, "docstrings")
    notes = check(sheared(own), sample=sample, judged=judged).notes
    assert any(note.startswith("the judged queries were not asked") for note in notes) == is_told


def with_weights_in_eight_bits(model):
    """The network with the weights of its linear layers in 8 bits, one scale a layer."""
    import torch

    network = copy.deepcopy(model)
    for layer in network.modules():
        if isinstance(layer, torch.nn.Linear):
            step = layer.weight.abs().max() / 127
            layer.weight.data = (layer.weight.data / step).round() * step
    return network


@pytest.mark.slow
def test_weights_in_eight_bits_cost_something_and_bfloat16_nothing(minilm, docstrings, make_store):
    """The packaged model as a host that saves memory serves it."""
    texts = [" ".join(document.text.split()[:8]) for document in docstrings.documents[::25]]
    for name, network in (
        ("int8", with_weights_in_eight_bits(minilm.embedder.model)),
        ("bfloat16", copy.deepcopy(minilm.embedder.model).bfloat16()),
    ):
        vectors = network.encode(texts, show_progress_bar=False, convert_to_tensor=True).float().numpy()
        found = migrate.check(make_store(texts, unit_rows(vectors), name=name), minilm, sample=len(texts))
        if name == "bfloat16":
            assert found.compatible and found.retrieval is None
        else:
            assert found.cause is Cause.NEAR and found.retrieval.documents == len(texts)
            assert 0.5 < found.retrieval.overlap.lower < found.retrieval.overlap.upper < 0.98
