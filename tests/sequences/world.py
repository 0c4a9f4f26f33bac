"""A small world in which the truth is known: two models by formula, documents that change, what a store should hold.

Texts are a few words of a vocabulary. The old model adds up the vectors of the words; the new one turns the old one's
vectors, so that a translation keeps everything, and adds vectors of its own, which no translation knows. Queries say
the same in words that no document has, so that a search by words finds nothing.
"""

import math
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256

import numpy as np
from sync_tools import DIM

from migrate.stores import open_store
from migrate.stores.all_true import is_all_true
from migrate.stores.confidence import stored_confidence
from migrate.vectors import Document, Query

COUNT, QUERIES, DEPTH = 160, 100, 10
VOCABULARY = [f"word{number}" for number in range(70)]


def _unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def _words(text, name):
    """The sum of the vectors that a model has for the words of a text, and a little of the text's own."""
    meanings = text.replace("ask", "word").split()
    return sum(_random_vector(f"{name} {word}") for word in meanings) + 0.2 * _random_vector(f"{name} text {text}")


@cache
def _random_vector(key):
    return np.random.default_rng(list(sha256(key.encode()).digest())).normal(size=DIM)


@dataclass
class World:
    """The documents of the old store as they are now, and the model that answers under the new one's name.

    `shared` is the share of the new model, 0-1, that is the old one's.
    """

    shared: float
    records: dict[str, tuple[Document, np.ndarray]] = field(default_factory=dict)
    version: int = 1
    changes: int = 0

    def __post_init__(self):
        for number in range(COUNT):
            self.put(f"doc-{(77 * number + 5) % COUNT:03d}")
        chosen = np.random.default_rng(2).permutation(sorted(self.records))[:QUERIES]
        self.looked_for = {f"q{number}": str(name) for number, name in enumerate(chosen)}
        self.queries = [
            Query(query, " ".join(self.records[name][0].text.replace("word", "ask").split()[:4]))
            for query, name in self.looked_for.items()
        ]

    def put(self, name):
        """Add a document, or give it another text and other metadata."""
        self.changes += 1
        text = " ".join(np.random.default_rng(self.changes).choice(VOCABULARY, 6, replace=False))
        document = Document(name, text, {"page": self.changes, "source": "a"})
        self.records[name] = document, self.old_vector(text)

    def old_vector(self, text):
        """The old model's vector, (DIM,) float32."""
        return _unit(_words(text, "old"))

    def new_vectors(self, texts, version=None):
        """The new model's vectors, (n, DIM) float32."""
        name = f"new{version or self.version}"
        own = np.stack([_unit(_words(text, name)) for text in texts])
        seed = list(sha256(name.encode()).digest())
        turn, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(DIM, DIM)))
        turned = np.stack([self.old_vector(text) for text in texts]) @ turn
        return _unit(self.shared * turned + (1 - self.shared) * own)

    def retention(self, location, version=None):
        """Share of the nDCG@10 of a full re-embed that a store has, for the queries of the audits."""
        store = open_store(location)
        rows = np.arange(store.info.count)
        batch = store.get(rows)
        texts = [document.text for document in store.documents(rows)]
        asked = self.new_vectors([query.text for query in self.queries], version)
        translated = self._gain(batch.ids, batch.vectors, asked)
        return translated / max(self._gain(batch.ids, self.new_vectors(texts, version), asked), 1e-9)

    def _gain(self, ids, vectors, asked):
        distances = ((asked[:, None, :] - vectors[None]) ** 2).sum(axis=2)
        gain = 0.0
        for name, row in zip(self.looked_for.values(), distances, strict=True):
            ranked = [ids[place] for place in np.argsort(row, kind="stable")[:DEPTH]]
            gain += 1 / math.log2(2 + ranked.index(name)) if name in ranked else 0.0
        return gain / QUERIES


@dataclass(frozen=True)
class Content:
    """What a store holds: text, metadata and vector of each document, and which vectors it calls the model's own."""

    documents: dict[str, tuple[str, dict]]
    vectors: dict[str, np.ndarray]
    true_names: list[str]

    @classmethod
    def of(cls, location):
        store = open_store(location)
        rows = np.arange(store.info.count)
        batch, documents = store.get(rows), list(store.documents(rows))
        confidence = stored_confidence(store)
        true = np.full(len(rows), is_all_true(store)) if confidence is None else confidence == 1
        return cls(
            {document.id: (document.text, dict(document.metadata)) for document in documents},
            dict(zip(batch.ids, batch.vectors, strict=True)),
            [batch.ids[row] for row in np.flatnonzero(true)],
        )


def content_of(records):
    """What a store of these documents should hold."""
    return {name: (document.text, dict(document.metadata)) for name, (document, _) in records.items()}
