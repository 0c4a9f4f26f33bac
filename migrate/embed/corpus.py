"""A corpus, embedded into a new store.

What all embedding shares: batches of documents that are on disk before the next one is paid for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from migrate.checkpoint.folder import Configuration, Work, make_folder, rows_done, source_changed
from migrate.checkpoint.journal import GrowingRows, PartRecorder
from migrate.embedders.base import Embedder
from migrate.errors import DatasetError
from migrate.files import FileStamp
from migrate.manifest import Manifest, ModelIdentity
from migrate.stores import create_store
from migrate.stores.base import Metric, NewStoreWriter
from migrate.stores.create import INDEX_NAME, PICKLE_NAME
from migrate.stores.documents.jsonl import DOCS_NAME
from migrate.stores.file_store import hash_files
from migrate.vectors import Document, Progress, Vectors, no_progress

BATCH_DOCUMENTS = 1_024
"""Documents in one part: what a killed run may have to embed again."""

NO_INPUTS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Embedding:
    """What embedding a corpus did; `skipped` are the ids of documents without text."""

    path: Path
    count: int
    dim: int
    skipped: tuple[str, ...] = ()


def batched(documents: Iterable[Document]) -> Iterator[Sequence[Document]]:
    """The documents in parts of `BATCH_DOCUMENTS`."""
    stream = iter(documents)
    while batch := list(islice(stream, BATCH_DOCUMENTS)):
        yield batch


def embedded(
    embedder: Embedder, batches: Iterable[Sequence[Document]], report: Callable[[], Progress]
) -> Iterator[tuple[Sequence[Document], Vectors]]:
    """Each batch with its vectors, (n, dim); `report` is asked anew, before each call, whom to tell of its progress.

    An embedder that keeps what it pays for is handed several batches at once, as many as keep a server at work all the
    time: a run that breaks off pays for none of them twice. Any other is handed one.
    """
    stream = iter(batches)
    ahead = max(1, embedder.batch_size // BATCH_DOCUMENTS) if embedder.keeps else 1
    while block := list(islice(stream, ahead)):
        vectors = embedder.embed_documents(list(chain.from_iterable(block)), progress=report())
        start = 0
        for batch in block:
            yield batch, vectors[start : start + len(batch)]
            start += len(batch)


def model_options(embedder: Embedder) -> dict[str, Any]:
    """What a run that is continued must have in common with the one that was begun; costs no embedding."""
    return {"model": embedder.cache_scope("document"), "documents per batch": BATCH_DOCUMENTS}


def noted_identity(work: Work, embedder: Embedder) -> ModelIdentity:
    """As the first part noted it: a server that nothing was asked of in this run would be asked only for this."""
    known = work.facts.get("model")
    return embedder.identity if known is None else ModelIdentity(**known)


def record_batch(
    recorder: PartRecorder, work: Work, rows: GrowingRows, embedder: Embedder, facts: Mapping[str, Any]
) -> None:
    """What was paid for is on disk before the next batch is paid for."""
    recorder.record(rows, {**facts, "model": asdict(noted_identity(work, embedder))})
    recorder.wait()


def finish_beside(
    work: Work,
    embedder: Embedder,
    made_by: str,
    hashes: Mapping[str, Any],
    inputs: Mapping[str, str] = NO_INPUTS,
) -> dict[str, Any]:
    """Complete what stands beside the rows; `hashes` are of the files, as `hash_files` gives them."""
    identity = noted_identity(work, embedder)
    embedder.save_state(work.content)
    details = {"made by": made_by, **hashes}
    counts = {"documents": work.rows}
    Manifest("store", model=identity, inputs=dict(inputs), counts=counts, details=details).write(work.content)
    return {"count": work.rows, "dim": identity.dim}


def as_embedding(output: Path, facts: Mapping[str, Any]) -> Embedding:
    """The facts that `finish_beside` gave, as a result."""
    return Embedding(output, facts["count"], facts["dim"], tuple(facts.get("skipped", ())))


def further(progress: Progress, stage: str, before: int, total: int | None) -> Progress:
    """What an embedder reports of a batch, as progress of the whole."""
    return lambda _, done, __: progress(stage, before + done, total)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where documents come from: the files that are read, and the options (of chunking, say) that shape them.

    A run that broke off is only continued with the same files, unchanged, and the same options.
    """

    files: Sequence[Path] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


