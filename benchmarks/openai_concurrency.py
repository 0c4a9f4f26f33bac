"""Texts a second that the openai: embedder gets from a local server that takes its time, at two concurrencies.

    python benchmarks/openai_concurrency.py [--texts 4000] [--batch-size 25] [--latency-ms 200]

The server runs in a process of its own, answers each request after the latency, however many there are at once, and
gives vectors of 1,536 dimensions. The vectors of both runs are compared. Each run has a cache of its own, on disk.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from migrate.embedders import load_embedder
from migrate.vectors import Document, Vectors

_SERVER = """
import sys
import openai_server
with openai_server.OpenAIServer() as server:
    server.latency_s = float(sys.argv[1])
    print(server.url, flush=True)
    sys.stdin.read()
"""


@contextmanager
def slow_server(latency_s: float) -> Iterator[str]:
    """The URL of a server, in a process of its own."""
    tests = Path(__file__).parents[1] / "tests" / "embedders"
    places = os.pathsep.join([str(tests), *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(latency_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": places},
    ) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("the server has no pipes")
        yield process.stdout.readline().strip()
        process.stdin.close()


def timed_run(
    url: str, texts: list[Document], batch_size: int, concurrency: int, folder: Path
) -> tuple[float, Vectors]:
    """Wall seconds and vectors of one run with an empty cache."""
    embedder = load_embedder(
        "openai:text-embedding-3-small",
        base_url=url,
        batch_size=batch_size,
        concurrency=concurrency,
        cache=folder / f"{concurrency}.sqlite",
    )
    started = time.perf_counter()
    vectors = embedder.embed_documents(texts)
    return time.perf_counter() - started, vectors


def main() -> None:
    """Print texts a second at concurrency 1 and 8, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=4_000)
    parser.add_argument("--batch-size", type=int, default=25)
    parser.add_argument("--latency-ms", type=float, default=200.0)
    options = parser.parse_args()
    texts = [Document(str(number), f"text {number}") for number in range(options.texts)]
    rates: dict[int, float] = {}
    runs: list[Vectors] = []
    with slow_server(options.latency_ms / 1000) as url, tempfile.TemporaryDirectory() as folder:
        timed_run(url, texts[: options.batch_size], options.batch_size, 2, Path(folder))  # imports
        for concurrency in (1, 8):
            wall_s, vectors = timed_run(url, texts, options.batch_size, concurrency, Path(folder))
            runs.append(vectors)
            rates[concurrency] = len(texts) / wall_s
            print(f"concurrency {concurrency}: {rates[concurrency]:7.0f} texts/s ({wall_s:.1f} s)")
    same = "the same" if np.array_equal(runs[0], runs[1]) else "DIFFERENT"
    print(
        f"{len(texts):,} texts, {options.batch_size} a request, {options.latency_ms:g} ms each: "
        f"{rates[8] / rates[1]:.1f} times as many; {same} vectors"
    )


if __name__ == "__main__":
    main()
