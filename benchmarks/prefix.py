"""Documents by their first tokens, embedded by the target model: the simplest rival of a translation.

    python benchmarks/prefix.py DATA --cache FOLDER

DATA is that of `benchmarks/retrieval.py`; queries and whole documents are those of `pairs/SET.minilm.npz`. Documents
are cut to their first 16, 24 and 64 tokens and embedded by all-MiniLM-L6-v2; the same is done with the second half of
each, which has no head that says what the text is about. Printed are the tokens, special ones included, as a share of
those that the model reads of whole documents, and retention of nDCG@10 with 95 % bounds for each row alone. What is
embedded is kept in FOLDER.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from retrieval import SETS, TARGET, TARGET_MODEL, Collection, load_space, run_over

from migrate.audit.measures import Scores, ndcg
from migrate.audit.verdict import retention_bounds
from migrate.cost import tally_of
from migrate.datasets.beir import load_beir
from migrate.embedders import load_embedder
from migrate.embedders.prefix import first_of
from migrate.report.terminal import table
from migrate.vectors import Document, Vectors

LENGTHS = (16, 24, 64)
HALF_LENGTHS = (24, 64)
_WORD = re.compile(r"\S+")


def second_half(document: Document) -> Document:
    """The document from the word in its middle on."""
    starts = [word.start() for word in _WORD.finditer(document.text)]
    return replace(document, text=document.text[starts[len(starts) // 2] :])


def scores_of(collection: Collection, vectors: Vectors, queries: Vectors) -> Scores:
    """The nDCG@10 of each judged query."""
    asked = [query_id for query_id in collection.query_ids if any(collection.qrels[query_id].values())]
    run = run_over(collection, np.arange(len(vectors)), vectors, queries)
    return ndcg(run, collection.qrels, asked, 10)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER")
    arguments = parser.parse_args()
    started = time.perf_counter()
    embedder = load_embedder(TARGET_MODEL, device="cpu", cache=arguments.cache / "embeddings.sqlite")
    counter, tally = embedder.profile.counter, tally_of(embedder)
    rows = []
    for name in SETS:
        data = load_beir(arguments.data / name)
        collection = Collection(data, tuple(data.documents()))
        target = load_space(arguments.data, name, TARGET, collection)
        full, whole = scores_of(collection, target.documents, target.queries), tally.cost(collection.documents).tokens
        halves = [second_half(document) for document in collection.documents]
        parts: list[tuple[str, Sequence[Document]]] = [
            *((f"first {n} tokens", list(first_of(collection.documents, counter, n))) for n in LENGTHS),
            *((f"second half, first {n} tokens", list(first_of(halves, counter, n))) for n in HALF_LENGTHS),
        ]
        for part, documents in parts:
            scores = scores_of(collection, embedder.embed_documents(documents), target.queries)
            bounds = retention_bounds(scores, full, seed=0)
            share = tally.cost(documents).tokens / whole
            cells = f"{share:.1%}", f"{bounds.estimate:.3f}", f"{bounds.lower:.3f}..{bounds.upper:.3f}"
            rows.append([f"{name}, {part}", *cells])
    print(table([["set and part", "tokens", "retention", "bounds"], *rows]))
    print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
