"""What 10^6 to 10^9 documents take: embedding them by an API or on one core, and translating them on one core.

    python benchmarks/scale.py [--rows 50000] [--texts 256]

Documents have 150 words. The tokens of `rows` of them are counted, all-MiniLM-L6-v2 embeds `texts` of them, and a store
of `rows` vectors in Parquet is translated from 384 to 768 dimensions by a stitch of old vectors alone. Each is timed by
the processor seconds of one thread, and multiplied.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import victims
from threadpoolctl import threadpool_limits
from victims import make_stitch

import migrate
from migrate.cost.count import Tally
from migrate.embedders import load_embedder
from migrate.embedders.registry import known_models
from migrate.selection.sample import SAMPLE_SIZE
from migrate.stitch.persistence import load_stitch
from migrate.vectors import Document

_OLD_DIM, _DIM = 384, 768
_FEW = 1_000
_COUNTS = (10**6, 10**7, 10**8, 10**9)
_PAID = "text-embedding-3-small"
_FREE = "all-MiniLM-L6-v2"
_UNITS = (("months", 30.4 * 24 * 3_600), ("days", 24 * 3_600), ("hours", 3_600), ("minutes", 60))
_WORDS = (
    "vector", "store", "index", "query", "model", "text", "term", "rank", "score", "batch", "token", "layer", "space",
    "norm", "cosine", "sample",
)  # fmt: skip


def passages(count: int) -> Iterator[Document]:
    """Documents of a hundred and fifty words, as chunks of a corpus are."""
    rng = np.random.default_rng(0)
    for row in range(count):
        words = " ".join(_WORDS[word] for word in rng.integers(len(_WORDS), size=150))
        yield Document(f"passage-{row}", f"{words} {row}")


def write_store(folder: Path, rows: int) -> None:
    """Write a store of random vectors as a file of Parquet."""
    vectors = np.random.default_rng(0).standard_normal((rows, _OLD_DIM), dtype=np.float32)
    documents = list(passages(rows))
    columns = {
        "id": [document.id for document in documents],
        "text": [document.text for document in documents],
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), _OLD_DIM),
    }
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "part-0.parquet", row_group_size=8_192)


def translation_s(folder: Path, rows: int) -> float:
    """Seconds to translate a document, without what a store of a few takes."""
    victims.DIM, victims.TARGET_DIM, victims.documents = _OLD_DIM, _DIM, passages
    took: list[float] = []
    for name, count in (("warm", _FEW), ("few", _FEW), ("many", rows)):  # the first imports what is needed
        store = f"parquet:{folder / name}"
        write_store(folder / name, count)
        if not took:
            make_stitch(store, folder / "stitch", dim=_OLD_DIM, rows=min(SAMPLE_SIZE, _FEW))
        fitted = load_stitch(folder / "stitch")
        migrate.open_store(store).snapshot()  # which `fit` has taken before a translation
        begun = time.process_time()
        migrate.translate(store, fitted, folder / f"new-{name}", workers=1, any_store=True)
        took.append(time.process_time() - begun)
    return (took[2] - took[1]) / (rows - _FEW)


def embedding_s(texts: int) -> float:
    """Seconds to embed a document."""
    model = load_embedder(f"packaged:{_FREE}", device="cpu")
    documents = list(passages(texts))
    model.embed_documents(documents[:8])  # which loads it
    begun = time.process_time()
    model.embed_documents(documents)
    return (time.process_time() - begun) / texts


def in_words(seconds: float) -> str:
    """Return a time in the largest unit that it has at least one of."""
    name, unit = next((it for it in _UNITS if seconds >= it[1]), _UNITS[-1])
    number = max(round(seconds / unit), 1)
    return f"{number} {name if number > 1 else name[:-1]}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--texts", type=int, default=256)
    arguments = parser.parse_args()
    tally = Tally(load_embedder(f"packaged:{_FREE}", device="cpu").loaded_profile())
    tokens = tally.cost(passages(arguments.rows)).tokens / arguments.rows
    price = next(model.price_usd_per_mtok for model in known_models() if model.name == _PAID) or 0.0
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        embed_s = embedding_s(arguments.texts)
        os.environ["XDG_CACHE_HOME"] = name
        translate_s = translation_s(Path(name), arguments.rows)
    print(f"| documents of 150 words | {_PAID} | {_FREE}, one core | translating, one core |")
    print("|---:|---:|---:|---:|")
    for count in _COUNTS:
        money = f"${count * tokens * price / 1e6:,.2f}"
        print(f"| {count:,} | {money} | {in_words(count * embed_s)} | {in_words(count * translate_s)} |")
    print(f"\n${price} per million tokens, {tokens:.0f} tokens a document; {1e3 * embed_s:.1f} ms to embed one")
    print(f"{1e6 * translate_s:.1f} us to translate one")


if __name__ == "__main__":
    main()
