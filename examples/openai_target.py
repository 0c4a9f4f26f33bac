"""Move a store to a model of OpenAI, or of any server that speaks its protocol, and see what was spent.

    OPENAI_API_KEY=... python examples/openai_target.py STORE OUTPUT [MODEL] [BASE_URL]

Only the sample is sent, and no more than a dollar is spent. Embeddings are kept in a cache: run it again and nothing is
paid twice.
"""

import sys
from pathlib import Path

from migrate.embedders.cache import CachedEmbedder
from migrate.embedders.openai import OpenAIEmbedder
from migrate.fit import FitOptions, plan_fit
from migrate.stores import open_store
from migrate.translate import translate_store


def main(store_path: str, output: str, model: str = "text-embedding-3-small", base_url: str | None = None) -> None:
    """Leave `stitch` and `store` in the output folder, and print tokens and rate."""
    folder = Path(output)
    store = open_store(Path(store_path))
    api = OpenAIEmbedder(model, base_url=base_url)
    embedder = CachedEmbedder(api, folder / "embeddings.sqlite")

    plan = plan_fit(store, embedder, FitOptions(size=500))
    print(plan.estimate().sentence)
    fitted = plan.run(cap_usd=1.0)
    fitted.save(folder / "stitch")
    print(f"{fitted.stitch.spec}: {embedder.misses} texts embedded, {api.usage_tokens} tokens billed")

    done = translate_store(store, fitted, folder / "store")
    print(f"{done.path}: {done.count} vectors of dimension {done.target_dim}, {done.n_true} of them true ones")


if __name__ == "__main__":
    main(*sys.argv[1:])
