"""Awkward documents, queries and two models, the same on every machine: only whole numbers are summed before a root.

The models are named `langchain:golden_data:Old` and `langchain:golden_data:New`. A word's vector is that of its topic
and a little of its own, so that a map from one model to the other can be learned.
"""

import hashlib
import math
import random
from functools import cache

import numpy as np
from langchain_core.embeddings import Embeddings

from migrate.vectors import Document

OLD, NEW = "langchain:golden_data:Old", "langchain:golden_data:New"
OLD_DIM, NEW_DIM = 32, 24
COUNT, QUERIES, TOPICS, WORDS, PAIRS = 300, 120, 30, 600, 60

AWKWARD = (
    ("7", "just a number"),
    ("007", "leading zeros"),
    ("-1", "a negative number"),
    ("1e3", "a float"),
    ("null", "null"),
    ("True", "true"),
    (" spaces ", "  spaces around  "),
    ("quote\"s and it's", 'he said "it\'s" \\ `so`; DROP TABLE docs; --'),
    ("na\u00efve/\u8def\u5f84#?x=1&y", "na\u00efve \u8def\u5f84 \u05e9\u05dc\u05d5\u05dd"),
    ("\U0001f986", "\U0001f986 \U0001f600 \U0001f1e9\U0001f1ea"),
    ("e\u0301 is not \u00e9", "e\u0301 is not \u00e9"),
    ("x" * 500, "long " * 3_000),
    ("../up", "two\nlines\r\nand\ttabs"),
    ("a%20b+c", "."),
    ("{json: [1]}", '{"json": [1, null]}'),
    ("12345678901234567890123", "\u200b invisible \u2028 marks"),
)


def _word(number):
    draw = random.Random(f"word {number}")
    return "".join(draw.choice("bdfgklmnprstvz") + draw.choice("aeiou") for _ in range(3))


@cache
def vocabulary():
    """Words of each topic."""
    words = sorted({_word(number) for number in range(WORDS)})
    return [words[topic::TOPICS] for topic in range(TOPICS)]


@cache
def _vector_of(word, name, dim):
    topic = next((number for number, words in enumerate(vocabulary()) if word in words), None)
    if topic is None:
        topic = hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()[0] % TOPICS
    shared, own = random.Random(f"{name} topic {topic}"), random.Random(f"{name} word {word}")
    return np.array([6 * shared.randint(-9, 9) + own.randint(-9, 9) for _ in range(dim)], np.int64)


def embed(text, name, dim):
    """The vector of a text, of unit length, (dim,), float32."""
    total = sum((_vector_of(word, name, dim) for word in text.split() or [""]), np.zeros(dim, np.int64))
    length = math.sqrt(int((total * total).sum())) or 1.0
    return (total / length).astype(np.float32)


class _Words(Embeddings):
    name, dim = "", 0

    def embed_query(self, text):
        return embed(text, self.name, self.dim).tolist()

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]


class Old(_Words):
    name, dim = "old", OLD_DIM


class New(_Words):
    name, dim = "new", NEW_DIM


def _pair(seed):
    """The two topics of a text."""
    pair = random.Random(f"pair of {seed}").randrange(PAIRS)
    return pair, random.Random(f"pair {pair}").sample(range(TOPICS), 2)


def _words(draw, topics, length):
    return " ".join(draw.choice(vocabulary()[topics[draw.random() < 0.3]]) for _ in range(length))


def _sentence(seed, length):
    return _words(random.Random(seed), _pair(seed)[1], length)


def _metadata(row):
    fields = {
        "page": row,
        "source": ("a", "b \u00fc", "it's")[row % 3],
        "score": (0.5, -0.0, 1.5e300, 0.1)[row % 4],
        "flag": row % 2 == 0,
        "made": f"2020-01-{row % 28 + 1:02}T00:00:00Z",
        "key \u00fc": 2**40 + row,
    }
    if row % 5 == 0:
        del fields["source"]
    return fields


def documents():
    """All documents, in no order; the awkward ones are spread among them."""
    names = [f"doc-{(77 * row + 5) % COUNT:03}" for row in range(COUNT)]
    found = [Document(name, _sentence(row, 8 + row % 20), _metadata(row)) for row, name in enumerate(names)]
    for number, (doc_id, text) in enumerate(AWKWARD):
        found[18 * number + 7] = Document(doc_id, text, _metadata(18 * number + 7))
    return found


def ordinary(found):
    """Documents whose ids and texts are not awkward."""
    return [document for document in found if document.id.startswith("doc-")]


def queries():
    """Queries by id, each with its text and the ids of the documents of its two topics."""
    by_pair = {}
    for row, document in enumerate(documents()):
        if document.id.startswith("doc-"):
            by_pair.setdefault(_pair(row)[0], []).append(document.id)
    found = {}
    for number in range(QUERIES):
        pair, topics = _pair(f"query {number}")
        found[f"q{number:03}"] = (_words(random.Random(f"query {number}"), topics, 4), by_pair.get(pair, []))
    return found


def later(found):
    """The documents after some time: 20 added, 15 with another text, 10 with other metadata, 12 deleted."""
    names = [document.id for document in ordinary(found)]
    gone, rewritten, retold = {*names[20:30], "007", "\U0001f986"}, {*names[40:54], " spaces "}, set(names[70:80])
    after = []
    for document in found:
        if document.id in gone:
            continue
        if document.id in rewritten:
            document = Document(document.id, _sentence(f"again {document.id}", 12), document.metadata)
        elif document.id in retold:
            document = Document(document.id, document.text, {**document.metadata, "page": 100_000})
        after.append(document)
    names = [f"new/{number:02} \u00fc" for number in range(20)]
    return after + [Document(name, _sentence(f"of {name}", 10), _metadata(row + 1)) for row, name in enumerate(names)]
