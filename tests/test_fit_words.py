"""Words of the store that a fit has the target embed, at a real local server."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from openai_server import OpenAIServer, vector_of

import migrate
from migrate.embedders import load_embedder
from migrate.embedders.profile import Profile
from migrate.errors import SpendingError
from migrate.pipeline import Run
from migrate.report.fit import fit_sentences
from migrate.steps.fit import Fit
from migrate.steps.fit.words import FEWEST_PAIRS, store_words
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.vectors import Document, unit_rows

N_DOCUMENTS = 600
WORDS = [f"word{number}" for number in range(300)]


@cache
def meaning(word):
    return vector_of(f"meaning of {word}")


def mean_of_words(texts):
    """A model to which a text is the mean of its words."""
    return unit_rows(np.array([np.mean([meaning(word) for word in text.split()], axis=0) for text in texts]))


def blind_to_words(texts):
    """The same model, to which a single word says nothing."""
    return np.array([vector_of(text) if " " not in text else mean_of_words([text])[0] for text in texts])


def write_store(path, texts, vectors, order=slice(None)):
    rows = [
        json.dumps({"id": f"d{number}", "text": text, "vector": vector})
        for number, (text, vector) in enumerate(zip(texts, unit_rows(vectors).tolist(), strict=True))
    ]
    path.write_text("\n".join(rows[order]))
    return open_store(f"records:{path}#?vector=vector")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Documents of twelve words each, whose old vectors tell little of them."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, size=12)) for _ in range(N_DOCUMENTS)]
    old = mean_of_words(texts) + rng.normal(size=(N_DOCUMENTS, 8))
    return write_store(tmp_path_factory.mktemp("store") / "store.jsonl", texts, old)


@pytest.fixture(scope="module")
def server():
    with OpenAIServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
        patch.setenv("OPENAI_BASE_URL", server.url)
        yield server


@pytest.fixture(scope="module")
def load(server, tmp_path_factory):
    """The target, whose cache is its own for each way of making vectors."""
    folder = tmp_path_factory.mktemp("cache")

    def with_vectors(vectors):
        server.vectors = vectors
        return load_embedder("openai:tiny", cache=folder / f"{vectors.__name__}.sqlite")

    return with_vectors


def fit(store, target, **options):
    return migrate.fit(store, target, sample=FEWEST_PAIRS, kind="ridge+text", view={}, price=1.0, **options)


@pytest.fixture(scope="module")
def fitted(store, load):
    return fit(store, load(mean_of_words))


def sample_of(text):
    return [Document(str(row), text) for row in range(FEWEST_PAIRS)]


def test_the_words_of_most_documents_are_chosen_whatever_the_order(tmp_path):
    texts = ["b a a", "a, B: c", "c lone b A", "d" * 41, "d" * 41, "d" * 41, "a e c"]
    vectors = np.ones((len(texts), 2), dtype=np.float32)
    there = write_store(tmp_path / "there.jsonl", texts, vectors)
    back = write_store(tmp_path / "back.jsonl", texts, vectors, slice(None, None, -1))
    profile = Profile("openai:tiny")
    sample = sample_of("some words of a document")
    words = store_words(there, sample, profile, 100)
    assert [text.text for text in words.texts] == ["a", "b", "c"]
    np.testing.assert_allclose(words.idf, np.log(8 / np.array([5, 4, 4])) + 1, rtol=1e-6)
    assert store_words(back, sample, profile, 100).texts == words.texts
    assert store_words(there, sample, profile, 2).texts == words.texts[:2]
    assert not len(store_words(there, sample[1:], profile, 100))


def test_words_cost_no_more_than_a_fifth_of_the_sample(store):
    profile = Profile("openai:tiny")
    sample = sample_of("short")
    words = store_words(store, sample, profile, len(WORDS))
    cost = profile.read(words.texts).sum() / profile.read(sample).sum()
    assert 0.19 < cost <= 0.2
    assert words.texts == store_words(store, sample_of("long " * 100), profile, len(WORDS)).texts[: len(words)]


@pytest.mark.slow
def test_words_are_read_where_they_find_more(store, fitted, tmp_path):
    tried = fitted.selection.vocabulary
    assert tried.is_used and tried.count == len(WORDS)
    # A word is a token, a document twelve
    assert tried.overlap_with > tried.overlap_without + 0.05
    fitted.save(tmp_path / "stitch")
    loaded = load_stitch(tmp_path / "stitch")
    assert loaded.selection.vocabulary == tried
    assert sorted(loaded.reader.vocabulary.vocabulary) == sorted(WORDS)
    assert any("300 words of the store" in line and "are read" in line for line in fit_sentences(loaded.selection))
    documents = list(store.documents())
    truth = mean_of_words([document.text for document in documents])

    texts = loaded.reader.read([document.text for document in documents])
    translated = unit_rows(loaded.stitch.transform(store.get(range(N_DOCUMENTS)).vectors, texts))
    assert np.einsum("ij,ij->i", translated, truth).mean() > 0.9


@pytest.mark.slow
def test_a_second_fit_does_not_pay_for_the_words(store, fitted, load, server):
    n_billed = len(server.billed)
    again = fit(store, load(mean_of_words))
    assert again.selection.vocabulary == fitted.selection.vocabulary
    # What is embedded again shows that the model is the same
    assert not set(server.billed[n_billed:]) & set(WORDS)


@pytest.mark.slow
def test_words_that_say_nothing_are_not_read(store, load):
    fitted = fit(store, load(blind_to_words))
    assert fitted.selection.vocabulary is not None and not fitted.selection.vocabulary.is_used
    assert fitted.reader.vocabulary is None
    assert any("are not read" in line for line in fit_sentences(fitted.selection))


def test_words_are_in_the_estimate_and_under_the_cap(store, server, tmp_path):
    n_billed = len(server.billed)
    target = load_embedder("openai:tiny", cache=tmp_path / "cache.sqlite")
    request = Fit(store, target, sample=FEWEST_PAIRS, view={}, price=1.0)
    with_words, without = request.estimate(), replace(request, words=0).estimate()
    assert with_words.tokens > without.tokens
    assert "words of the store" in with_words.sentence
    assert "words of the store" not in without.sentence
    limit = (with_words.usd + without.usd) / 2
    with pytest.raises(SpendingError):
        replace(request, max_cost=limit).run()
    assert len(server.billed) == n_billed


def test_a_run_estimates_the_words_too(store, server, tmp_path):
    (tmp_path / "queries.txt").write_text("\n".join(f"what is {word}" for word in WORDS[:20]))
    target = load_embedder("openai:tiny", cache=tmp_path / "cache.sqlite")
    request = Run(
        store,
        target,
        tmp_path / "moved",
        queries=tmp_path / "queries.txt",
        reference="build",
        sample=FEWEST_PAIRS,
        price=1.0,
    )
    assert "words of the store" in request.estimate().sentence
    assert "words of the store" not in replace(request, words=0).estimate().sentence
