"""Embedding whole corpora for real: a new store from documents, or a full re-embed of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from migrate.documents import Document
from migrate.embedders.base import Embedder
from migrate.errors import DatasetError
from migrate.files import atomic_folder, output_lock
from migrate.manifest import Manifest
from migrate.stores import create_store
from migrate.stores.base import Metric, Store
from migrate.vectors import Batch, Progress, no_progress

_DOCUMENTS = 1_024


@dataclass(frozen=True, slots=True)
class Embedding:
    """What embedding a corpus did; `skipped` are the ids of documents without text."""

    path: Path
    count: int
    dim: int
    skipped: tuple[str, ...] = ()


def embed_corpus(
    read_documents: Callable[[], Iterable[Document]],
    embedder: Embedder,
    output: Path,
    *,
    store_format: Literal["faiss", "langchain"] = "faiss",
    metric: Metric = "ip",
    skip_blank: bool = False,
    force: bool = False,
    progress: Progress = no_progress,
) -> Embedding:
    """Build a new flat store from documents.

    `read_documents` starts reading them; it is called twice, as a model that is fitted on its corpus reads it first.

    Raises
    ------
    DatasetError
        There are no documents, or one has a blank text and `skip_blank` is not given.
    UsageError, OutputError, LockedError
        The output exists, cannot be written, or is being written by another run.
    RemoteError, InputError
        As the embedder.
    """
    skipped: list[str] = []
    with output_lock(output), atomic_folder(output, force=force) as aside:
        embedder.fit(_with_text(read_documents(), [], skip_blank=skip_blank))
        writer, count = None, 0
        for batch in _batched(_with_text(read_documents(), skipped, skip_blank=skip_blank)):
            vectors = embedder.embed_documents(batch, progress=_further(progress, "embed", count, None))
            if writer is None:
                writer = create_store(aside, format=store_format, dim=vectors.shape[1], metric=metric)
            writer.append(batch, vectors)
            count += len(batch)
        if writer is None:
            raise DatasetError("expected documents to embed, found none; is the corpus empty?")
        writer.finish()
        embedder.save_state(aside)
        _manifest(embedder, count, "embed", "index.faiss").write(aside)
    return Embedding(output, count, embedder.identity.dim, tuple(skipped))


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


def reembed_store(
    store: Store, embedder: Embedder, output: Path, *, force: bool = False, progress: Progress = no_progress
) -> Embedding:
    """Re-embed every document of a store: a reference store of the same kind, with the same ids in the same order.

    Raises
    ------
    StoreError
        The store has no texts.
    UsageError, OutputError, LockedError, RemoteError, InputError
        As `embed_corpus`.
    """
    count = store.info.count
    with output_lock(output), atomic_folder(output, force=force) as aside:
        writer = store.writer(aside, embedder.identity.dim)
        done = 0
        for batch in _batched(store.documents()):
            further = _further(progress, "embed the reference", done, count)
            vectors = embedder.embed_documents(batch, progress=further)
            writer.append(Batch([document.id for document in batch], vectors))
            done += len(batch)
        writer.finish()
        embedder.save_state(aside)
        _manifest(embedder, count, "full re-embed", str(store.info.details["index"])).write(aside)
    return Embedding(output, count, embedder.identity.dim)


def _further(progress: Progress, stage: str, before: int, total: int | None) -> Progress:
    """What an embedder reports of a batch, as progress of the whole."""
    return lambda _, done, __: progress(stage, before + done, total)


def _manifest(embedder: Embedder, count: int, made_by: str, index: str) -> Manifest:
    return Manifest(
        kind="store",
        model=embedder.identity,
        counts={"documents": count},
        details={"made by": made_by, "index": index},
    )
