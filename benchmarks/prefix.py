"""Documents by their first tokens, embedded by the target model: the simplest rival of a translation.

    python benchmarks/prefix.py DATA --cache FOLDER [--sets nfcorpus ...] [--only arms|stitches] [--spaces mpnet ...]

DATA is that of `benchmarks/retrieval.py`; queries and whole documents are those of `pairs/SET.minilm.npz`. Documents
are cut to their first 16, 24 and 64 tokens and embedded by all-MiniLM-L6-v2; the same is done with the second half of
each, which has no head that says what the text is about. Printed are the tokens, special ones included, as a share of
those that the model reads of whole documents, and retention of nDCG@10 with 95 % bounds for each row alone. What is
embedded is kept in FOLDER.

Then, from each source of `benchmarks/retrieval.py` and from all-mpnet-base-v2: retention of nDCG@10 and overlap@10 with
the full re-embed, over all documents, those of the sample with their true vectors, as a user has them. `pairs` is
`ridge+text` on a sample, `more pairs` on one that is larger by as many tokens as first tokens of all documents cost,
`prefix` these alone, `prefix+text` the stitch that leans on them; `fit` is which of them `fit --first-tokens` chooses
on the smaller sample. The tokens are those of the three last, as a share of a full re-embed.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from retrieval import SETS, SPACES, TARGET, TARGET_MODEL, Collection, ReadSet, load_space, read_set, run_over

from migrate.audit.measures import Scores, ndcg, overlap
from migrate.audit.verdict import Bootstrap
from migrate.cost import tally_of
from migrate.datasets.beir import load_beir
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.embedders.prefix import first_of
from migrate.report.terminal import table
from migrate.stitch.base import Pairing
from migrate.stitch.prefix import PrefixCost
from migrate.stitch.select import select_stitch, tune
from migrate.stitch.text_features import DenseView, TextRows
from migrate.vectors import Document, Vectors, unit_rows

MPNET = "mpnet"
LENGTHS = (16, 24, 64)
HALF_LENGTHS = (24, 64)
_WORD = re.compile(r"\S+")


def second_half(document: Document) -> Document:
    """The document from the word in its middle on."""
    starts = [word.start() for word in _WORD.finditer(document.text)]
    return replace(document, text=document.text[starts[len(starts) // 2] :])


def scores_of(collection: Collection, vectors: Vectors, queries: Vectors) -> Scores:
    """The nDCG@10 of each judged query."""
    asked = [query_id for query_id in collection.query_ids if any(collection.qrels[query_id].values())]
    run = run_over(collection, np.arange(len(vectors)), vectors, queries)
    return ndcg(run, collection.qrels, asked, 10)


@dataclass(frozen=True)
class Trial:
    """One source, one number of first tokens: `base`, (n, q), are their vectors, which cost a `share` of all tokens."""

    read: ReadSet
    space: str
    tokens: int
    base: Vectors
    share: float
    pairs: int
    seed: int

    @cached_property
    def texts(self) -> TextRows:
        """The texts, and their first tokens."""
        return TextRows({**self.read.texts.views, "first tokens": DenseView(unit_rows(self.base))}, "first tokens")

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """The order in which documents come into a sample."""
        return np.random.default_rng(self.seed).permutation(len(self.base))

    def pairing(self, pairs: int) -> Pairing:
        """The first so many pairs."""
        rows = np.sort(self.order[:pairs])
        source, target = self.read.sources[self.space].documents, self.read.target.documents
        return Pairing(source[rows], target[rows], self.texts.take(rows), self.seed)

    @property
    def bought(self) -> int:
        """The pairs that the first tokens of all documents would pay for."""
        return round(self.share * len(self.base))

    def kept(self, spec: str, pairs: int) -> tuple[float, float]:
        """Retention and overlap@10 of a store translated by a stitch."""
        pairing = self.pairing(pairs)
        fitted = pairing.fit(tune(spec, pairing)[0])
        vectors = unit_rows(fitted.transform(self.read.sources[self.space].documents, self.texts))
        rows = np.sort(self.order[:pairs])
        vectors[rows] = self.read.target.documents[rows]
        collection, queries = self.read.collection, self.read.target.queries
        judged = [query for query in collection.query_ids if any(collection.qrels[query].values())]
        every = np.arange(len(vectors))
        run, full = (run_over(collection, every, some, queries) for some in (vectors, self.read.target.documents))
        scores, standard = (ndcg(one, collection.qrels, judged, 10).mean() for one in (run, full))
        return float(scores / standard), float(overlap(run, full, judged, 10).mean())

    def row(self) -> list[str]:
        """The cells of one line."""
        arms = {
            "pairs": ("ridge+text", self.pairs),
            "more pairs": ("ridge+text", min(self.pairs + self.bought, len(self.base))),
            "prefix": ("prefix", self.pairs),
            "prefix+text": ("prefix+text", self.pairs),
        }
        found = {name: self.kept(*arm) for name, arm in arms.items()}
        cost = PrefixCost(self.tokens, self.bought, len(self.base))
        worth = select_stitch(self.pairing(self.pairs), prefix=cost).prefix
        chosen = (
            "-"
            if worth is None or not worth.is_used
            else "prefix"
            if worth.with_prefix == worth.alone
            else "prefix+text"
        )
        tokens = f"{self.share + self.pairs / len(self.base):.0%}"
        cells = [f"{retention:.3f} {share:.3f}" for retention, share in found.values()]
        return [f"{self.read.name} {self.space}", f"{self.tokens}", tokens, *cells, chosen]


def try_stitches(arguments: argparse.Namespace, embedder: Embedder, spaces: Sequence[str]) -> None:
    """Print the second table."""
    counter, tally, rows = embedder.loaded_profile().counter, tally_of(embedder), []
    for name in arguments.sets:
        read = read_set(arguments.data, name, spaces, embedder.token_table())
        documents = read.collection.documents
        whole = tally.cost(documents).tokens
        for tokens in arguments.tokens:
            cut = list(first_of(documents, counter, tokens))
            base, share = embedder.embed_documents(cut), tally.cost(cut).tokens / whole
            for space in spaces:
                rows.append(Trial(read, space, tokens, base, share, arguments.pairs, arguments.seed).row())
                print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    head = ["set and source", "first", "tokens", "pairs", "more pairs", "prefix", "prefix+text", "fit"]
    print("\n" + table([head, *rows]))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--only", choices=["arms", "stitches"])
    parser.add_argument("--spaces", nargs="+")
    parser.add_argument("--tokens", nargs="+", type=int, default=list(HALF_LENGTHS))
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started = time.perf_counter()
    embedder = load_embedder(TARGET_MODEL, device="cpu", cache=arguments.cache / "embeddings.sqlite")
    if arguments.only != "stitches":
        print_arms(arguments, embedder)
    if arguments.only != "arms":
        try_stitches(arguments, embedder, arguments.spaces or (*SPACES, MPNET))
    print(f"\n{time.perf_counter() - started:.0f} s")


def print_arms(arguments: argparse.Namespace, embedder: Embedder) -> None:
    """Print the first table."""
    counter, tally = embedder.profile.counter, tally_of(embedder)
    rows = []
    for name in arguments.sets:
        data = load_beir(arguments.data / name)
        collection = Collection(data, tuple(data.documents()))
        target = load_space(arguments.data, name, TARGET, collection)
        full, whole = scores_of(collection, target.documents, target.queries), tally.cost(collection.documents).tokens
        halves = [second_half(document) for document in collection.documents]
        parts: list[tuple[str, Sequence[Document]]] = [
            *((f"first {n} tokens", list(first_of(collection.documents, counter, n))) for n in LENGTHS),
            *((f"second half, first {n} tokens", list(first_of(halves, counter, n))) for n in HALF_LENGTHS),
        ]
        for part, documents in parts:
            scores = scores_of(collection, embedder.embed_documents(documents), target.queries)
            bounds = Bootstrap(seed=0).retention(scores, full)
            share = tally.cost(documents).tokens / whole
            cells = f"{share:.1%}", f"{bounds.estimate:.3f}", f"{bounds.lower:.3f}..{bounds.upper:.3f}"
            rows.append([f"{name}, {part}", *cells])
    print(table([["set and part", "tokens", "retention", "bounds"], *rows]))


if __name__ == "__main__":
    main()
