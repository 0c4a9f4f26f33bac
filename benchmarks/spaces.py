"""How alike six spaces of one collection are: `lead-migrate compare` on SciFact.

    python benchmarks/spaces.py DATA [--set scifact] [--html FILE] [--csv FILE.csv] [--sample 10000] [--seed 0]

DATA holds `scifact/` in BEIR layout and `pairs/SET.SPACE.npz` with `doc_ids` and `docs`. The stores are built from
these files and, for `tfidf`, from the texts; the first one is `minilm` (all-MiniLM-L6-v2). Labels say how an abstract
begins: with a heading such as BACKGROUND or OBJECTIVE, or without one.

Prints what `lead-migrate compare` prints, and at last whether the layers are in order: the nearer a layer is to the
last one, the more alike are the spaces by CKA, cosines of pairs, R² and stitching penalty, and TF-IDF is less alike
than the two nearest layers. Exits with 1 where they are not. Neighbours shared without a stitch are no such judge: the
cosines of a middle layer are dominated by what all its vectors have in common, and TF-IDF shares more of them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from migrate.cli.main import run
from migrate.datasets.beir import load_beir
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder

SPACES = ("minilm", "layer5-mean", "layer4-mean", "layer3-cls", "wordpieces", "tfidf")
TFIDF = "tfidf:256"
ORDER = ("layer5-mean", "layer4-mean", "tfidf")
JUDGES = {"cka": 1, "relative_orientation": 1, "r2": 1, "penalty": -1}
_HEADING = re.compile(r"[A-Z]{5,}")


def build_stores(data: Path, name: str, folder: Path) -> list[Path]:
    """A store for each space."""
    documents = load_beir(data / name).documents
    for space in SPACES:
        spec = TFIDF if space == "tfidf" else f"file:{data / 'pairs' / f'{name}.{space}.npz'}"
        embed_corpus(documents, load_embedder(spec), folder / space)
    return [folder / space for space in SPACES]


def write_labels(data: Path, name: str, path: Path) -> Path:
    """Whether each abstract begins with a heading."""
    with path.open("w", encoding="utf-8") as file:
        for line in (data / name / "corpus.jsonl").read_text(encoding="utf-8").split("\n"):
            record = json.loads(line) if line else {}
            label = "heading" if _HEADING.match(record.get("text", "")) else "none"
            file.write(json.dumps({"id": record["_id"], "label": label}) + "\n" if record else "")
    return path


def figures(csv_file: Path) -> dict[tuple[str, str, str], float]:
    """Value by measure, from and to."""
    lines = (line.split(",") for line in csv_file.read_text(encoding="utf-8").splitlines()[1:])
    return {(measure, a, b): float(value) for measure, a, b, value in lines}


def main() -> int:
    """Print everything; 1 where the spaces are not in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--set", dest="name", default="scifact")
    parser.add_argument("--html", type=Path)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--sample", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as aside:
        stores = build_stores(arguments.data, arguments.name, Path(aside))
        labels = write_labels(arguments.data, arguments.name, Path(aside) / "labels.jsonl")
        table = arguments.csv or Path(aside) / "figures.csv"
        options: list[Any] = [
            "--labels",
            labels,
            "--csv",
            table,
            "--sample",
            arguments.sample,
            "--seed",
            arguments.seed,
        ]
        options += ["--html", arguments.html, "--force"] if arguments.html else []
        started = time.perf_counter()
        code = run([str(argument) for argument in ("compare", *stores, *options)])
        print(f"\n{time.perf_counter() - started:.0f} s")
        return code or judge(figures(table))


def judge(found: dict[tuple[str, str, str], float]) -> int:
    """Say by each of `JUDGES` whether `ORDER` is the order of likeness to the first space."""
    wrong = 0
    for measure, sign in JUDGES.items():
        values = [found[measure, space, SPACES[0]] for space in ORDER]
        fine = values == sorted(values, key=lambda value: -sign * value)
        wrong += not fine
        listed = f" {'>' if sign > 0 else '<'} ".join(
            f"{space} {value:.3f}" for space, value in zip(ORDER, values, strict=True)
        )
        print(f"{measure} to {SPACES[0]}: {listed}{'' if fine else ' - NOT in order'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
