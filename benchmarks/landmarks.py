"""What landmarks cost: `ridge+text` on thousands of real pairs, solved exactly, and on some of them as landmarks.

    python benchmarks/landmarks.py DATA [--pairs 4000] [--landmarks 500 1000 2000]

DATA is laid out as for `retrieval.py`, whose SciFact and target space this takes. Above 8,000 pairs the tool solves on
4,000 landmarks, two pairs to a landmark where that begins; 4,000 pairs with 2,000 landmarks is that ratio at a size
that can be solved exactly too.

Weights and penalty are chosen once, on 1,000 of the pairs, and are the same in every row. Printed are seconds of
processor time of the fit, without that choice; on the collection without the pairs' documents, retention of nDCG@10
over the queries with a relevant document left, and overlap@10 with the full re-embed over all queries; and what that
overlap loses against the exact solution, with 95 % bounds by the differences of the queries.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from retrieval import TARGET, TARGET_MODEL, Collection, HeldOut, load_space, read_texts, run_over

from migrate.audit.measures import ndcg, overlap
from migrate.datasets.beir import load_beir
from migrate.embedders import load_embedder
from migrate.report.terminal import table
from migrate.stitch.base import Stitch
from migrate.stitch.kernel_ridge import RidgeText
from migrate.stitch.view_weights import SEARCH_SIZE
from migrate.vectors import unit_rows

SET = "scifact"
SPACES = ("wordpieces", "layer4-mean")
HEAD = ["source", "solved", "CPU s", "retention", "overlap@10", "loss", "95 % bounds"]
_Z = 1.96


@dataclass(frozen=True, eq=False)
class Solved:
    """One way of solving: its name, processor seconds of the fit, retention, and overlap@10 query by query."""

    name: str
    cpu_s: float
    retention: float
    shares: NDArray[np.float64]


def held_out_spaces(data: Path, spaces: Sequence[str], pairs: int) -> Iterator[tuple[str, HeldOut]]:
    """SciFact from each source space, without so many documents to fit on."""
    found = load_beir(data / SET)
    collection = Collection(found, tuple(found.documents()))
    target = load_space(data, SET, TARGET, collection)
    texts = read_texts(collection, load_embedder(TARGET_MODEL).token_table())
    for space in spaces:
        yield space, HeldOut(collection, load_space(data, SET, space, collection), target, texts, pairs, seed=0)


def solve(held_out: HeldOut, landmarks: Sequence[int]) -> Iterator[Solved]:
    """The exact solution, and one for each number of landmarks, all with the weights of one choice."""
    some = np.sort(np.random.default_rng(0).permutation(held_out.pairs)[:SEARCH_SIZE])
    chosen = held_out.pairing.take(some)
    weighing = RidgeText().tuned(chosen.source, chosen.target, chosen.texts).weighing
    yield timed(f"exact, {held_out.pairs:,} pairs", RidgeText(weighing), held_out)
    for count in landmarks:
        yield timed(
            f"{count:,} landmarks, {held_out.pairs / count:.0f}:1", RidgeText(weighing, landmarks=count), held_out
        )


def timed(name: str, stitch: Stitch, held_out: HeldOut) -> Solved:
    """Fit on pairs that nobody has looked at, so that none finds the Gram matrices of another, and judge."""
    pairs = held_out.pairing.take(np.arange(held_out.pairs))
    started = time.process_time()
    fitted = pairs.fit(stitch)
    seconds = time.process_time() - started
    print(f"  {name}: {seconds:.0f} s", file=sys.stderr, flush=True)
    return Solved(name, seconds, *judge(fitted, held_out))


def judge(fitted: Stitch, held_out: HeldOut) -> tuple[float, NDArray[np.float64]]:
    """Retention, and overlap@10 with the full re-embed of each query, over the documents that were not fitted on."""
    rest, asked = held_out.rows[1], held_out.asked
    found = fitted.transform(held_out.source.documents[rest], held_out.texts.take(rest))
    run = run_over(held_out.collection, rest, unit_rows(found), held_out.target.queries)
    scores, standard = (ndcg(one, held_out.qrels, asked, 10).mean() for one in (run, held_out.full))
    return float(scores / standard), overlap(run, held_out.full, held_out.collection.query_ids, 10)


def row(space: str, one: Solved, exact: Solved) -> list[str]:
    """One line of the table."""
    loss = exact.shares - one.shares
    error = _Z * float(loss.std(ddof=1)) / len(loss) ** 0.5
    bounds = "" if one is exact else f"{loss.mean() - error:+.4f}..{loss.mean() + error:+.4f}"
    shown = "" if one is exact else f"{loss.mean():+.4f}"
    return [space, one.name, f"{one.cpu_s:.1f}", f"{one.retention:.3f}", f"{one.shares.mean():.4f}", shown, bounds]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=4_000)
    parser.add_argument("--landmarks", type=int, nargs="+", default=[500, 1_000, 2_000])
    parser.add_argument("--spaces", nargs="+", default=list(SPACES))
    arguments = parser.parse_args()
    started, rows, asked = time.perf_counter(), [], ""
    for space, held_out in held_out_spaces(arguments.data, arguments.spaces, arguments.pairs):
        found = list(solve(held_out, arguments.landmarks))
        rows += [row(space, one, found[0]) for one in found]
        asked = f"{len(held_out.rows[1]):,} documents held out, {len(found[0].shares)} queries, {len(held_out.asked)}"
    print(table([HEAD, *rows]))
    print(f"\n{asked} of them with a relevant document left; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
