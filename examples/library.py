"""The library in a few lines: fit, translate and audit, and what to do next.

python examples/library.py STORE BEIR_FOLDER TARGET OUTPUT

python examples/library.py my-store my-beir packaged:all-MiniLM-L6-v2 out
"""

import sys
from pathlib import Path

import migrate


def main(store: str, beir: str, target: str, output: str) -> None:
    """Leave the stitch, the new store and the report in the output folder, and print what came of it."""
    folder = Path(output)
    embedder = migrate.load_embedder(target, cache=folder / "embeddings.sqlite")
    done = migrate.run(store, embedder, folder, judged=beir, reference="pool")
    assert isinstance(done, migrate.Migration)  # a small store is embedded in full otherwise
    print(done.stitch)
    print(done.translation)
    print(done.report)
    if done.report.outcome is migrate.Outcome.SAFE:
        print(f"SAFE: migrate.switch({store!r}, {str(done.translation.path)!r}) lets it answer under the old name")


if __name__ == "__main__":
    main(*sys.argv[1:])
