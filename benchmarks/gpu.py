"""How fast stitches and exact search are on the processor and on a GPU, and how far their results differ.

    python benchmarks/gpu.py [--documents 1000000] [--queries 1000] [--translated 50000]

Stitches are fitted on 1,000 made pairs from 384 to 768 dimensions and translate TRANSLATED documents of about 50 words,
in the batches of `migrate.translate`: texts are read, predictions computed, nothing written. Exact search ranks
DOCUMENTS vectors of 384 dimensions for QUERIES queries, to a depth of 100. Each is done by NumPy, by torch on the
processor, which is the code of a GPU, and by torch on the first GPU, in this process, after a run that is not counted.

Printed: documents a second, and seconds of search; the largest difference of a predicted number from NumPy's, and the
share of rankings that are NumPy's own. Where there is no GPU its rows say so.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from migrate.devices import DEVICE, check_device
from migrate.errors import UsageError
from migrate.search.runs import search
from migrate.stitch.base import Pairing, Stitch
from migrate.stitch.registry import new_stitch
from migrate.stitch.text_reader import TextReader
from migrate.stores.base import BATCH_SIZE
from migrate.translate import batch_rows
from migrate.vectors import Batch, Vectors, unit_rows

DEVICES = {"NumPy": "cpu", "torch, processor": "cpu:0", "torch, GPU": "cuda"}
OLD_DIM, NEW_DIM, PAIRS, WORDS = 384, 768, 1_000, 50


@dataclass(frozen=True)
class Corpus:
    """Documents with vectors of both models, (n, 384) and (n, 768), that are related, and texts that tell a little."""

    old: Vectors
    new: Vectors
    texts: Sequence[str]

    @classmethod
    def make(cls, count: int) -> Corpus:
        """Draw documents of words with meanings."""
        rng = np.random.default_rng(0)
        vocabulary = [f"w{number}" for number in range(20_000)]
        meanings = rng.standard_normal((len(vocabulary), NEW_DIM), dtype=np.float32)
        maps = rng.standard_normal((OLD_DIM, NEW_DIM), dtype=np.float32) / np.sqrt(OLD_DIM)
        old = unit_rows(rng.standard_normal((count, OLD_DIM), dtype=np.float32))
        words = (len(vocabulary) * rng.random((count, WORDS)) ** 3).astype(np.int64)  # some words are frequent
        said = np.stack([meanings[row].mean(axis=0) for row in words])
        texts = [" ".join(vocabulary[word] for word in row) for row in words]
        return cls(old, unit_rows(old @ maps + 0.1 * said), texts)


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the wall time of a call, and what it returned."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def translate(stitch: Stitch, reader: TextReader, corpus: Corpus) -> Vectors:
    """Predict the new vector of each document, batch by batch."""
    rows, predicted = batch_rows(NEW_DIM), []
    for start in range(0, len(corpus.old), rows):
        texts = reader.read(corpus.texts[start : start + rows]) if stitch.reads_texts else None
        predicted.append(stitch.predict(corpus.old[start : start + rows], texts).vectors)
    return np.concatenate(predicted)


def batches_of(vectors: Vectors) -> Iterator[Batch]:
    """Yield vectors as a store gives them."""
    for start in range(0, len(vectors), BATCH_SIZE):
        rows = vectors[start : start + BATCH_SIZE]
        yield Batch([f"{number:08}" for number in range(start, start + len(rows))], rows)


def usable(device: str) -> bool:
    """Choose a device; return whether it is there."""
    os.environ[DEVICE] = device
    try:
        check_device()
    except UsageError:
        return False
    return True


def print_row(work: str, device: str, rate: str, against: str) -> None:
    """Print a row of the table."""
    print(f"{work:<28}  {device:<16}  {rate:>20}  {against:>24}", flush=True)


def compare_stitches(count: int) -> None:
    """Print the rows of translation."""
    os.environ[DEVICE] = "cpu"
    corpus, sample = Corpus.make(count), Corpus.make(PAIRS)
    reader = TextReader.fit(sample.texts)
    pairs = Pairing(sample.old, sample.new, reader.read(sample.texts))
    for spec in ("ridge", "kernel", "mlp:2", "ridge+text"):
        os.environ[DEVICE] = "cpu"
        stitch, by_numpy = pairs.fit(new_stitch(spec)), None
        for name, device in DEVICES.items():
            if not usable(device):
                print_row(f"translate, {spec}", name, "no GPU here", "")
                continue
            translate(stitch, reader, Corpus(corpus.old[:1_000], corpus.new[:1_000], corpus.texts[:1_000]))
            seconds, found = seconds_of(partial(translate, stitch, reader, corpus))
            by_numpy = found if by_numpy is None else by_numpy
            difference = float(np.abs(found - by_numpy).max())
            print_row(f"translate, {spec}", name, f"{count / seconds:,.0f} documents/s", f"differs by {difference:.1e}")


def compare_searches(count: int, queries: int) -> None:
    """Print the rows of search."""
    rng = np.random.default_rng(1)
    vectors, asked = (unit_rows(rng.standard_normal((rows, OLD_DIM), dtype=np.float32)) for rows in (count, queries))
    names, by_numpy = [str(number) for number in range(queries)], None
    for name, device in DEVICES.items():
        if not usable(device):
            print_row("exact search", name, "no GPU here", "")
            continue
        search(batches_of(vectors[:BATCH_SIZE]), names, asked, metric="ip")
        seconds, run = seconds_of(lambda: search(batches_of(vectors), names, asked, metric="ip"))
        by_numpy = run if by_numpy is None else by_numpy
        same = sum(run.rankings[query] == by_numpy.rankings[query] for query in names)
        print_row("exact search", name, f"{seconds:,.1f} s", f"{same:,} of {queries:,} rankings")


def main() -> None:
    """Print the table."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--translated", type=int, default=50_000)
    arguments = parser.parse_args()
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
    print(f"{os.cpu_count()} cores, {gpu}, torch {torch.__version__}")
    print_row("work", "by", "rate", "against NumPy")
    compare_stitches(arguments.translated)
    compare_searches(arguments.documents, arguments.queries)


if __name__ == "__main__":
    main()
