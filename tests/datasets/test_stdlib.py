"""The corpus of the demo as it comes with the package: its texts, and the old model's vectors of them."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from migrate.audit.query_groups import alike
from migrate.datasets.stdlib import FOLDER, LARGE, SMALL, stdlib_beir, vectors_of
from migrate.embedders import load_embedder
from migrate.errors import UsageError


@pytest.fixture(scope="module")
def demo():
    return stdlib_beir()


def plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def test_the_texts_are_the_same_under_every_python(demo):
    assert len(demo.documents) == len(demo.queries) == 1_566
    digest = hashlib.sha256("".join(document.text for document in demo.documents).encode()).hexdigest()
    assert digest.startswith("907cd8ab94960a7a")


def test_texts_are_distinct_of_sensible_length_and_say_nothing_of_their_queries(demo):
    ids = [document.id for document in demo.documents]
    assert ids == sorted(set(ids))
    assert demo.qrels == {f"q:{doc_id}": {doc_id: 1} for doc_id in ids}
    assert [query.id for query in demo.queries] == list(demo.qrels)
    names, _, bodies = zip(*(document.text.partition("\n") for document in demo.documents), strict=True)
    assert list(names) == ids
    assert all(plain(query.text) not in plain(body) for query, body in zip(demo.queries, bodies, strict=True))
    assert len({plain(body) for body in bodies}) == len(bodies)
    assert len({plain(query.text) for query in demo.queries}) == len(demo.queries)
    assert all(80 <= len(body) <= 1_000 for body in bodies)
    assert all(len(query.text.split()) >= 3 for query in demo.queries)


def test_the_sample_depends_on_nothing_but_its_seed(demo):
    few, same, other = (stdlib_beir(max_docs=50, seed=seed) for seed in (1, 1, 2))
    assert few == same
    assert len(few.documents) == len(other.documents) == 50
    assert few.documents != other.documents
    assert {document.id for document in few.documents} < {document.id for document in demo.documents}
    assert stdlib_beir(max_docs=1_000_000) == demo


@pytest.mark.parametrize(("model", "dim"), [(SMALL, 384), (LARGE, 768)])
def test_the_vectors_are_of_these_texts(demo, model, dim):
    """Most queries find their document among the first 10 of 1,500: with vectors in another order they would not."""
    everything, demo = demo, stdlib_beir(with_vectors=True)
    assert (len(demo.documents), len(demo.queries)) == (1_500, 200)
    assert demo.qrels.items() < everything.qrels.items()
    embedder = load_embedder(f"file:{vectors_of(model)}")
    documents, queries = embedder.embed_documents(demo.documents), embedder.embed_queries(demo.queries)
    assert (embedder.identity.dim, embedder.identity.normalized) == (dim, True)
    row_of = {document.id: row for row, document in enumerate(demo.documents)}
    wanted = [row_of[doc_id] for grades in demo.qrels.values() for doc_id in grades]
    scores = queries @ documents.T
    places = (scores > scores[np.arange(len(wanted)), wanted][:, None]).sum(axis=1)
    assert (places < 10).mean() > 0.75


def test_nearly_every_query_is_an_observation_of_its_own():
    queries = stdlib_beir(with_vectors=True).queries
    groups = alike(load_embedder(f"file:{vectors_of(LARGE)}").embed_queries(queries))
    assert len(set(groups.tolist())) > 0.9 * len(queries)


def test_it_is_small_and_says_where_it_comes_from():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 8e6
    origin = (FOLDER / "README.md").read_text()
    assert all(f"`{path.name}`" in origin for path in FOLDER.iterdir() if path.name != "README.md")
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in (FOLDER / "LICENSE-PYTHON.txt").read_text()


def test_a_demo_without_documents_is_refused():
    with pytest.raises(UsageError, match="max_docs: 0 is too few"):
        stdlib_beir(max_docs=0)
