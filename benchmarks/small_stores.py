"""What a stitch keeps of small stores of several vendors: every candidate, and the one that is chosen.

    python benchmarks/small_stores.py DATA [--stores openai-ada-002 titan-v1 ...] [--share 0.6] [--seeds 0 1 2 3 4]

DATA holds `stores/`, real LangChain folders. Their texts are embedded by all-MiniLM-L6-v2, and each store is moved to
it, and back (from MiniLM's vectors to the vendor's, whose token embeddings nobody has). A share of the documents is the
sample; the others are translated. Each of these, with its true vector, asks for its nearest neighbours among the
others of them: printed is the share of the true 10 that is found, its mean over seeds, for every candidate of `auto`,
for the texts alone and for what `auto` chooses; at last how far that is behind the best.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from migrate.embedders import load_embedder
from migrate.embedders.base import TokenTable
from migrate.report.terminal import table
from migrate.stitch.base import Pairing
from migrate.stitch.scores import Neighbours
from migrate.stitch.select import AUTO, select_stitch, tune
from migrate.stitch.text_features import TextRows
from migrate.stitch.text_reader import TextReader
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.vectors import Vectors

TARGET_MODEL = "packaged:all-MiniLM-L6-v2"
FEWEST = 90
CANDIDATES = ("procrustes", "ols", "ridge", "ridge+near", "text", "ridge+text")


@dataclass(frozen=True)
class Move:
    """A store with the vectors of two models, (n, p) and (n, q)."""

    name: str
    source: Vectors
    target: Vectors
    texts: TextRows

    def kept(self, spec: str, share: float, seed: int) -> tuple[float, str]:
        """The overlap@10 of documents outside of the sample, and the stitch that was fitted."""
        order = np.random.default_rng(seed).permutation(len(self.source))
        rows, rest = np.sort(order[: round(share * len(order))]), np.sort(order[round(share * len(order)) :])
        pairing = Pairing(self.source[rows], self.target[rows], self.texts.take(rows), seed)
        if spec == AUTO:
            found = select_stitch(pairing).stitch
            assert found is not None
        else:
            found = tune(spec, pairing)[0]
        vectors = pairing.fit(found).transform(self.source[rest], self.texts.take(rest))
        neighbours = Neighbours(self.target[rest], seed=seed)
        return float(neighbours.overlap(vectors).mean()), found.spec


def moves(folder: Path) -> Iterator[Move]:
    """A store to MiniLM and back; nothing of one that is too small."""
    store = open_store(folder)
    if store.info.count < FEWEST:
        return
    model = load_embedder(TARGET_MODEL, device="cpu")
    documents = list(store.documents())
    keep = [row for row, document in enumerate(documents) if document.text.strip()]
    documents = [documents[row] for row in keep]
    old, new = read_all(store.scan()).vectors[keep], model.embed_documents(documents)
    words = [document.text for document in documents]

    def read(tokens: TokenTable | None) -> TextRows:
        return TextReader.fit(words, tokens).read(words)

    yield Move(f"{folder.name} -> MiniLM", old, new, read(model.token_table()))
    if "minilm" not in folder.name:
        yield Move(f"MiniLM -> {folder.name}", new, old, read(None))


def row_of(move: Move, share: float, seeds: Sequence[int]) -> list[str]:
    """The cells of one move."""
    found = {spec: [move.kept(spec, share, seed) for seed in seeds] for spec in (*CANDIDATES, AUTO)}
    means = {spec: float(np.mean([overlap for overlap, _ in of])) for spec, of in found.items()}
    chosen = "/".join(dict.fromkeys(spec for _, spec in found[AUTO]))
    behind = max(means[spec] for spec in CANDIDATES) - means[AUTO]
    pairs = round(share * len(move.source))
    return [move.name, f"{pairs}", *(f"{mean:.3f}" for mean in means.values()), f"{behind:+.3f}", chosen]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--stores", nargs="+")
    parser.add_argument("--share", type=float, default=0.6)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    arguments = parser.parse_args()
    started = time.perf_counter()
    folders = [path.parent for path in sorted((arguments.data / "stores").glob("*/index.pkl"))]
    rows = []
    for folder in folders:
        if arguments.stores is None or folder.name in arguments.stores:
            rows += [row_of(move, arguments.share, arguments.seeds) for move in moves(folder)]
    print(table([["move", "pairs", *CANDIDATES, AUTO, "behind", "chosen"], *rows]))
    print(f"\nseeds {arguments.seeds}, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
