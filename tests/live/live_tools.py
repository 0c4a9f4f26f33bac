"""Translated stores for a model behind a real server: noisy vectors beside the true ones that the server gives."""

import json

import numpy as np
from openai_server import vector_of

from migrate.embedders import load_embedder
from migrate.manifest import Manifest, ModelIdentity, StoreFacts

COUNT, DIM = 120, 8
SOURCE = ModelIdentity("tfidf:8", DIM, normalized=True)


def texts(count=COUNT, word="document"):
    return [f"{word} {number} is about topic {number % 7}" for number in range(count)]


def true_vectors(count=COUNT, word="document"):
    return np.stack([vector_of(text, DIM) for text in texts(count, word)])


def noisy_vectors(count=COUNT, seed=0, noise=0.35):
    rows = true_vectors(count) + noise * np.random.default_rng(seed).standard_normal((count, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def make_store(
    folder, vectors, model, *, source=SOURCE, words=None, created="2026-01-01T00:00:00+00:00", made_by="translate"
):
    """A flat FAISS index of inner products with a docs.jsonl; without `words`, without texts where that is empty."""
    import faiss

    folder.mkdir(parents=True)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    faiss.write_index(index, str(folder / "index.faiss"))
    words = texts(len(vectors)) if words is None else words
    records = [{"id": f"d{row}", "metadata": {"topic": row % 7}} for row in range(len(vectors))]
    for record, text in zip(records, words, strict=False):
        record["text"] = text
    (folder / "docs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    facts = StoreFacts(index="index.faiss", made_by=made_by).as_details()
    Manifest("store", model=model, source_model=source, details=facts, created=created).write(folder)
    return folder


def served_by(server, model="tiny", **options):
    return load_embedder(f"openai:{model}", base_url=server.url, **options)
