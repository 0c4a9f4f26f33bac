"""A corpus, embedded into a new store; and what all embedding shares.

A shard is a batch of documents that is on disk before the next one is paid for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from migrate.embedders.abilities import save_state
from migrate.embedders.base import Embedder
from migrate.embedders.cache import is_kept, with_choosers
from migrate.errors import DatasetError, StoreError
from migrate.files import FileStamp, beside
from migrate.manifest import Manifest, ModelIdentity, StoreFacts
from migrate.selection.model_match import ASKED_AGAIN, Witnesses, claim_of_cache, matches
from migrate.stores import create_store
from migrate.stores.base import Metric, hash_texts
from migrate.stores.create import PICKLE_NAME, NewStoreWriter
from migrate.stores.documents.jsonl import DOCS_NAME
from migrate.stores.file_store import INDEX_NAME, hash_files
from migrate.vectors import Document, Progress, Vectors, check_vectors, no_progress
from migrate.work.jobs import START_OVER, Configuration, StoreJob, Work
from migrate.work.outputs import rows_done, write_store
from migrate.work.shards import Block, Shard, shards_of
from migrate.work.writer import StoreWriter

BATCH_DOCUMENTS = 1_024
"""Documents in one part: what a killed run may have to embed again."""

AGAIN = 3 * ASKED_AGAIN
"""Texts that are embedded again at most: before the first batch, after it, and before the last one is written."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """The result of embedding documents; `skipped` are the ids of those without text.

    `path` is the folder of the new store, or the location of one that lies in none. `remarks` says what of an index
    could not be kept as it was.
    """

    path: Path | str
    count: int
    dim: int
    skipped: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Embedding {self.path}: {self.count:,} vectors of dimension {self.dim:,}>"


def batches_of(count: int, start: int = 0) -> Iterator[Shard]:
    """Return the shards of `count` documents from row `start` on: those of `Batches`."""
    return shards_of(count, BATCH_DOCUMENTS, start)


class Batches:
    """Batches of documents, in order, each embedded when it is asked for.

    An embedder that keeps what it pays for is handed several batches at once, as many as keep a server at work all the
    time: a run that breaks off pays for none of them twice. Any other is handed one.

    Parameters
    ----------
    embedder
        The model.
    documents
        Those that are left to embed.
    report
        Called with the number of documents that are embedded since.
    source
        Begins the message where the model turns out to have changed: where the vectors go.
    done
        Documents that an earlier run has embedded: the model has to give the vectors that the cache has of them.
    """

    def __init__(
        self,
        embedder: Embedder,
        documents: Iterable[Document],
        report: Callable[[int], None],
        *,
        source: str,
        done: Sequence[Document] = (),
    ) -> None:
        self._embedder = with_choosers(embedder, ())
        self._documents = iter(documents)
        self._report = report
        self._ahead = 1
        if is_kept(embedder):
            self._ahead = max(1, embedder.batch_size // BATCH_DOCUMENTS)
        self._read: deque[list[Document]] = deque()
        self._embedded: deque[tuple[list[Document], Vectors]] = deque()
        self._done = 0
        self._source = source
        self._before = list(done)
        self._witnesses = Witnesses()
        self._is_begun = False

    def close(self) -> None:
        """Let go of the documents that are read; nothing further is asked for."""
        # an error that still is on its way would keep it open
        self._documents = iter(())

    def shards(self, start: int) -> Iterator[Shard]:
        """Yield the rows of each batch, from a row on; whoever takes one asks for its vectors before the next."""
        while batch := self._upcoming():
            yield Shard(start, start + len(batch))
            start += len(batch)

    def next(self) -> tuple[list[Document], Vectors]:
        """Return the next batch with its vectors, (n, dim); the one before is durable.

        Raises VectorError: a vector is zero or not finite, the model is another than it was, or its answers do not
        belong to their texts (`migrate.selection.model_match`).
        """
        is_first = not self._is_begun
        self._is_begun = True
        if is_first:
            texts = [*self._before, *self._upcoming()]
            # Before anything is paid for: a cache that another model has filled under this name shows here.
            claim = claim_of_cache(self._embedder, texts)
            matches(claim, self._embedder, past_cache=True).require(self._source)
        # looked up before anything is paid for: reading on may fail
        is_last = self._is_last()
        documents, vectors = self._embed_next()
        # no kind of embedder is trusted: a vector may be zero or not finite
        check_vectors([document.id for document in documents], vectors, source=self._source)
        self._witnesses.add(documents, vectors)
        # A server may change its model, or mix up its answers, in the middle of a run that takes days.
        if is_first or is_last:
            matches(self._witnesses.claim(), self._embedder, past_cache=True).require(self._source)
        return documents, vectors

    def _embed_next(self) -> tuple[list[Document], Vectors]:
        if not self._embedded:
            while len(self._read) < self._ahead and self._read_batch():
                pass
            batches = [self._read.popleft() for _ in range(min(self._ahead, len(self._read)))]
            documents = list(chain.from_iterable(batches))
            vectors = self._embedder.embed_documents(
                documents, progress=lambda _, done, __: self._report(self._done + done)
            )
            self._done += len(documents)
            ends = np.cumsum([len(batch) for batch in batches])
            self._embedded.extend(zip(batches, np.split(vectors, ends[:-1]), strict=True))
        return self._embedded.popleft()

    def _upcoming(self) -> list[Document]:
        if self._embedded:
            return self._embedded[0][0]
        if self._read or self._read_batch():
            return self._read[0]
        return []

    def _is_last(self) -> bool:
        """Return whether no batch comes after the upcoming one."""
        if not self._upcoming():
            return True
        return len(self._embedded) + len(self._read) == 1 and not self._read_batch()

    def _read_batch(self) -> bool:
        batch = list(islice(self._documents, BATCH_DOCUMENTS))
        if batch:
            self._read.append(batch)
        return bool(batch)


def embedded_block(
    work: Work, embedder: Embedder, vectors: Vectors, details: Mapping[str, Any] = MappingProxyType({})
) -> Block:
    """Return the rows of a batch, with the model in its facts, so that a later run need not ask a server for it."""
    return Block({"vectors": vectors}, {**details, "model": asdict(stored_identity(work, embedder))})


def model_options(embedder: Embedder) -> dict[str, Any]:
    """Return what a run that is continued has in common with the one that was begun; costs no embedding."""
    return {"model": embedder.cache_scope("document"), "documents per batch": BATCH_DOCUMENTS}


def stored_identity(work: Work, embedder: Embedder) -> ModelIdentity:
    """Return the model as the first shard has it: a server that nothing was asked of would be asked for this alone."""
    first = next(iter(work.shards), None)
    if first is None:
        return embedder.identity
    return ModelIdentity(**work.shards.details(first)["model"])


def embedding_manifest(
    work: Work,
    embedder: Embedder,
    details: StoreFacts,
    inputs: Mapping[str, str] = MappingProxyType({}),
    counts: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Manifest, dict[str, Any]]:
    """Write the state of the model; return the manifest, and the facts that `as_embedding` takes."""
    identity = stored_identity(work, embedder)
    rows = work.rows
    save_state(embedder, beside(work.content))
    counted = {"documents": rows, **counts}
    manifest = Manifest("store", model=identity, inputs=dict(inputs), counts=counted, details=details.as_details())
    return manifest, {"count": rows, "dim": identity.dim}


def as_embedding(output: Path | str, details: Mapping[str, Any]) -> Embedding:
    """Return the facts of a finished job as a result."""
    skipped, remarks = (tuple(details.get(name, ())) for name in ("skipped", "remarks"))
    return Embedding(output, details["count"], details["dim"], skipped, remarks)


COMMAND = "embed"


def embed_corpus(
    read_documents: Callable[[], Iterable[Document]],
    embedder: Embedder,
    output: Path,
    *,
    store_format: Literal["faiss", "langchain"] = "faiss",
    metric: Metric = "ip",
    skip_blank: bool = False,
    files: Sequence[Path] = (),
    options: Mapping[str, Any] = MappingProxyType({}),
    force: bool = False,
    restart: bool = False,
    progress: Progress = no_progress,
) -> Embedding:
    """Build a new flat store from documents.

    `read_documents` starts reading them; it is called twice, as a model that is fitted on its corpus reads it first.
    A run that broke off is continued, unless `restart` discards it, with the same `files` that are read, unchanged, and
    the same `options` that shape documents, such as those of chunking.

    Raises DatasetError: there are no documents, or one has a blank text and `skip_blank` is not given. StoreError: the
    documents changed while they were read, or since unfinished work was begun. UsageError, OutputError, LockedError:
    the output exists, cannot be written, or is being written by another run; or unfinished work was begun with other
    options. RemoteError, InputError: as the embedder.
    """
    job = _CorpusJob(read_documents, embedder, store_format, metric, skip_blank, files, options, progress)
    with closing(job):
        return as_embedding(output, write_store(output, job, force=force, restart=restart))


@dataclass(eq=False)
class _CorpusJob(StoreJob):
    """Documents that are read as a stream, so that their shards are found as they come."""

    read_documents: Callable[[], Iterable[Document]]
    embedder: Embedder
    format: Literal["faiss", "langchain"]
    metric: Metric
    skip_blank: bool
    files: Sequence[Path]
    options: Mapping[str, Any]
    progress: Progress

    stage = COMMAND
    waits = True
    in_order = True

    def __post_init__(self) -> None:
        self._stamps = [FileStamp.of(path) for path in self.files]
        self._skipped: list[str] = []
        self._open = ExitStack()

    def close(self) -> None:
        """Let go of the documents that are read."""
        self._open.close()

    def configuration(self) -> Configuration:
        # First: what a model learns of the corpus is a part of what it is known by in the options.
        self.embedder.fit(_documents_with_text(self.read_documents(), self.skip_blank, []))
        shape = {"format": self.format, "metric": self.metric, "skip blank": self.skip_blank}
        options = {**self.options, **shape, **model_options(self.embedder)}
        return Configuration(COMMAND, {"files": sorted(stamp.signature for stamp in self._stamps)}, options)

    def writer(self, work: Work, dim: int) -> NewStoreWriter:
        goes_on = bool(len(work.shards))
        self._writer = create_store(work.content, format=self.format, dim=dim, metric=self.metric, goes_on=goes_on)
        return self._writer

    def begin(self, work: Work) -> None:
        documents = _documents_with_text(self.read_documents(), self.skip_blank, self._skipped)
        self._work = work
        self._rows = work.rows
        # It takes the first documents off the stream, so that what is left there is what is left to embed.
        done = self._keep(work, documents)

        def report(done: int) -> None:
            self.progress(self.stage, self._rows + done, None)

        self._batches = Batches(self.embedder, documents, report, source=str(work.output), done=done)
        self._open.callback(self._batches.close)

    def shards(self, work: Work) -> Iterator[Shard]:
        return self._batches.shards(self._rows)

    def blocks(self, shard: Shard) -> Iterator[Block]:
        documents, vectors = self._batches.next()
        # Here, as the first vectors alone tell the dimension.
        self._work.writer(vectors.shape[1])
        self._writer.keep(documents)
        details = {"documents": hash_texts((document.id, document.text) for document in documents)}
        yield embedded_block(self._work, self.embedder, vectors, details)

    def finish(self, work: Work, writer: StoreWriter) -> dict[str, Any]:
        writer.finish(work.all_rows(writer.dim), work.shards)
        # The files were read as a stream, twice: rows of two versions of one would be a store that nobody has.
        for stamp in self._stamps:
            stamp.check()
        manifest, details = embedding_manifest(work, self.embedder, StoreFacts(made_by=COMMAND))
        documents = (PICKLE_NAME if self.format == "langchain" else DOCS_NAME,)
        hashes = hash_files(work.content, INDEX_NAME, documents)
        replace(manifest, details={**manifest.details, **hashes}).write(work.content)
        return {**details, "skipped": self._skipped}

    def _keep(self, work: Work, documents: Iterator[Document]) -> list[Document]:
        """Hand the documents that are embedded already to the writer, after making sure that they are the same.

        Those of the first shard are returned.
        """
        first: list[Document] = []
        for shard in work.shards:
            batch = list(islice(documents, len(shard)))
            details = work.shards.details(shard)
            if hash_texts((document.id, document.text) for document in batch) != details["documents"]:
                raise StoreError(
                    f"{work.output}: the documents up to number {shard.stop} changed since the unfinished work was "
                    f"begun; {START_OVER}"
                )
            work.writer(details["dim"])
            self._writer.keep(batch)
            first = first or batch
        return first


def _documents_with_text(documents: Iterable[Document], skip_blank: bool, skipped: list[str]) -> Iterator[Document]:
    """Yield the documents with a text; the ids of others are added to `skipped`, or the first one is an error."""
    for document in documents:
        if document.text.strip():
            yield document
        elif skip_blank:
            skipped.append(document.id)
        else:
            raise DatasetError(
                f"document {document.id!r} has no text to embed; give it one, or drop it with `skip_bad=True`"
            )


def documents_left(
    read_documents: Callable[[], Iterable[Document]], output: Path, *, restart: bool = False
) -> Iterator[Document]:
    """Yield the documents that `embed_corpus` would still embed, without those that an earlier run did."""
    worded = (document for document in read_documents() if document.text.strip())
    return islice(worded, 0 if restart else rows_done(output, COMMAND), None)
