"""Move a store to a model of OpenAI, or of any server that speaks its protocol, for a dollar at most.

    OPENAI_API_KEY=... python examples/openai_target.py STORE OUTPUT [MODEL] [BASE_URL]

Only the sample is sent. Embeddings are kept in a cache: run it again and nothing is
paid twice.
"""

import sys
from pathlib import Path

import migrate


def main(store_path: str, output: str, model: str = "text-embedding-3-small", base_url: str | None = None) -> None:
    """Leave `stitch` and `store` in the output folder, and print what a full re-embed would cost."""
    folder = Path(output)
    store = migrate.open_store(store_path)
    embedder = migrate.load_embedder(f"openai:{model}", base_url=base_url, cache=folder / "embeddings.sqlite")

    print(migrate.assess(store, embedder))
    fitted = migrate.fit(store, embedder, sample=500, max_cost=1)
    fitted.save(folder / "stitch")
    print(fitted)

    done = migrate.translate(store, fitted, folder / "store")
    print(f"{done.path}: {done.count} vectors of dimension {done.target_dim}, {done.n_true} of them true ones")


if __name__ == "__main__":
    main(*sys.argv[1:])
