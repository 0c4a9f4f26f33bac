"""What `migrate.guard` takes of a query's time, and how soon it finds a wrong model.

    python benchmarks/guard.py [--queries 2000] [--every 1000]

A store of the Python standard library's docstrings has the vectors of all-MiniLM-L6-v2 (the extra `demo`), which then
embeds short queries through LangChain's interface, one by one: bare, and behind a guard. The two take turns in blocks
of 100 queries, so that both meet the same machine. Printed are microseconds of a query of each, the share that the
guard adds, with the checks and without; and after how many calls a model of another layer is refused.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from langchain_core.embeddings import Embeddings

import migrate
from migrate.check.guard.known import KnownRows
from migrate.datasets.stdlib import stdlib_beir
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.errors import VectorError
from migrate.vectors import Document, Query

MODEL, WRONG, BLOCK = "packaged:all-MiniLM-L6-v2", "layer:5:mean:packaged:all-MiniLM-L6-v2", 100


class Local(Embeddings):
    """An embedder of this package under LangChain's interface."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents."""
        vectors = self.embedder.embed_documents([Document(str(i), text) for i, text in enumerate(texts)])
        rows: list[list[float]] = vectors.tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        """Embed a query."""
        row: list[float] = self.embedder.embed_queries([Query("query", text)])[0].tolist()
        return row


def seconds(embeddings: Embeddings, queries: list[str]) -> float:
    """Time of embedding queries one by one."""
    started = time.perf_counter()
    for query in queries:
        embeddings.embed_query(query)
    return time.perf_counter() - started


def main() -> None:
    """Print the overhead, and when a wrong model is refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--every", type=int, default=1_000)
    arguments = parser.parse_args()
    data = stdlib_beir()
    asked = [query.text for query in data.queries]
    queries = [asked[i % len(asked)] for i in range(arguments.queries)]
    with tempfile.TemporaryDirectory() as temporary:
        store = Path(temporary) / "store"
        embed_corpus(lambda: data.documents[:200], load_embedder(MODEL), store)
        bare = Local(load_embedder(MODEL))
        guarded = migrate.guard(bare, store, every=arguments.every)
        seconds(bare, queries[:BLOCK])
        times = {"bare": 0.0, "guarded": 0.0}
        for start in range(0, len(queries), BLOCK):
            block = queries[start : start + BLOCK]
            order = [("bare", bare), ("guarded", guarded)]
            for name, model in order if start // BLOCK % 2 else reversed(order):
                times[name] += seconds(model, block)
        texts = KnownRows(store).current().texts
        started = time.perf_counter()
        bare.embed_documents(list(texts))
        check_s = time.perf_counter() - started
        micro = {name: 1e6 * elapsed / len(queries) for name, elapsed in times.items()}
        print(f"a query: bare {micro['bare']:,.0f} us, guarded {micro['guarded']:,.0f} us")
        print(
            f"added in all: {100 * (micro['guarded'] / micro['bare'] - 1):.2f} %, which the machine's noise is part of"
        )
        print(
            f"one check of 4 texts: {1e3 * check_s:.1f} ms; of {arguments.every:,} queries "
            f"{100 * check_s / (arguments.every * times['bare'] / len(queries)):.2f} %"
        )
        wrong, calls = migrate.guard(Local(load_embedder(WRONG)), store), 0
        try:
            for query in queries:
                calls += 1
                wrong.embed_query(query)
        except VectorError as error:
            print(f"{WRONG}: refused at call {calls}: {str(error).replace(str(store), 'store')}")


if __name__ == "__main__":
    main()
