"""Spoils vectors, documents, queries and judgements."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import numpy as np
from fault_index import DIM, HEADER_BYTES, ROW_BYTES, ROWS, content, forget_checksum, forget_texts, then
from fault_place import Place, Spoiler
from fault_stores import write


def put_row(row: int, values: object, of: int = DIM) -> Spoiler:
    """Write a vector into the index, which has no checksum then."""

    def spoil(place: Place) -> None:
        raw = content(place)
        start = HEADER_BYTES + row * ROW_BYTES
        raw[start : start + ROW_BYTES] = np.broadcast_to(np.asarray(values, np.float64), of).astype("<f4").tobytes()
        place.index.write_bytes(raw)
        forget_checksum(place)

    return spoil


def put_rows(make: Callable[[int], np.ndarray]) -> Spoiler:
    """Replace all vectors."""

    def spoil(place: Place) -> None:
        raw = content(place)
        raw[HEADER_BYTES:] = np.asarray(make(ROWS), "<f4").reshape(ROWS, DIM).tobytes()
        place.index.write_bytes(raw)
        forget_checksum(place)

    return spoil


def lines(place: Place) -> list[str]:
    return place.docs.read_text().splitlines()


def edit_lines(change: Callable[[list[str]], list[str]]) -> Spoiler:
    """Change the lines of docs.jsonl, of which there is no hash then."""

    def spoil(place: Place) -> None:
        place.docs.write_text("\n".join(change(lines(place))))
        forget_texts(place)

    return spoil


def edit_document(number: int, **changes: object) -> Spoiler:
    """Change fields of a document."""

    def change(found: list[str]) -> list[str]:
        found[number] = json.dumps({**json.loads(found[number]), **changes})
        return found

    return edit_lines(change)


def raw_line(number: int, line: bytes) -> Spoiler:
    """Replace a line by any bytes."""

    def spoil(place: Place) -> None:
        forget_texts(place)
        found = place.docs.read_bytes().split(b"\n")
        found[number] = line
        place.docs.write_bytes(b"\n".join(found))

    return spoil


def marked_and_broken_by_dos(place: Place) -> None:
    forget_texts(place)
    for path in (place.docs, place / "beir/queries.jsonl", place / "beir/qrels/test.tsv", place / "beir/corpus.jsonl"):
        blank = path.read_bytes().replace(b"\n", b"\r\n\r\n", 1)
        path.write_bytes(b"\xef\xbb\xbf" + blank.replace(b"\n", b"\r\n").replace(b"\r\r", b"\r"))


def blank_texts(*numbers: int) -> Spoiler:
    return then(*(edit_document(number, text=" ") for number in numbers))


def drifted(place: Place) -> None:
    """The documents stand one line lower than their vectors."""
    documents = [json.loads(line) for line in lines(place)]
    texts = [document["text"] for document in documents]
    moved = zip(documents, texts[-1:] + texts[:-1], strict=True)
    place.docs.write_text("\n".join(json.dumps({**document, "text": text}) for document, text in moved))
    forget_texts(place)


def reworded(place: Place) -> None:
    """One text is another; the vectors and all hashes are as they were."""
    found = lines(place)
    found[7] = json.dumps({**json.loads(found[7]), "text": "something else altogether"})
    place.docs.write_text("\n".join(found))


HEADER = "query-id\tcorpus-id\tscore\n"


def qrels(text: str) -> Spoiler:
    return write("beir/qrels/test.tsv", text.encode())


def add_qrels(make: Callable[[str], str]) -> Spoiler:
    """Add judgements, made from the id of the first query."""

    def spoil(place: Place) -> None:
        path = place / "beir/qrels/test.tsv"
        first = json.loads((place / "beir/queries.jsonl").read_text().splitlines()[0])["_id"]
        path.write_text(path.read_text() + make(first))

    return spoil


def keep_judgements(count: int) -> Spoiler:
    def spoil(place: Place) -> None:
        path = place / "beir/qrels/test.tsv"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[: count + 1]))

    return spoil


def all_irrelevant_but_one(place: Place) -> None:
    path = place / "beir/qrels/test.tsv"
    head, first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([head, *(line.rsplit("\t", 1)[0] + "\t0" for line in [first]), *rest]) + "\n")


def small_corpus(place: Place) -> None:
    """A store of 30 documents: fewer than are ranked."""
    corpus = place / "beir/corpus.jsonl"
    corpus.write_text("\n".join(corpus.read_text().splitlines()[:30]))
    shutil.rmtree(place / "store")
    made = place.run(("embed", "beir", "--model", "tfidf:8", "--no-chunks", "-o", "store", "-q"))
    assert made.code == 0, made
    shutil.rmtree(place / "right")
    shutil.copytree(place / "store", place / "right")
    (place / "right/lead-migrate.json").unlink()


def one_document(place: Place) -> None:
    shutil.rmtree(place / "store")
    (place / "one.jsonl").write_text('{"id": "a", "text": "green tea"}')
    made = place.run(("embed", "one.jsonl", "--model", "tfidf:1", "-o", "store", "-q"))
    assert made.code == 0, made


def constant_column(count: int) -> np.ndarray:
    rows = np.random.default_rng(3).normal(size=(count, DIM))
    rows[:, 4] = 0.25
    return rows


def other_vectors(place: Place) -> None:
    """The index was made anew by something that knows no manifest."""
    raw = content(place)
    raw[HEADER_BYTES:] = constant_column(ROWS).astype("<f4").tobytes()
    place.index.write_bytes(raw)


def labels(of_row: Callable[[int], str]) -> Spoiler:
    """`labels.tsv` with a label for each document of the store."""

    def spoil(place: Place) -> None:
        ids = [json.loads(line)["id"] for line in place.docs.read_text().splitlines()]
        (place / "labels.tsv").write_text("".join(f"{doc_id}\t{of_row(row)}\n" for row, doc_id in enumerate(ids)))

    return spoil