UNKNOWN = Origin()
COMMAND = "embed"


def embed_corpus(
    read_documents: Callable[[], Iterable[Document]],
    embedder: Embedder,
    output: Path,
    *,
    store_format: Literal["faiss", "langchain"] = "faiss",
    metric: Metric = "ip",
    skip_blank: bool = False,
    origin: Origin = UNKNOWN,
    force: bool = False,
    restart: bool = False,
    progress: Progress = no_progress,
) -> Embedding:
    """Build a new flat store from documents.

    `read_documents` starts reading them; it is called twice, as a model that is fitted on its corpus reads it first.
    A run that broke off is continued, unless `restart` discards it.

    Raises
    ------
    DatasetError
        There are no documents, or one has a blank text and `skip_blank` is not given.
    StoreError
        The documents changed while they were read, or since unfinished work was begun.
    UsageError, OutputError, LockedError
        The output exists, cannot be written, or is being written by another run; or unfinished work was begun with
        other options.
    RemoteError, InputError
        As the embedder.
    """
    stamps = [FileStamp.of(path) for path in origin.files]

    def configure() -> Configuration:
        embedder.fit(_with_text(read_documents(), [], skip_blank=skip_blank))
        shape = {"format": store_format, "metric": metric, "skip blank": skip_blank}
        options = {**origin.options, **shape, **model_options(embedder)}
        return Configuration(COMMAND, {"files": sorted(stamp.facts for stamp in stamps)}, options)

    def fill(work: Work) -> dict[str, Any]:
        skipped: list[str] = []
        batches = batched(_with_text(read_documents(), skipped, skip_blank=skip_blank))
        writer = _take_up_documents(work, batches, str(output), store_format, metric)
        with work.recorder() as recorder:
            for batch, vectors in embedded(embedder, batches, lambda: further(progress, "embed", work.rows, None)):
                writer = writer or create_store(work.content, format=store_format, dim=vectors.shape[1], metric=metric)
                writer.append(batch, vectors)
                record_batch(recorder, work, writer.rows, embedder, {"documents": _digest(batch)})
        if writer is None:
            raise DatasetError("expected documents to embed, found none; is the corpus empty?")
        writer.finish()
        for stamp in stamps:
            stamp.check()
        documents = (PICKLE_NAME if store_format == "langchain" else DOCS_NAME,)
        hashes = hash_files(work.content, INDEX_NAME, documents)
        return finish_beside(work, embedder, COMMAND, hashes) | {"skipped": skipped}

    return as_embedding(output, make_folder(output, configure, fill, force=force, restart=restart))


def documents_left(
    read_documents: Callable[[], Iterable[Document]], output: Path, *, restart: bool = False
) -> Iterator[Document]:
    """The documents that `embed_corpus` would still embed into `output`, without those that an earlier run did."""
    worded = (document for document in read_documents() if document.text.strip())
    return islice(worded, 0 if restart else rows_done(output, COMMAND), None)


def _with_text(documents: Iterable[Document], skipped: list[str], *, skip_blank: bool) -> Iterator[Document]:
    for document in documents:
        if document.text.strip():
            yield document
        elif skip_blank:
            skipped.append(document.id)
        else:
            raise DatasetError(
                f"document {document.id!r}: expected a text to embed, found none; drop it with --skip-bad"
            )


def _take_up_documents(
    work: Work,
    batches: Iterator[Sequence[Document]],
    name: str,
    store_format: Literal["faiss", "langchain"],
    metric: Metric,
) -> NewStoreWriter | None:
    """A writer that has the documents of the parts that are embedded already; None where there are none."""
    if not work.parts:
        return None
    dim = work.facts["model"]["dim"]
    writer = create_store(work.content, format=store_format, dim=dim, metric=metric, kept=work.rows)
    for part in work.parts:
        batch = next(batches, [])
        if _digest(batch) != part.facts["documents"]:
            work.disputed = True
            raise source_changed(f"{name}: the documents up to number {part.rows}")
        writer.keep(batch)
    return writer


def _digest(documents: Sequence[Document]) -> str:
    """SHA-256 of ids and texts; metadata are written anew in any case."""
    digest = hashlib.sha256()
    for document in documents:
        for text in (document.id, document.text):
            content = text.encode("utf-8", "surrogatepass")
            digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()
