import json
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from migrate.embedders.abilities import with_prefixes
from migrate.embedders.cache import CachedEmbedder
from migrate.embedders.sentence_transformers import SentenceTransformersEmbedder
from migrate.stores import open_store
from migrate.stores.create import create_store
from migrate.vectors import Document

COUNT = 36


@pytest.fixture(scope="session")
def minilm(tmp_path_factory):
    """The packaged model; what one test has embedded the others need not."""
    model = SentenceTransformersEmbedder(packaged=True, device="cpu")
    return CachedEmbedder(model, tmp_path_factory.mktemp("cache") / "embeddings.sqlite")


@pytest.fixture(scope="session")
def prefixed(minilm):
    """The same model, as one that was trained with prefixes would be used."""
    return with_prefixes(minilm, "passage: ", "query: ")


@pytest.fixture(scope="session")
def texts(corpus):
    """36 first sentences of docstrings, all different."""
    found = (" ".join(document.text.split()[:10]) for document in corpus.documents)
    return list(dict.fromkeys(found))[:COUNT]


@pytest.fixture(scope="session")
def by_hand(minilm):
    """Vectors as somebody else would make them: sentence-transformers asked directly."""
    model = minilm.embedder.model

    def embed(texts):
        return model.encode(texts, show_progress_bar=False)

    def tokens(texts):
        return [rows.numpy() for rows in model.encode(texts, output_value="token_embeddings", show_progress_bar=False)]

    def cut(texts, length):
        before, model.max_seq_length = model.max_seq_length, length
        try:
            return embed(texts)
        finally:
            model.max_seq_length = before

    return SimpleNamespace(embed=embed, tokens=tokens, cut=cut)


@pytest.fixture(scope="session")
def lexical():
    """Another model of 384 dimensions: TF-IDF, projected at random."""

    def embed(texts):
        table = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5)).fit_transform(texts).toarray()
        rows = table @ np.random.default_rng(5).normal(size=(table.shape[1], 384))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    return embed


@pytest.fixture(scope="session")
def plain(texts, by_hand):
    return by_hand.embed(texts)


@pytest.fixture
def make_store(tmp_path):
    """A store of texts and vectors under the ids d0, d1 ...; without texts, the index alone."""

    def make(texts, vectors, *, name="store", metadata=(), bare=False):
        folder = tmp_path / name
        folder.mkdir()
        vectors = np.ascontiguousarray(vectors, np.float32)
        extra = [*metadata, *({} for _ in texts[len(metadata) :])]
        documents = [Document(f"d{row}", text, extra[row]) for row, text in enumerate(texts)]
        writer = create_store(folder, format="faiss", dim=vectors.shape[1])
        writer.append(documents, vectors)
        writer.finish()
        if bare:
            (folder / "docs.jsonl").unlink()
        return open_store(folder)

    return make


@pytest.fixture
def edit_manifest():
    def edit(folder, **changes):
        path = folder / "lead-migrate.json"
        facts = json.loads(path.read_text())
        del facts["manifest_sha256"]
        facts["model"] |= changes
        path.write_text(json.dumps(facts))
        return open_store(folder)

    return edit
