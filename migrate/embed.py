"""Embedding whole corpora for real: a new store from documents, or a full re-embed of a store.

Both go on where a run broke off: what was embedded is not embedded again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from migrate.documents import Document
from migrate.embedders.base import Embedder
from migrate.errors import DatasetError
from migrate.manifest import Manifest, ModelIdentity
from migrate.stamps import FileStamp
from migrate.stores import create_store
from migrate.stores.base import Metric, NewStoreWriter, Resume, Store, StoreWriter
from migrate.vectors import Batch, Progress, no_progress
from migrate.work.configuration import Configuration, source_changed
from migrate.work.folder import Work, make_folder
from migrate.work.parts import GrowingRows, PartRecorder

_DOCUMENTS = 1_024


@dataclass(frozen=True, slots=True)
class Embedding:
    """What embedding a corpus did; `skipped` are the ids of documents without text."""

    path: Path
    count: int
    dim: int
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where documents come from: the files that are read, and the options (of chunking, say) that shape them.

    A run that broke off is only continued with the same files, unchanged, and the same options.
    """

    files: Sequence[Path] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


UNKNOWN = Origin()


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
        options = {**origin.options, **shape, **_model_options(embedder)}
        return Configuration("embed", {"files": sorted(stamp.facts for stamp in stamps)}, options)

    def fill(work: Work) -> dict[str, Any]:
        skipped: list[str] = []
        batches = _batched(_with_text(read_documents(), skipped, skip_blank=skip_blank))
        writer = _take_up_documents(work, batches, str(output), store_format, metric)
        with work.recorder() as recorder:
            for batch in batches:
                further = _further(progress, "embed", work.rows, None)
                vectors = embedder.embed_documents(batch, progress=further)
                writer = writer or create_store(work.content, format=store_format, dim=vectors.shape[1], metric=metric)
                writer.append(batch, vectors)
                _record(recorder, work, writer.rows, embedder, {"documents": _digest(batch)})
        if writer is None:
            raise DatasetError("expected documents to embed, found none; is the corpus empty?")
        writer.finish()
        for stamp in stamps:
            stamp.check()
        return _finish(work, embedder, "embed", "index.faiss") | {"skipped": skipped}

    return _embedding(output, make_folder(output, configure, fill, force=force, restart=restart))


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


def _batched(documents: Iterable[Document]) -> Iterator[Sequence[Document]]:
    stream = iter(documents)
    while batch := list(islice(stream, _DOCUMENTS)):
        yield batch


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


def reembed_store(
    store: Store,
    embedder: Embedder,
    output: Path,
    *,
    force: bool = False,
    restart: bool = False,
    progress: Progress = no_progress,
) -> Embedding:
    """Re-embed every document of a store: a reference store of the same kind, with the same ids in the same order.

    Raises
    ------
    StoreError
        The store has no texts.
    UsageError, OutputError, LockedError, RemoteError, InputError
        As `embed_corpus`.
    """
    before = store.fingerprint()

    def configure() -> Configuration:
        return Configuration("re-embed", store.identity(), _model_options(embedder))

    def fill(work: Work) -> dict[str, Any]:
        work.total = count = store.info.count
        writer: StoreWriter | None = None
        with work.recorder() as recorder:
            for batch in _batched(store.documents(np.arange(work.rows, count))):
                further = _further(progress, "embed the reference", work.rows, count)
                vectors = embedder.embed_documents(batch, progress=further)
                writer = writer or _reference_writer(store, work, vectors.shape[1])
                writer.append(Batch([document.id for document in batch], vectors))
                _record(recorder, work, writer.rows, embedder, {})
        (writer or _reference_writer(store, work, _identity(work, embedder).dim)).finish()
        store.check_unchanged(before)
        return _finish(work, embedder, "full re-embed", str(store.info.details["index"]))

    return _embedding(output, make_folder(output, configure, fill, force=force, restart=restart))


def _reference_writer(store: Store, work: Work, dim: int) -> StoreWriter:
    return store.writer(work.content, dim, Resume(work.rows, work.scratch))


def _model_options(embedder: Embedder) -> dict[str, Any]:
    return {"model": embedder.cache_scope("document"), "documents per batch": _DOCUMENTS}


def _identity(work: Work, embedder: Embedder) -> ModelIdentity:
    """As the first part noted it: a server that nothing was asked of in this run would be asked only for this."""
    known = work.facts.get("model")
    return embedder.identity if known is None else ModelIdentity(**known)


def _record(
    recorder: PartRecorder, work: Work, rows: GrowingRows, embedder: Embedder, facts: Mapping[str, Any]
) -> None:
    """What was paid for is on disk before the next batch is paid for."""
    recorder.record(rows, {**facts, "model": asdict(_identity(work, embedder))})
    recorder.wait()


def _finish(work: Work, embedder: Embedder, made_by: str, index: str) -> dict[str, Any]:
    """Complete what stands beside the rows."""
    identity = _identity(work, embedder)
    embedder.save_state(work.content)
    _manifest(identity, work.rows, made_by, index).write(work.content)
    return {"count": work.rows, "dim": identity.dim}


def _embedding(output: Path, facts: Mapping[str, Any]) -> Embedding:
    return Embedding(output, facts["count"], facts["dim"], tuple(facts.get("skipped", ())))


def _further(progress: Progress, stage: str, before: int, total: int | None) -> Progress:
    """What an embedder reports of a batch, as progress of the whole."""
    return lambda _, done, __: progress(stage, before + done, total)


def _manifest(identity: ModelIdentity, count: int, made_by: str, index: str) -> Manifest:
    return Manifest(
        kind="store",
        model=identity,
        counts={"documents": count},
        details={"made by": made_by, "index": index},
    )
