"""What `assess` says, held against what happens: how fast tokens are counted, how far estimates are off.

    python benchmarks/cost.py DATA [--documents 200000] [--only speed|estimate]

DATA holds BEIR folders (`scifact/corpus.jsonl`), as for `retrieval.py`.

speed      documents put together from sentences of DATA's corpora are counted as `assess` counts them, by the tokenizer
           of all-MiniLM-L6-v2, and a part of them by that tokenizer text by text. Both times are of the same run, on
           the cores that are there; new words come more slowly than in as many real documents.
estimate   totals by `migrate.embedders.tokens` against the tokenizer, for each kind of text, and against tiktoken's
           encoding where that is on this machine.
"""

from __future__ import annotations

import argparse
import json
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from migrate.cost.count import count_texts
from migrate.datasets.records import read_corpus
from migrate.datasets.stdlib import stdlib_beir
from migrate.embedders import load_embedder
from migrate.embedders.tokens import BYTE_PAIRS, WORD_PIECES, EstimateCounter, TokenCounter, find_api_counter
from migrate.embedders.weights import packaged_model_path
from migrate.report.terminal import table
from migrate.vectors import Document

NAIVE_DOCUMENTS = 3_000
SENTENCES = 6


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--only", choices=["speed", "estimate"])
    given = parser.parse_args()
    if given.only in (None, "speed"):
        measure_speed(given.data, given.documents)
    if given.only in (None, "estimate"):
        measure_estimate(given.data)


def corpora(data: Path) -> dict[str, list[str]]:
    """The texts of each BEIR folder of DATA."""
    return {
        path.parent.name: [document.text for document in read_corpus(path)]
        for path in sorted(data.glob("*/corpus.jsonl"))
    }


def invented(data: Path, count: int, seed: int = 0) -> Iterator[Document]:
    """Documents of sentences drawn from all corpora."""
    sentences = [part for texts in corpora(data).values() for text in texts for part in text.split(". ") if part]
    rng = np.random.default_rng(seed)
    for start in range(0, count, 1_000):
        drawn = rng.integers(len(sentences), size=(min(1_000, count - start), SENTENCES))
        for row, places in enumerate(drawn):
            yield Document(str(start + row), ". ".join(sentences[place] for place in places))


def measure_speed(data: Path, count: int) -> None:
    """Time counting, and a loop that takes text by text."""
    target = load_embedder("packaged:all-MiniLM-L6-v2").profile
    documents = list(invented(data, count))
    started = time.perf_counter()
    found = count_texts(documents, target)
    elapsed = time.perf_counter() - started
    tokenizer = Tokenizer.from_file(str(packaged_model_path() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    some = [document.text for document in documents[:: max(count // NAIVE_DOCUMENTS, 1)]]
    started = time.perf_counter()
    one_by_one = [len(tokenizer.encode(text).ids) for text in some]
    naive = time.perf_counter() - started
    assert target.counter.count(some).tolist() == one_by_one, "both count the same"
    rows = [["", "documents", "texts/s", "MB/s"]]
    sizes = (("count_texts", found.documents, sum(len(document.text.encode()) for document in documents), elapsed),
             ("text by text", len(some), sum(len(text.encode()) for text in some), naive))  # fmt: skip
    rows += [[name, f"{n:,}", f"{n / s:,.0f}", f"{size / s / 1e6:.1f}"] for name, n, size, s in sizes]
    print(table(rows))
    ratio = (found.documents / elapsed) / (len(some) / naive)
    print(f"{found.tokens:,} tokens in {elapsed:.1f} s; {ratio:.1f} times as fast as text by text\n")


def kinds(data: Path) -> dict[str, list[str]]:
    """Texts of different kinds."""
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:150]
    code = [
        text[start : start + 1_500] for path in sources for text in [path.read_text("utf-8")] for start in (0, 1_500)
    ]
    found = {name: texts[:1_500] for name, texts in corpora(data).items()}
    found["docstrings"] = [document.text for document in stdlib_beir(max_docs=1_500).documents]
    found["Python sources"] = [text for text in code if text]
    found["JSON"] = [json.dumps({"_id": str(row), "text": text[:300]}) for row, text in enumerate(found["docstrings"])]
    return found


def measure_estimate(data: Path) -> None:
    """How far the estimates are off."""
    exact = {"word pieces": load_embedder("packaged:all-MiniLM-L6-v2").profile.counter}
    api = find_api_counter("text-embedding-3-small")
    if api is None:
        print("tiktoken or its encoding is not here: its estimate is not measured")
    else:
        exact["cl100k_base"] = api
    weights = {"word pieces": WORD_PIECES, "cl100k_base": BYTE_PAIRS}
    rows = [["texts", "tokenizer", "tokens", "estimate", "characters / 4"]]
    for kind, texts in kinds(data).items():
        for name, counter in exact.items():
            special = counter.special
            estimate = EstimateCounter(weights[name], special=special)
            rows.append([kind, name, *_errors(texts, counter, estimate)])
    print(table(rows) + "\n")


def _errors(texts: Sequence[str], exact: TokenCounter, estimate: TokenCounter) -> list[str]:
    total = int(exact.count(texts).sum())
    quarter = sum(len(text) for text in texts) / 4
    return [f"{total:,}", f"{estimate.count(texts).sum() / total - 1:+.1%}", f"{quarter / total - 1:+.1%}"]


if __name__ == "__main__":
    main()
