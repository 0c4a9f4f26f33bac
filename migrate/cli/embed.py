"""`lead-migrate embed`: a corpus to a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from migrate.cli import options
from migrate.cli.options import ModelOptions, option
from migrate.cli.spending import SpendingOptions, spending_options
from migrate.cli.terminal import advise, progress_bar, show, show_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from migrate.documents import Document
    from migrate.vectors import Progress


@options.command(
    "embed", "A corpus to a new store.", example="lead-migrate embed corpus.jsonl --model tfidf:256 -o my-store"
)
@click.argument("corpus")
@option("--model", "spec", required=True, metavar="SPEC", help="Model to embed with.")
@options.output
@option("--chunk-tokens", type=click.IntRange(min=1), default=256, help="Longest chunk, in tokens.")
@option("--chunk-overlap", type=click.IntRange(min=0), default=25, help="Tokens that neighbouring chunks share.")
@option("--no-chunks", is_flag=True, help="One vector for each document, however long.")
@option("--format", "store_format", type=click.Choice(["faiss", "langchain"]), default="faiss", help="Store to write.")
@option("--metric", type=click.Choice(["ip", "l2"]), default="ip", help="How the index compares vectors.")
@option("--max-docs", type=click.IntRange(min=1), help="Cap of a BEIR corpus; relevant documents come first.")
@options.split
@option("--skip-bad", is_flag=True, help="Drop documents without text, count and list them, instead of failing.")
@options.price
@spending_options
@options.model_options
@options.seed
@options.force
@options.restart
@options.as_json
@options.quiet
def command(
    corpus: str,
    spec: str,
    output: Path,
    chunk_tokens: int,
    chunk_overlap: int,
    no_chunks: bool,
    store_format: Literal["faiss", "langchain"],
    metric: Literal["ip", "l2"],
    max_docs: int | None,
    split: str,
    skip_bad: bool,
    price: float | None,
    spending: SpendingOptions,
    model: ModelOptions,
    seed: int,
    force: bool,
    restart: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Embed CORPUS into a new store: a BEIR folder, the name of a BEIR set, or a JSONL file of {"id", "text"}."""
    from migrate.embed import Origin, embed_corpus
    from migrate.embed.corpus import documents_left
    from migrate.files import refuse_overlap

    refuse_overlap(output, Path(corpus))
    with progress_bar(quiet=quiet) as progress:
        read, files = _reader(corpus, split, max_docs, seed, progress)
        chunks = None if no_chunks else [chunk_tokens, chunk_overlap]
        cap = None if max_docs is None else [max_docs, split, seed]
        documents = read if no_chunks else _chunked(read, chunk_tokens, chunk_overlap)
        paid = spending.watch(model.load(spec, seed=seed, asks_again=False), price=price, quiet=quiet)
        paid.agree(lambda: documents_left(documents, output, restart=restart), progress=progress)
        done = embed_corpus(
            documents,
            paid.embedder,
            output,
            store_format=store_format,
            metric=metric,
            skip_blank=skip_bad,
            origin=Origin(files, {"chunks": chunks, "cap": cap}),
            force=force,
            restart=restart,
            progress=progress,
        )
    paid.finish()
    if done.skipped:
        shown = ", ".join(done.skipped[:10]) + (" ..." if len(done.skipped) > 10 else "")
        advise(f"skipped {len(done.skipped):,} documents without text: {shown}", quiet=quiet)
    if as_json:
        facts = {"store": str(done.path), "vectors": done.count, "dimension": done.dim, "skipped": list(done.skipped)}
        show_json({"schema_version": 1, "kind": "embed", **facts})
    else:
        show(f"{done.path}: {done.count:,} vectors of dimension {done.dim}")


def _reader(
    corpus: str, split: str, max_docs: int | None, seed: int, progress: Progress
) -> tuple[Callable[[], Iterable[Document]], list[Path]]:
    """What starts reading a JSONL file or the corpus of a BEIR folder or set, capped or whole; and the files."""
    from migrate.datasets.beir import load_beir
    from migrate.datasets.corpus import read_corpus
    from migrate.datasets.download import resolve_beir
    from migrate.errors import UsageError

    path = Path(corpus)
    if not path.is_file():
        folder = resolve_beir(corpus, progress=progress)
        if max_docs is not None:
            capped = load_beir(folder, split=split, max_docs=max_docs, seed=seed)
            return capped.documents, [
                file for file in (folder / "corpus.jsonl", folder / "qrels" / f"{split}.tsv") if file.exists()
            ]
        path = folder / "corpus.jsonl"
    elif max_docs is not None:
        raise UsageError("--max-docs caps BEIR sets by their judgements; a JSONL file has none: shorten it instead")
    return lambda: read_corpus(path), [path]


def _chunked(
    read: Callable[[], Iterable[Document]], chunk_tokens: int, chunk_overlap: int
) -> Callable[[], Iterable[Document]]:
    from migrate.datasets.chunking import chunk_documents

    return lambda: chunk_documents(read(), chunk_tokens=chunk_tokens, chunk_overlap=chunk_overlap)
