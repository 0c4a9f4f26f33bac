"""What a fit costs: processor seconds of `auto` on 1,000 pairs, with one thread and with two.

    python benchmarks/fit_cost.py DATA [--spaces layer4-mean wordpieces mpnet] [--pairs 1000] [--threads 1 2]

DATA holds `scifact/` in BEIR layout and `pairs/scifact.SPACE.npz`; the target is `minilm`, with the token embeddings of
all-MiniLM-L6-v2. Each fit is in a process of its own. Counted is the processor time of that process and of its
children, from the texts and vectors in memory to the fitted stitch, fallback included: reading the texts, judging the
candidates and fitting the chosen one. Embedding and loading the model are not. The processor time of other work on the
same cores raises the figures a little, so the load of the machine is printed with them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SETUP, TARGET, MODEL = "scifact", "minilm", "packaged:all-MiniLM-L6-v2"


def cpu_seconds() -> float:
    """Processor seconds of this process and its children so far."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def inside(data: Path, space: str, pairs: int) -> None:
    """Fit in this process, and print what it cost."""
    from migrate.datasets.beir import load_beir
    from migrate.embedders import load_embedder
    from migrate.manifest import Manifest
    from migrate.selection import Pairs
    from migrate.steps.fit.job import fit_pairs
    from migrate.stitch.text_reader import TextReader
    from migrate.threads import threads_for

    model = load_embedder(MODEL)
    documents = list(load_beir(data / SETUP).documents())
    rows = np.sort(np.random.default_rng(0).permutation(len(documents))[:pairs])
    some = [documents[row] for row in rows]
    files = (f"file:{data / 'pairs' / f'{SETUP}.{name}.npz'}" for name in (space, TARGET))
    old, new = (load_embedder(file).embed_documents(some) for file in files)
    table = model.token_table()
    started, cpu = time.perf_counter(), cpu_seconds()
    with threads_for(pairs):
        reader = TextReader.fit([document.text for document in documents], table)
    fitted = fit_pairs(
        Pairs(tuple(document.id for document in some), old, new),
        (),
        manifest=Manifest(kind="stitch", model=model.identity),
        state={},
        seed=0,
        texts=[document.text for document in some],
        reader=reader,
    )
    facts = {"cpu": cpu_seconds() - cpu, "wall": time.perf_counter() - started}
    overlap = fitted.selection.best.scores.overlap_at_10
    print(json.dumps({**facts, "chosen": fitted.stitch.spec, "overlap": overlap, "digest": fitted.digest()[:12]}))


def main() -> None:
    """Print a line a fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--spaces", nargs="+", default=["layer4-mean", "wordpieces", "mpnet"])
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.data, arguments.inside, arguments.pairs)
        return
    for space in arguments.spaces:
        for threads in arguments.threads:
            command = [sys.executable, __file__, str(arguments.data), "--inside", space]
            environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
            command += ["--pairs", str(arguments.pairs)]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            facts = json.loads(done.stdout)
            print(
                f"{space}, {threads} threads: {facts['cpu']:.1f} processor seconds, {facts['wall']:.1f} s; "
                f"{facts['chosen']}, overlap@10 {facts['overlap']:.3f}, digest {facts['digest']}; "
                f"load {os.getloadavg()[0]:.1f}"
            )


if __name__ == "__main__":
    main()
