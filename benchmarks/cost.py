"""How far the token counts that `assess` estimates are off.

    python benchmarks/cost.py DATA

DATA holds BEIR folders (`scifact/corpus.jsonl`), as for `retrieval.py`. Printed are totals by
`migrate.embedders.tokens` against the tokenizer of all-MiniLM-L6-v2, for each kind of text, and against tiktoken's
encoding where that is on this machine.
"""

from __future__ import annotations

import argparse
import json
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from migrate.datasets.records import read_corpus
from migrate.datasets.stdlib import stdlib_beir
from migrate.embedders import load_embedder
from migrate.embedders.tokens import BYTE_PAIRS, WORD_PIECES, EstimateCounter, TokenCounter, find_api_counter
from migrate.report.terminal import table


def main() -> None:
    """Print how far the estimates are off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
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
    print(table(rows))


def corpora(data: Path) -> dict[str, list[str]]:
    """The texts of each BEIR folder of DATA."""
    return {
        path.parent.name: [document.text for document in read_corpus(path)]
        for path in sorted(data.glob("*/corpus.jsonl"))
    }


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


def _errors(texts: Sequence[str], exact: TokenCounter, estimate: TokenCounter) -> list[str]:
    total = int(exact.count(texts).sum())
    quarter = sum(len(text) for text in texts) / 4
    return [f"{total:,}", f"{estimate.count(texts).sum() / total - 1:+.1%}", f"{quarter / total - 1:+.1%}"]


if __name__ == "__main__":
    main()
