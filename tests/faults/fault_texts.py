"""Spoils vectors, documents, queries and judgements."""

import json
import shutil

import numpy as np
from fault_index import DIM, HEADER_BYTES, ROW_BYTES, ROWS, content, forget_checksum, forget_texts
from fault_place import spoiler


def put_bytes(place, start, values):
    """Write vectors into the index from a byte on, which has no checksum then."""
    raw = content(place)
    written = np.asarray(values, "<f4").tobytes()
    raw[start : start + len(written)] = written
    place.index.write_bytes(raw)
    forget_checksum(place)


@spoiler
def put_row(place, row, value):
    put_bytes(place, HEADER_BYTES + row * ROW_BYTES, [value] * DIM)


@spoiler
def put_rows(place, vectors):
    put_bytes(place, HEADER_BYTES, vectors)


EQUAL = np.ones((ROWS, DIM))
CONSTANT_COLUMN = np.random.default_rng(3).normal(size=(ROWS, DIM))
CONSTANT_COLUMN[:, 4] = 0.25


def lines(place):
    return place.docs.read_text().splitlines()


@spoiler
def edit_documents(place, numbers, **changes):
    found = lines(place)
    for number in numbers:
        found[number] = json.dumps({**json.loads(found[number]), **changes})
    place.docs.write_text("\n".join(found))
    forget_texts(place)


def marked_and_broken_by_dos(place):
    forget_texts(place)
    for path in (place.docs, place / "beir/queries.jsonl", place / "beir/qrels/test.tsv", place / "beir/corpus.jsonl"):
        blank = path.read_bytes().replace(b"\n", b"\r\n\r\n", 1)
        path.write_bytes(b"\xef\xbb\xbf" + blank.replace(b"\n", b"\r\n").replace(b"\r\r", b"\r"))


def drifted(place):
    documents = [json.loads(line) for line in lines(place)]
    texts = [document["text"] for document in documents]
    moved = zip(documents, texts[-1:] + texts[:-1], strict=True)
    place.docs.write_text("\n".join(json.dumps({**document, "text": text}) for document, text in moved))
    forget_texts(place)


def reworded(place):
    """One text is another; the vectors and all hashes are as they were."""
    found = lines(place)
    found[7] = json.dumps({**json.loads(found[7]), "text": "something else altogether"})
    place.docs.write_text("\n".join(found))


@spoiler
def add_qrels(place, line):
    """Add a judgement, in which `{}` is the id of the first query."""
    path = place / "beir/qrels/test.tsv"
    first = json.loads((place / "beir/queries.jsonl").read_text().splitlines()[0])["_id"]
    path.write_text(path.read_text() + line.format(first))


@spoiler
def keep_judgements(place, count):
    path = place / "beir/qrels/test.tsv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[: count + 1]))


def first_judgement_irrelevant(place):
    path = place / "beir/qrels/test.tsv"
    head, first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([head, first.rsplit("\t", 1)[0] + "\t0", *rest]) + "\n")


def small_corpus(place):
    """A store of 30 documents: fewer than are ranked."""
    corpus = place / "beir/corpus.jsonl"
    corpus.write_text("\n".join(corpus.read_text().splitlines()[:30]))
    shutil.rmtree(place / "store")
    place.make("embed", "beir", "--model", "tfidf:8", "--no-chunks", "-o", "store", "-q")
    shutil.rmtree(place / "right")
    shutil.copytree(place / "store", place / "right")
    (place / "right/lead-migrate.json").unlink()


def one_document(place):
    shutil.rmtree(place / "store")
    (place / "one.jsonl").write_text('{"id": "a", "text": "green tea"}')
    place.make("embed", "one.jsonl", "--model", "tfidf:1", "-o", "store", "-q")


@spoiler
def labels(place, label):
    """`labels.tsv` with a label for each document of the store, in which `{}` is its row."""
    ids = [json.loads(line)["id"] for line in lines(place)]
    (place / "labels.tsv").write_text("".join(f"{doc_id}\t{label.format(row)}\n" for row, doc_id in enumerate(ids)))
