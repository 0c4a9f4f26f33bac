"""The library in a few lines: open a store, fit a stitch, translate, audit.

python examples/library.py STORE BEIR_FOLDER TARGET OUTPUT

python examples/library.py my-store my-beir packaged:all-MiniLM-L6-v2 out
"""

import sys
from pathlib import Path

from migrate.audit.audit import audit_store
from migrate.audit.inputs import AuditInputs
from migrate.audit.query_set import QuerySet
from migrate.datasets.beir import load_beir
from migrate.embed import reembed_store
from migrate.embedders import load_embedder
from migrate.fit import fit_stitch
from migrate.report.audit import audit_text
from migrate.report.terminal import candidates_table
from migrate.stores import open_store
from migrate.translate import translate_store


def main(store_path: str, beir: str, target: str, output: str) -> None:
    """Leave `stitch`, `store` and `reference` in the output folder, and print the candidates and the verdict."""
    folder = Path(output)
    store = open_store(Path(store_path))
    embedder = load_embedder(target, cache=folder / "embeddings.sqlite")

    fitted = fit_stitch(store, embedder, size=1_000)
    print(candidates_table(fitted.selection))
    fitted.save(folder / "stitch")
    translate_store(store, fitted, folder / "store")
    reembed_store(store, embedder, folder / "reference")

    data = load_beir(Path(beir))
    report = audit_store(
        AuditInputs(
            translated=open_store(folder / "store"),
            reference=open_store(folder / "reference"),
            query_set=QuerySet(data.queries, data.qrels, data.name),
            embedder=embedder,
        )
    )
    print(audit_text(report))
    print(f"may it be used? {report.verdict.outcome}")


if __name__ == "__main__":
    main(*sys.argv[1:])
