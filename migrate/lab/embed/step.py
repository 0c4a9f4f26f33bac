"""Embed: documents to a new store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.errors import UsageError
from migrate.files import refuse_overlap
from migrate.lab.embed.options import EmbedOptions
from migrate.steps.base import JobStep, RunContext, function

if TYPE_CHECKING:
    from migrate.embed import Embedding
    from migrate.lab.embed.job import EmbedJob


@dataclass(frozen=True, eq=False)
class Embed(EmbedOptions, JobStep["Embedding"]):
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

    def open(self, context: RunContext | None = None) -> EmbedJob:
        """Load the model, and find the documents. Nothing is embedded."""
        from migrate.lab.embed.job import open_embed

        return open_embed(self, context or RunContext())


embed = function(Embed)
