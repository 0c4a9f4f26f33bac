"""Embed: documents to a new store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.cost.spending import PlannedModel
from migrate.datasets.beir import load_beir
from migrate.datasets.download import resolve_beir
from migrate.datasets.records import read_corpus
from migrate.embed import embed_corpus
from migrate.embed.corpus import AGAIN, documents_left
from migrate.errors import UsageError
from migrate.files import refuse_overlap
from migrate.lab.embed.options import EmbedOptions
from migrate.lab.embed.sizes import chunk_size, cut_documents
from migrate.steps.base import PaidStep, function
from migrate.steps.opening import model_at
from migrate.work.outputs import OutputFolder

if TYPE_CHECKING:
    from migrate.embed import Embedding
    from migrate.embedders.base import Embedder
    from migrate.embedders.profile import Profile
    from migrate.lab.embed.sizes import ChunkSize
    from migrate.vectors import Document


@dataclass(frozen=True, eq=False)
class Embed(EmbedOptions, PaidStep["Embedding"]):
    """Embed documents into a new store, a folder with a FAISS index.

    The output appears when it is complete; a run that broke off is continued with the same files and options. Documents
    that are read from files are cut into chunks that the model reads to their end; others are embedded as they are.

    Raises
    ------
    DatasetError
        There are no documents, or one has a blank text and `skip_bad` is not given.
    StoreError
        The documents changed while they were read, or since unfinished work was begun.
    UsageError, OutputError, LockedError
        Chunks cannot be of that size; or the output exists, cannot be written, or is being written by another run; or
        unfinished work was begun with other options.
    RemoteError, InputError, SpendingError
        The model fails, or costs more than `max_cost`.

    Examples
    --------
    >>> import migrate
    >>> documents = list(migrate.open_store("my-store").documents())
    >>> migrate.embed(documents, "tfidf:24", "new-store")
    <Embedding new-store: 150 vectors of dimension 24>
    """

    def check(self) -> None:
        """Make sure that sizes are of chunks, and that the output does not lie in what is read."""
        if self.no_chunks and (self.chunk_tokens, self.chunk_overlap) != (None, None):
            raise UsageError("--no-chunks leaves documents whole; leave it out, or --chunk-tokens and --chunk-overlap")
        if isinstance(self.corpus, str | Path):
            refuse_overlap(Path(self.output), Path(self.corpus))

    @cached_property
    def embedder(self) -> Embedder:
        """The model, which spends under the cap."""
        return self.cap.meter(model_at(self.model), self.price)

    @property
    def target(self) -> Profile:
        """The profile of the model, which is loaded where only that tells its tokens."""
        from migrate.embedders.abilities import loaded_profile

        return loaded_profile(self.embedder)

    @property
    def leaves_whole(self) -> bool:
        """True where documents are left whole as nothing is said of chunks: a file has vectors of whole ones."""
        sizes = (self.chunk_tokens, self.chunk_overlap)
        return not self.no_chunks and sizes == (None, None) and self.target.kind == "file"

    @cached_property
    def chunk(self) -> ChunkSize | None:
        """The size of chunks; None where documents are left whole."""
        is_read = isinstance(self.corpus, str | Path) or self.chunk_tokens is not None
        if self.no_chunks or self.leaves_whole or not is_read:
            return None
        return chunk_size(self.target, self.chunk_tokens, self.chunk_overlap)

    @cached_property
    def documents(self) -> Callable[[], Iterable[Document]]:
        """Starts reading the documents, in chunks where they are cut."""
        read, target, size = self._source[0], self.target, self.chunk
        if size is None:
            return read
        cut_documents((), target, size)  # a size that cannot be is refused here
        return lambda: cut_documents(read(), target, size)

    @cached_property
    def _source(self) -> tuple[Callable[[], Iterable[Document]], list[Path]]:
        """A function that starts reading whole documents, and the files that these are in."""
        if not isinstance(self.corpus, str | Path):
            return partial(iter, self.corpus), []
        path, max_docs = Path(self.corpus), self.max_docs
        if not path.is_file():
            folder = resolve_beir(str(self.corpus), progress=self.progress)
            path = folder / "corpus.jsonl"
            if max_docs is not None:
                capped = load_beir(folder, split=self.split, max_docs=max_docs, seed=self.seed)
                files = (path, folder / "qrels" / f"{self.split}.tsv")
                return partial(iter, capped.documents), [file for file in files if file.exists()]
        elif max_docs is not None:
            raise UsageError("max_docs caps BEIR sets by their judgements; a JSONL file has none: shorten it instead")
        return partial(read_corpus, path), [path]

    @property
    def chunks(self) -> dict[str, object] | None:
        """The size of chunks and who counts their tokens, as JSON has them."""
        counter = self.target.counter
        return None if self.chunk is None else {**asdict(self.chunk), "counted_by": counter.source}

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The model, for the documents that an unfinished run has not embedded."""
        OutputFolder(Path(self.output)).require_free(force=self.force)
        documents_left_now = partial(documents_left, self.documents, Path(self.output), restart=self.restart)
        return (PlannedModel(self.embedder, self.cap, documents=documents_left_now, again=AGAIN),)

    def execute(self) -> Embedding:
        """Embed the documents, and build the store."""
        files, capped = self._source[1], None if self.max_docs is None else [self.max_docs, self.split, self.seed]
        return embed_corpus(
            self.documents,
            self.embedder,
            Path(self.output),
            store_format=self.format,
            metric=self.metric,
            skip_blank=self.skip_bad,
            files=files,
            options={"chunks": self.chunks, "cap": capped} if files else {},
            force=self.force,
            restart=self.restart,
            progress=self.progress,
        )


embed = function(Embed)
