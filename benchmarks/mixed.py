"""Which documents `check --rows` names of a store in which some have other vectors, and whether they can be mended.

    python benchmarks/mixed.py [--docs 1000] [--others 100]

A store of docstrings has vectors of all-MiniLM-L6-v2 (those that come with the package), and in some rows others:

other model      all-mpnet-base-v2, of which the first 384 dimensions are taken
other layer      layer 4 of all-MiniLM-L6-v2
other pooling    the first token's vector of the same model
prefix           the same model, with `passage: ` before each text
text changed     the same model, of the text without its last quarter
rounded          the model's own vector in half precision: nothing to mend

named are the documents in the file, true those of them that were replaced, false all others, missed those that were
replaced and are not named. `reembed --rows` mends the store, and a second check of every document looks for more.

Exits with 1 where a document is named that was not replaced, or one stays.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import migrate
from migrate.check.rows import read_rows
from migrate.datasets.stdlib import LARGE, SMALL, stdlib_beir, vectors_of
from migrate.embedders import load_embedder
from migrate.report.terminal import table
from migrate.stores import create_store
from migrate.vectors import Document, Vectors, unit_rows

MODEL = "packaged:all-MiniLM-L6-v2"
ROUNDED = "rounded"


def own_vectors(model: str, documents: Sequence[Document]) -> Vectors:
    """Return the vectors of documents that come with the package."""
    with np.load(vectors_of(model)) as arrays:
        row_of = {name: row for row, name in enumerate(arrays["doc_ids"].tolist())}
        return unit_rows(arrays["docs"][[row_of[document.id] for document in documents]].astype(np.float32))


def other_vectors(documents: Sequence[Document]) -> Iterator[tuple[str, Vectors]]:
    """Yield each way in which documents may have other vectors, with these."""
    yield "other model", unit_rows(own_vectors(LARGE, documents)[:, :384].copy())
    yield "other layer", load_embedder(f"layer:4:{MODEL}").embed_documents(documents)
    yield "other pooling", load_embedder(f"layer:6:cls:{MODEL}").embed_documents(documents)
    yield "prefix", load_embedder(f"{MODEL},document-prefix=passage: ").embed_documents(documents)
    changed = [replace(document, text=document.text[: len(document.text) * 3 // 4]) for document in documents]
    yield "text changed", load_embedder(MODEL).embed_documents(changed)
    yield ROUNDED, own_vectors(SMALL, documents).astype(np.float16).astype(np.float32)


def measure(name: str, documents: Sequence[Document], vectors: Vectors, replaced: set[int]) -> tuple[list[str], bool]:
    """Check and mend a store in the current folder; return a line of the table, and whether nothing went wrong."""
    folder = Path(name.replace(" ", "-"))
    folder.mkdir()
    writer = create_store(folder, format="faiss", dim=vectors.shape[1])
    writer.append(documents, vectors)
    writer.finish()
    migrate.check(folder, "file:minilm.npz", rows="rows.jsonl", force=True)
    named = set(read_rows(Path("rows.jsonl")).rows.tolist())
    left = 0
    if named:
        migrate.reembed(folder, None, f"{folder}-mended", rows="rows.jsonl")
        migrate.check(f"{folder}-mended", "file:minilm.npz", rows="left.jsonl", force=True)
        left = len(read_rows(Path("left.jsonl")).rows)
    counts = (len(replaced), len(named), len(named & replaced), len(named - replaced), len(replaced - named), left)
    is_right = not named - replaced and not left and (name == ROUNDED or named == replaced)
    return [name, *map(str, counts)], is_right


def main() -> int:
    """Print a line for each way, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=int, default=1_000)
    parser.add_argument("--others", type=int, default=100)
    options = parser.parse_args()
    documents = stdlib_beir(max_docs=options.docs, with_vectors=True).documents
    own = own_vectors(SMALL, documents)
    rows = np.sort(np.random.default_rng(0).choice(len(documents), options.others, replace=False))
    lines = [["vectors of", "replaced", "named", "true", "false", "missed", "left"]]
    verdicts = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        shutil.copy(vectors_of(SMALL), "minilm.npz")
        for name, others in other_vectors([documents[row] for row in rows]):
            vectors = own.copy()
            vectors[rows] = others
            line, is_right = measure(name, documents, vectors, set(rows.tolist()))
            lines.append(line)
            verdicts.append(is_right)
        os.chdir("/")
    print(table(lines))
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
