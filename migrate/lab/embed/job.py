"""The work of `embed`, once the model is loaded and the documents are found: read, cut into chunks, embedded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from migrate.cost.spending import PlannedModel
from migrate.datasets.beir import load_beir
from migrate.datasets.download import resolve_beir
from migrate.datasets.records import read_corpus
from migrate.embed import Embedding, embed_corpus
from migrate.embed.corpus import AGAIN, documents_left
from migrate.embedders.abilities import loaded_profile
from migrate.embedders.base import Embedder
from migrate.embedders.profile import Profile
from migrate.errors import UsageError
from migrate.lab.embed.options import EmbedOptions
from migrate.lab.embed.sizes import ChunkSize, chunk_size, cut_documents
from migrate.steps.base import Job, RunContext
from migrate.steps.opening import model_at
from migrate.vectors import Document, Progress
from migrate.work.outputs import OutputFolder

Read: TypeAlias = Callable[[], Iterable[Document]]
"""Starts reading the documents."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbedJob(Job[Embedding]):
    """The documents of an embedding, found, and the model, loaded.

    Attributes
    ----------
    embedder
        The model, which spends under the cap.
    target
        Its profile, loaded where only that tells its tokens.
    size
        The size of chunks; None where documents are left whole.
    leaves_whole
        True where documents are left whole as nothing is said of chunks: a file has vectors of whole ones.
    documents
        Starts reading the documents, in chunks where they are cut.
    files
        The files that the documents are read from; none where they were given as objects.
    """

    options: EmbedOptions
    embedder: Embedder
    target: Profile
    size: ChunkSize | None
    leaves_whole: bool
    documents: Read
    files: Sequence[Path]

    @property
    def chunks(self) -> dict[str, object] | None:
        """The size of chunks and who counts their tokens, as JSON has them."""
        if self.size is None:
            return None
        return {**asdict(self.size), "counted_by": self.target.counter.source}

    def execute(self) -> Embedding:
        """Embed the documents, and build the store."""
        options = self.options
        made_by: dict[str, Any] = {}
        if self.files:
            cap = None
            if options.max_docs is not None:
                cap = [options.max_docs, options.split, options.seed]
            # The same files cut in another way are other documents, for which no earlier work counts
            made_by = {"chunks": self.chunks, "cap": cap}
        return embed_corpus(
            self.documents,
            self.embedder,
            Path(options.output),
            store_format=options.format,
            metric=options.metric,
            skip_blank=options.skip_bad,
            files=self.files,
            options=made_by,
            force=options.force,
            restart=options.restart,
            progress=self.context.progress,
        )


def open_embed(options: EmbedOptions, context: RunContext) -> EmbedJob:
    """Open what is to be embedded, the model as it is by itself. Nothing is embedded."""
    return embed_job(options, model_at(options.model), context)


def embed_job(options: EmbedOptions, model: Embedder, context: RunContext) -> EmbedJob:
    """Return the embedding of the documents by a model that is open, after making sure that the output is free."""
    # Before weights are loaded to learn how the model counts
    OutputFolder(Path(options.output)).require_free(force=options.force)
    embedder = context.cap.meter(model, options.price)
    target = loaded_profile(embedder)
    says_nothing = not options.no_chunks and (options.chunk_tokens, options.chunk_overlap) == (None, None)
    leaves_whole = says_nothing and target.kind == "file"
    size = None
    if not leaves_whole:
        size = _chunk_size(options, target)
    read, files = _source_of(options, context.progress)
    documents = read
    if size is not None:
        # A size that cannot be is refused here, before anything is read
        cut_documents((), target, size)
        documents = partial(_read_chunks, read, target, size)
    left = partial(documents_left, documents, Path(options.output), restart=options.restart)
    return EmbedJob(
        options=options,
        context=context,
        models=(PlannedModel(embedder, context.cap, documents=left, again=AGAIN),),
        embedder=embedder,
        target=target,
        size=size,
        leaves_whole=leaves_whole,
        documents=documents,
        files=files,
    )


def _chunk_size(options: EmbedOptions, target: Profile) -> ChunkSize | None:
    """Return the size of chunks; None for whole documents, as those that Python gives are unless a size is named."""
    is_read = isinstance(options.corpus, str | Path) or options.chunk_tokens is not None
    if options.no_chunks or not is_read:
        return None
    return chunk_size(target, options.chunk_tokens, options.chunk_overlap)


def _read_chunks(read: Read, target: Profile, size: ChunkSize) -> Iterable[Document]:
    return cut_documents(read(), target, size)


def _source_of(options: EmbedOptions, progress: Progress) -> tuple[Read, list[Path]]:
    """Return a function that starts reading whole documents, and the files that these are in."""
    if not isinstance(options.corpus, str | Path):
        return partial(iter, options.corpus), []
    path = Path(options.corpus)
    if path.is_file():
        if options.max_docs is not None:
            raise UsageError("max_docs caps BEIR sets by their judgements; a JSONL file has none: shorten it instead")
        return partial(read_corpus, path), [path]
    folder = resolve_beir(str(options.corpus), progress=progress)
    path = folder / "corpus.jsonl"
    if options.max_docs is None:
        return partial(read_corpus, path), [path]
    capped = load_beir(folder, split=options.split, max_docs=options.max_docs, seed=options.seed)
    files = (path, folder / "qrels" / f"{options.split}.tsv")
    return partial(iter, capped.documents), [file for file in files if file.exists()]
