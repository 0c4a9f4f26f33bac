"""How alike six spaces of one collection are, and translations to the true vectors: `lead-migrate compare` on SciFact.

    python benchmarks/spaces.py DATA [--html FILE] [--sample 10000] [--pairs 1000] [--seed 0]

DATA holds `scifact/` in BEIR layout and `pairs/scifact.SPACE.npz` with `doc_ids`, `docs`, `query_ids` and `queries`.
The stores are built from these files and, for `tfidf`, from the texts; the first is `minilm` (all-MiniLM-L6-v2).

Printed first is what `lead-migrate compare` prints of the six. Then three of them are translated to minilm by a ridge
fitted on some pairs, and compared with the true vectors, with `--labels`: how an abstract begins, with a heading such
as BACKGROUND or OBJECTIVE, or without one. At last the time that one pair takes, and whether the layers are in order:
the nearer a layer is to the last one, the more alike are the spaces by CKA, cosines of pairs, R² and stitching penalty,
and TF-IDF is less alike than the two nearest layers. Exits with 1 where they are not. Neighbours shared without a
stitch are no such judge: the cosines of a middle layer are dominated by what all its vectors have in common, and TF-IDF
shares more of them.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import migrate
from migrate.cli.main import run
from migrate.datasets.beir import load_beir
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.lab.similarity import compare_spaces
from migrate.stores import open_store
from migrate.stores.base import read_all

SPACES = ("minilm", "layer5-mean", "layer4-mean", "layer3-cls", "wordpieces", "tfidf")
TRANSLATED = ("layer5-mean", "layer4-mean", "wordpieces")
TFIDF = "tfidf:256"
ORDER = ("layer5-mean", "layer4-mean", "tfidf")
JUDGES = {"cka": 1, "relative_orientation": 1, "r2": 1, "penalty": -1}
_HEADING = re.compile(r"[A-Z]{5,}")


def spec_of(data: Path, space: str) -> str:
    """The model of a space."""
    return TFIDF if space == "tfidf" else f"file:{data / 'pairs' / f'scifact.{space}.npz'}"


def build_stores(data: Path, folder: Path) -> list[Path]:
    """A store for each space."""
    documents = load_beir(data / "scifact").documents
    for space in SPACES:
        embed_corpus(documents, load_embedder(spec_of(data, space)), folder / space)
    return [folder / space for space in SPACES]


def translate_stores(data: Path, folder: Path, *, pairs: int, seed: int) -> list[Path]:
    """The three translations to the first space."""
    target = load_embedder(spec_of(data, SPACES[0]))
    paths = [folder / f"translated-{space}" for space in TRANSLATED]
    for space, path in zip(TRANSLATED, paths, strict=True):
        store = open_store(folder / space)
        migrate.translate(store, migrate.fit(store, target, sample=pairs, kind="ridge", seed=seed), path)
    return paths


def write_labels(data: Path, path: Path) -> Path:
    """Whether each abstract begins with a heading."""
    with path.open("w", encoding="utf-8") as file:
        for line in (data / "scifact" / "corpus.jsonl").read_text(encoding="utf-8").split("\n"):
            record = json.loads(line) if line else {}
            label = "heading" if _HEADING.match(record.get("text", "")) else "none"
            file.write(json.dumps({"id": record["_id"], "label": label}) + "\n" if record else "")
    return path


def compare(stores: Sequence[Path], *options: object) -> None:
    """Run the command as a user does."""
    started = time.perf_counter()
    code = run(["compare", *map(str, stores), *map(str, options)])
    print(f"\n{time.perf_counter() - started:.0f} s\n", flush=True)
    if code:
        sys.exit(code)


def judge(table: Path) -> int:
    """Say by each of `JUDGES` whether `ORDER` is the order of likeness to the first space; 1 where it is not."""
    with table.open(encoding="utf-8", newline="") as file:
        found = {(row["measure"], row["from"], row["to"]): float(row["value"]) for row in csv.DictReader(file)}
    wrong = 0
    for measure, sign in JUDGES.items():
        values = [found[measure, space, SPACES[0]] for space in ORDER]
        fine = values == sorted(values, reverse=sign > 0)
        wrong += not fine
        listed = f" {'>' if sign > 0 else '<'} ".join(
            f"{space} {value:.3f}" for space, value in zip(ORDER, values, strict=True)
        )
        print(f"{measure} to {SPACES[0]}: {listed}{'' if fine else ' - NOT in order'}")
    return 1 if wrong else 0


def time_one_pair(stores: Sequence[Path]) -> None:
    """Print how long the library takes to compare two spaces of all documents."""
    a, b = (read_all(open_store(path).scan()).vectors for path in stores[:2])
    started, worked = time.perf_counter(), time.process_time()
    compare_spaces(a, b)
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - worked
    print(f"compare_spaces, {a.shape[0]:,} x {a.shape[1]} twice: {wall_s:.1f} s ({cpu_s:.1f} s of one processor)\n")


def main() -> int:
    """Print everything; 1 where the spaces are not in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--html", type=Path)
    parser.add_argument("--sample", type=int, default=10_000)
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    options = ["--sample", arguments.sample, "--seed", arguments.seed]
    page = ["--report", arguments.html, "--force"] if arguments.html else []
    with tempfile.TemporaryDirectory() as aside:
        folder, table = Path(aside), Path(aside) / "figures.csv"
        stores = build_stores(arguments.data, folder)
        compare(stores, *options, "--csv", table, *page)
        translated = translate_stores(arguments.data, folder, pairs=arguments.pairs, seed=arguments.seed)
        labels = write_labels(arguments.data, folder / "labels.jsonl")
        compare([stores[0], *translated], *options, "--labels", labels)
        time_one_pair(stores)
        return judge(table)


if __name__ == "__main__":
    sys.exit(main())
