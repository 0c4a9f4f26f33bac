"""How much of its documents all-MiniLM-L6-v2 never reads: whole, in chunks of 256 words, and in chunks by its tokens.

    python benchmarks/chunks.py DATA [--documents 1500]

DATA holds `scifact/` in BEIR layout. Printed: chunks, those with more than the 256 tokens that the model reads, the
share of all tokens that is never read, and documents cut in a second of processor time. Words are words and punctuation
marks, which is what a counter sees that knows no model.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from migrate.cost.unread import count_unread
from migrate.datasets.beir import load_beir
from migrate.embedders import load_embedder
from migrate.embedders.profile import Profile
from migrate.embedders.tokens import Counts
from migrate.lab.embed.chunking import chunk_documents
from migrate.lab.embed.sizes import chunk_size, cut_documents
from migrate.vectors import Document

MODEL = "packaged:all-MiniLM-L6-v2"
CHUNK_WORDS, SHARED_WORDS = 256, 25

Cut = Callable[[Iterable[Document]], Iterator[Document]]


def count_words(texts: Sequence[str]) -> Counts:
    """Words and punctuation marks of each text."""
    return np.array([len(re.findall(r"\w+|[^\w\s]", text)) for text in texts], dtype=np.int64)


def line(name: str, documents: Sequence[Document], cut: Cut, target: Profile) -> str:
    """One line of the table."""
    started = time.process_time()
    chunks = list(cut(documents))
    seconds = time.process_time() - started
    unread = count_unread(chunks, target)
    if unread is None:
        raise SystemExit(f"{MODEL} has no limit")
    over, rate = unread.over / unread.texts, len(documents) / seconds
    return f"{name:22}{unread.texts:8,}{over:12.1%}{unread.share:12.1%}{rate:13,.0f}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--documents", type=int, default=1_500)
    arguments = parser.parse_args()
    documents = list(islice(load_beir(arguments.data / "scifact").documents(), arguments.documents))
    target = load_embedder(MODEL).profile
    size = chunk_size(target)
    words = partial(chunk_documents, chunk_tokens=CHUNK_WORDS, chunk_overlap=SHARED_WORDS, count_tokens=count_words)
    print(f"{'':22}{'chunks':>8}{'over limit':>12}{'never read':>12}{'documents/s':>13}")
    print(line("whole", documents, iter, target)[:-13])
    print(line(f"{CHUNK_WORDS} words", documents, words, target))
    print(line(f"{size.tokens} tokens of its own", documents, partial(cut_documents, target=target, size=size), target))
    print(f"{len(documents):,} abstracts of SciFact")


if __name__ == "__main__":
    main()
