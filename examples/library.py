"""The library in a few lines: open a store, fit a stitch, translate, audit.

python examples/library.py STORE BEIR_FOLDER TARGET OUTPUT

python examples/library.py my-store my-beir packaged:all-MiniLM-L6-v2 out
"""

import sys
from pathlib import Path

import migrate
from migrate.report.audit import audit_text


def main(store_path: str, beir: str, target: str, output: str) -> None:
    """Leave `stitch`, `store` and `reference` in the output folder, and print the stitch and the verdict."""
    folder = Path(output)
    store = migrate.open_store(store_path)
    embedder = migrate.load_embedder(target, cache=folder / "embeddings.sqlite")

    stitch = migrate.fit(store, embedder)
    print(stitch)
    stitch.save(folder / "stitch")
    print(migrate.translate(store, stitch, folder / "store"))

    report = migrate.audit(folder / "store", target=embedder, beir=beir, save_reference=folder / "reference")
    print(audit_text(report))
    print(f"may it be used? {report.verdict.outcome}")


if __name__ == "__main__":
    main(*sys.argv[1:])
