"""The experiment of LEAD (Culp & Hernandez 2024): stitches between every two models, over BEIR sets, as one page.

    python benchmarks/lead.py DATA [--models lead | SPEC ...] [--sets lead | NAME ...] [--stitch ridge mlp:2 ...]
                                   [--html FILE] [--stores FOLDER] [--documents 20000] [--sample 4000] [--seed 0]

Models are the spaces of DATA/pairs, `SET.SPACE.npz`, which are vectors of real models and of layers of them, unless
others are named: `lead` are the 17 of LEAD, any other word is a model spec. Sets are those of DATA in BEIR layout,
unless others are named: `lead` are the six of LEAD; a set that is not in DATA is downloaded. A model or a set that is
not to be had is named and left out. A store is made of each model and set, in FOLDER if that is given, where the next
run finds it; of each set up to 20,000 documents count, as in LEAD.

Printed is, for each set and stitch, the mean over all pairs of models in both directions of R², MAE explained,
stitching penalty, and penalty above that of the target stitched to itself; beside them what the target's mean and the
vectors as they are reach, and CKA. Then the sets are put together, a store for each model, and `lead-migrate compare`
prints what it finds, and writes the page.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from migrate.cli.main import run
from migrate.datasets.download import resolve_beir
from migrate.datasets.records import read_corpus
from migrate.embed import embed_corpus
from migrate.embedders import known_models, load_embedder
from migrate.errors import LeadMigrateError
from migrate.lab.compare.compare import compare
from migrate.lab.compare.comparison import StoresComparison
from migrate.report.terminal import number, table
from migrate.stores import create_store, open_store
from migrate.vectors import Document

LEAD = "lead"
LEAD_SETS = ("arguana", "fiqa", "scidocs", "nfcorpus", "hotpotqa", "trec-covid")
LEAD_MODELS = 17
"""How many of the registry's models, the first ones, are those of LEAD."""

FIGURES = ("r2", "mae_explained", "penalty", "penalty_above_self", "r2_mean", "penalty_identity", "cka")
_BATCH = 1_000


def spaces_in(data: Path) -> list[str]:
    """The spaces that DATA has vectors of, for whatever set."""
    return sorted({path.name.split(".")[1] for path in (data / "pairs").glob("*.*.npz")})


def models_of(data: Path, named: Sequence[str] | None) -> list[str]:
    """Specs; of a space of DATA its name."""
    if not named:
        return spaces_in(data)
    lead = [f"{facts.provider}:{facts.name}" for facts in known_models()[:LEAD_MODELS]]
    return [spec for name in named for spec in (lead if name == LEAD else [name])]


def sets_of(data: Path, named: Sequence[str] | None) -> list[str]:
    """Names of sets."""
    if not named:
        return sorted(path.parent.name for path in data.glob("*/corpus.jsonl"))
    return [name for one in named for name in (LEAD_SETS if one == LEAD else [one])]


def build_store(data: Path, folder: Path, corpus: Path, model: str, documents: int) -> Path:
    """The store of one model and set; found where an earlier run has made it."""
    name = folder.name
    path = folder / re.sub(r"[^\w.-]+", "-", model)
    if not path.exists():
        pairs = data / "pairs" / f"{name}.{model}.npz"
        embedder = load_embedder(f"file:{pairs}" if pairs.exists() else model)
        embed_corpus(lambda: islice(_with_text(corpus), documents), embedder, path)
    return path


def _with_text(corpus: Path) -> Iterator[Document]:
    return (document for document in read_corpus(corpus) if document.text.strip())


def build_stores(
    data: Path, folder: Path, sets: Sequence[str], models: Sequence[str], documents: int
) -> dict[str, dict[str, Path]]:
    """The stores of each set by model; what is not to be had is said and left out."""
    built: dict[str, dict[str, Path]] = {}
    for name in sets:
        try:
            corpus = resolve_beir(str(data / name) if (data / name).is_dir() else name) / "corpus.jsonl"
        except LeadMigrateError as error:
            print(f"{name} is left out: {error}", flush=True)
            continue
        built[name] = {}
        for model in models:
            try:
                built[name][model] = build_store(data, folder / name, corpus, model, documents)
            except LeadMigrateError as error:
                print(f"{model} is left out of {name}: {error}", flush=True)
    return {name: stores for name, stores in built.items() if len(stores) > 1}


def put_together(stores: Mapping[str, Mapping[str, Path]], folder: Path) -> list[Path]:
    """A store for each model that every set has, with the documents of all sets."""
    everywhere = [model for model in next(iter(stores.values())) if all(model in of_set for of_set in stores.values())]
    paths = []
    for model in everywhere:
        parts = {name: open_store(of_set[model]) for name, of_set in stores.items()}
        path = folder / next(iter(stores.values()))[model].name
        path.mkdir(parents=True)
        writer = create_store(path, format="faiss", dim=next(iter(parts.values())).info.dim)
        for name, part in parts.items():
            texts = part.documents()
            for batch in part.scan(batch_size=_BATCH):
                documents = [Document(f"{name}/{text.id}", text.text) for text in islice(texts, len(batch.ids))]
                writer.append(documents, batch.vectors)
        writer.finish()
        paths.append(path)
    return paths


def rows_of(name: str, comparison: StoresComparison) -> Iterator[list[str]]:
    """The means of `FIGURES`, a row for each stitch."""
    means = {(figures.measure.key, figures.stitch): figures.mean for figures in comparison.figures()}
    for spec in comparison.specs:
        yield [name, spec, *(number(means.get((key, spec), means.get((key, None)))) for key in FIGURES)]


def main() -> int:
    """Print everything; 1 where there are not two models of one set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--stitch", nargs="+", default=["ridge"])
    parser.add_argument("--html", type=Path)
    parser.add_argument("--stores", type=Path)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--sample", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as aside:
        folder = given.stores or Path(aside) / "stores"
        sets, models = sets_of(given.data, given.sets), models_of(given.data, given.models)
        stores = build_stores(given.data, folder, sets, models, given.documents)
        if not stores:
            print("no two models of one set are to be had")
            return 1
        rows = [["set", "stitch", "R²", "MAE expl.", "penalty", "above self", "R² mean", "as is", "CKA"]]
        for name, of_set in stores.items():
            opened = [open_store(path) for path in of_set.values()]
            comparison = compare(*opened, kind=given.stitch, sample=given.sample, seed=given.seed)
            rows += rows_of(f"{name}, {len(of_set)} models", comparison)
        print(table(rows), end="\n\n", flush=True)
        whole = put_together(stores, Path(aside) / "whole")
        words = [word for spec in given.stitch for word in ("--kind", spec)]
        page = ["--report", str(given.html), "--force"] if given.html else []
        sizes = ["--sample", str(given.sample), "--seed", str(given.seed)]
        code = run(["compare", *map(str, whole), *words, *sizes, *page])
    print(f"\n{time.perf_counter() - started:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
