"""How fast texts are read: a text-aware translation beside the model that it spares, and a fit on 4,000 pairs.

    python benchmarks/text_speed.py DATA [--documents 200000]

DATA holds `scifact/` in BEIR layout and `pairs/scifact.SPACE.npz`. The store is made of 200,000 documents of about
200 words, put together from SciFact's sentences, with vectors of `layer4-mean` that belong to other documents, which
costs the same. Printed: seconds of `fit` on 4,000 real pairs, with the token embeddings of all-MiniLM-L6-v2; documents
a second of `migrate.translate`, to disk, in a process of its own, with its peak memory; documents a second of
all-MiniLM-L6-v2 on some of the same texts, on the same cores, before and after; and the ratio of the rates, by the
clock and by processor time, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from migrate.datasets.beir import load_beir
from migrate.embedders import load_embedder
from migrate.embedders.abilities import token_table_of
from migrate.embedders.base import Embedder
from migrate.stitch.persistence import load_stitch
from migrate.vectors import Document

SPACE, TARGET, MODEL = "layer4-mean", "minilm", "packaged:all-MiniLM-L6-v2"
PAIRS, EMBEDDED, WORDS = 4_000, 128, 200
PART = 8_192


def sentences(documents: Sequence[Document]) -> list[str]:
    """The sentences of a corpus."""
    return [part for document in documents for part in re.split(r"(?<=[.?!])\s+", document.text) if part]


def make_texts(parts: Sequence[str], count: int) -> Iterator[str]:
    """Documents of about `WORDS` words: sentences drawn at random until they are enough."""
    rng = np.random.default_rng(0)
    lengths = [len(part.split()) for part in parts]
    for _ in range(count):
        words, chosen = 0, []
        while words < WORDS - 10:
            number = int(rng.integers(len(parts)))
            chosen.append(parts[number])
            words += lengths[number]
        yield " ".join(chosen)


def write_store(folder: Path, texts: Sequence[str], vectors: np.ndarray) -> None:
    """A flat index with a `docs.jsonl` beside it."""
    import faiss

    folder.mkdir()
    index = faiss.IndexFlatIP(vectors.shape[1])
    with (folder / "docs.jsonl").open("w") as file:
        for start in range(0, len(texts), PART):
            part = texts[start : start + PART]
            index.add(vectors[np.arange(start, start + len(part)) % len(vectors)])
            file.writelines(json.dumps({"id": str(start + row), "text": text}) + "\n" for row, text in enumerate(part))
    faiss.write_index(index, str(folder / "index.faiss"))


def fit(data: Path, store: Path, stitch: Path, documents: Sequence[Document], model: Embedder) -> float:
    """Fit `auto` on real pairs, save it for the store, and return the seconds that the fit took."""
    from migrate.manifest import Manifest
    from migrate.selection import Pairs
    from migrate.steps.fit.job import fit_pairs
    from migrate.stitch.text_reader import TextReader
    from migrate.stores import open_store

    some = documents[:PAIRS]
    old, new = (
        load_embedder(f"file:{data / 'pairs' / f'scifact.{s}.npz'}").embed_documents(some) for s in (SPACE, TARGET)
    )
    texts = [document.text for document in some]
    opened = open_store(store)
    details = {"fingerprint": opened.snapshot().fingerprint}
    started = time.perf_counter()
    reader = TextReader.fit([document.text for document in documents], token_table_of(model))
    manifest = Manifest(kind="stitch", model=model.identity, details=details)
    ids = tuple(f"pair-{document.id}" for document in some)
    fitted = fit_pairs(Pairs(ids, old, new), (), manifest=manifest, state={}, seed=0, texts=texts, reader=reader)
    seconds = time.perf_counter() - started
    print(f"chosen: {fitted.stitch.spec}, overlap@10 {fitted.selection.best.scores.overlap_at_10:.3f}")
    fitted.save(stitch)
    return seconds


def cpu_seconds() -> float:
    """Processor seconds of this process and its children so far."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def embed_rate(model: Embedder, texts: Sequence[str]) -> tuple[float, float]:
    """Documents a second of the model itself, and a processor second."""
    documents = [Document(str(row), text) for row, text in enumerate(texts)]
    started, cpu = time.perf_counter(), cpu_seconds()
    model.embed_documents(documents)
    return len(documents) / (time.perf_counter() - started), len(documents) / (cpu_seconds() - cpu)


def inside(store: Path, stitch: Path, output: Path) -> None:
    """Translate in a process of its own; prints documents a second, a processor second, and the peak memory."""
    import migrate
    from migrate.stores import open_store

    opened, fitted, cpu = open_store(store), load_stitch(stitch), cpu_seconds()
    done = migrate.translate(opened, fitted, output)
    cpu_rate = done.count / (cpu_seconds() - cpu)
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps({"rate": done.vectors_per_s, "cpu_rate": cpu_rate, "peak_mb": peak}))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--inside", nargs=3, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(*arguments.inside)
        return
    model = load_embedder(MODEL)
    documents = list(load_beir(arguments.data / "scifact").documents())
    texts = list(make_texts(sentences(documents), arguments.documents))
    vectors = load_embedder(f"file:{arguments.data / 'pairs' / f'scifact.{SPACE}.npz'}").embed_documents(documents)
    with tempfile.TemporaryDirectory() as aside:
        store, stitch, output = (Path(aside) / name for name in ("store", "stitch", "new"))
        write_store(store, texts, vectors)
        seconds = fit(arguments.data, store, stitch, documents, model)
        before = embed_rate(model, texts[:EMBEDDED])
        command = [sys.executable, __file__, str(arguments.data), "--inside", str(store), str(stitch), str(output)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        facts = json.loads(done.stdout)
        after = embed_rate(model, texts[:EMBEDDED])
    median = statistics.median(len(text.split()) for text in texts)
    print(f"fit on {PAIRS:,} pairs: {seconds:.0f} s")
    print(f"{len(texts):,} documents, median {median:.0f} words; peak memory {facts['peak_mb']:.0f} MB")
    print(
        f"translate: {facts['rate']:,.0f} documents/s; all-MiniLM-L6-v2: {before[0]:.1f} before, {after[0]:.1f} after"
    )
    by_clock, by_cpu = facts["rate"] / max(before[0], after[0]), facts["cpu_rate"] / max(before[1], after[1])
    print(f"rate ratio translate / model: {by_clock:.0f}; by processor time {by_cpu:.0f}")


if __name__ == "__main__":
    main()
