"""`lead-migrate embed`: a corpus to a store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from migrate.cli import options
from migrate.cli.next_step import TARGET, advise_next
from migrate.cli.options import GeneralOptions, ModelOptions, RunnerOptions, option, option_group
from migrate.cli.spending import SpendingOptions, spending_options
from migrate.cli.terminal import advise, progress_bar, show, show_json
from migrate.cli.unread import warn_of_unread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from migrate.cost.chunks import ChunkSize
    from migrate.cost.target import Target
    from migrate.vectors import Document, Progress


_CHUNK_OPTIONS = (
    option(
        "--chunk-tokens",
        type=click.IntRange(min=1),
        help="Longest chunk, in tokens of the model, without its prefix and special tokens.  [default: what the model "
        "reads, up to 256]",
    ),
    option(
        "--chunk-overlap",
        type=click.IntRange(min=0),
        help="Tokens that neighbouring chunks share at most.  [default: a tenth of the longest chunk]",
    ),
    option("--no-chunks", is_flag=True, help="One vector for each document, however long."),
)
_CORPUS_OPTIONS = (
    option("--max-docs", type=click.IntRange(min=1), help="Cap of a BEIR corpus; relevant documents come first."),
    options.split,
    option(
        "--prefix",
        "first_tokens",
        type=click.IntRange(1, 10**8),
        metavar="N",
        help="Embed only the first N tokens of each document or chunk, as the model prefix:N:SPEC does; queries stay "
        "whole.",
    ),
    option("--skip-bad", is_flag=True, help="Drop documents without text, count and list them, instead of failing."),
)


@dataclass(frozen=True, slots=True)
class ChunkOptions:
    """Into what documents are cut."""

    chunk_tokens: int | None
    chunk_overlap: int | None
    no_chunks: bool

    @property
    def are_default(self) -> bool:
        """Whether nothing was said of chunks."""
        return self == ChunkOptions(None, None, no_chunks=False)

    def check(self) -> None:
        """Make sure that sizes are of chunks.

        Raises
        ------
        UsageError
            There are to be none.
        """
        from migrate.errors import UsageError

        if self.no_chunks and (self.chunk_tokens, self.chunk_overlap) != (None, None):
            raise UsageError("--no-chunks leaves documents whole; leave it out, or --chunk-tokens and --chunk-overlap")


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """Which documents of a corpus are embedded."""

    max_docs: int | None
    split: str
    first_tokens: int | None
    skip_bad: bool


@options.command(
    "embed", "A corpus to a new store.", example="lead-migrate embed corpus.jsonl --model tfidf:256 -o my-store"
)
@click.argument("corpus")
@option("--model", "spec", required=True, metavar="SPEC", help="Model to embed with.")
@option(
    "--layer",
    type=click.IntRange(min=0),
    metavar="N",
    help="Give the vectors of layer N of a model that runs here, from 0, as the model layer:N:SPEC does.",
)
@option(
    "--pooling",
    type=click.Choice(["mean", "cls", "max", "lasttoken", "weightedmean"]),
    help="How the tokens of that layer become one vector.  [default: as the model does it]",
)
@options.output
@option_group(ChunkOptions, "cutting", *_CHUNK_OPTIONS, section="Chunks")
@option("--format", "store_format", type=click.Choice(["faiss", "langchain"]), default="faiss", help="Store to write.")
@option("--metric", type=click.Choice(["ip", "l2"]), default="ip", help="How the index compares vectors.")
@option_group(CorpusOptions, "part", *_CORPUS_OPTIONS, section="Corpus")
@options.price
@spending_options
@options.model_options
@options.runner_options
@options.general_options(options.seed, options.force, options.restart, options.as_json, options.quiet)
def command(
    corpus: str,
    spec: str,
    layer: int | None,
    pooling: str | None,
    output: Path,
    cutting: ChunkOptions,
    store_format: Literal["faiss", "langchain"],
    metric: Literal["ip", "l2"],
    part: CorpusOptions,
    price: float | None,
    spending: SpendingOptions,
    model: ModelOptions,
    running: RunnerOptions,
    general: GeneralOptions,
) -> None:
    """Embed CORPUS into a new store: a BEIR folder, the name of a BEIR set, or a JSONL file of {"id", "text"}.

    Documents are cut into chunks that the model reads to their end. For the same chunks in another model's space, embed
    the `docs.jsonl` of the first store with --no-chunks.
    """
    from dataclasses import asdict

    from migrate.cost.chunks import chunk_size, count_unread, room
    from migrate.embed import Origin, plan_embed
    from migrate.embedders.elsewhere import elsewhere
    from migrate.files import refuse_overlap

    quiet, runner = general.quiet, running.open()
    refuse_overlap(output, Path(corpus))
    cutting.check()
    with progress_bar(quiet=quiet) as progress:
        read, files = _reader(corpus, part, general.seed, progress)
        shortened = None if part.max_docs is None else [part.max_docs, part.split, general.seed]
        spec = _spec_of(spec, layer, pooling, part.first_tokens)
        loaded = model.load(spec, seed=general.seed, asks_again=False)
        paid, embedder = spending.open(quiet=quiet), elsewhere(loaded, runner)
        target = embedder.loaded_profile()
        whole = cutting.no_chunks
        if target.kind == "file" and cutting.are_default:
            whole = True
            advise("documents are left whole, as the file has vectors of whole ones", quiet=quiet)
        size = None if whole else chunk_size(target, cutting.chunk_tokens, cutting.chunk_overlap)
        documents = read if size is None else _chunked(read, target, size)
        chunks = None if size is None else {**asdict(size), "counted_by": target.counter.source}
        if size is not None:
            advise(
                f"chunks of up to {size.tokens:,} tokens that share up to {size.overlap:,}; tokens are "
                f"{target.counter.source}",
                quiet=quiet,
            )
        # Chunks of that size were counted when they were cut
        fits = size is not None and size.fits(target)
        unread = None if fits else count_unread(documents(), target, progress=progress)
        remedy = f"--chunk-tokens {room(target)} fits" if chunks else "leave out --no-chunks for chunks that fit"
        warn_of_unread(unread, "texts", remedy, quiet=quiet)
        plan = plan_embed(
            documents,
            embedder,
            output,
            price_usd_per_mtok=price,
            store_format=store_format,
            metric=metric,
            skip_blank=part.skip_bad,
            origin=Origin(files, {"chunks": chunks, "cap": shortened}),
            force=general.force,
            restart=general.restart,
        )
        paid.agree(plan, progress=progress)
        done = plan.run(cap_usd=paid.cap_usd, progress=progress)
    paid.finish()
    if done.skipped:
        shown = ", ".join(done.skipped[:10]) + (" ..." if len(done.skipped) > 10 else "")
        advise(f"skipped {len(done.skipped):,} documents without text: {shown}", quiet=quiet)
    if general.as_json:
        facts = {"store": str(done.path), "vectors": done.count, "dimension": done.dim, "skipped": list(done.skipped)}
        facts |= {"chunks": chunks, "over_limit": None if unread is None else unread.facts}
        show_json(facts, kind="embed")
    else:
        show(f"{done.path}: {done.count:,} vectors of dimension {done.dim}")
        advise_next("assess", done.path, "--target", TARGET, names_model=False, quiet=quiet)


def _spec_of(spec: str, layer: int | None, pooling: str | None, first_tokens: int | None) -> str:
    """The model's spec with the layer and the first tokens that options name."""
    from migrate.embedders.kinds import Layer, layer_spec, prefix_spec, split_prefix
    from migrate.errors import UsageError

    if pooling is not None and layer is None:
        raise UsageError("--pooling: expected --layer N beside it, found none; name the layer that is to be pooled")
    if layer is not None:
        tokens, bare = split_prefix(spec)
        spec = layer_spec(Layer(layer, pooling), bare)
        spec = spec if tokens is None else prefix_spec(tokens, spec)
    return spec if first_tokens is None else prefix_spec(first_tokens, spec)


def _reader(
    corpus: str, part: CorpusOptions, seed: int, progress: Progress
) -> tuple[Callable[[], Iterable[Document]], list[Path]]:
    """What starts reading a JSONL file or the corpus of a BEIR folder or set, capped or whole; and the files."""
    from migrate.datasets.beir import load_beir
    from migrate.datasets.download import resolve_beir
    from migrate.datasets.records import read_corpus
    from migrate.errors import UsageError

    path, max_docs, split = Path(corpus), part.max_docs, part.split
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
    read: Callable[[], Iterable[Document]], target: Target, size: ChunkSize
) -> Callable[[], Iterable[Document]]:
    from migrate.cost.chunks import cut_documents

    cut_documents((), target, size)  # a size that cannot be is refused here
    return lambda: cut_documents(read(), target, size)
