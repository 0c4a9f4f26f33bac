"""What all embedding shares: batches of documents that are on disk before the next one is paid for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from migrate.documents import Document
from migrate.embedders.base import Embedder
from migrate.manifest import Manifest, ModelIdentity
from migrate.stores.base import hash_files
from migrate.vectors import Progress, Vectors
from migrate.work.parts import GrowingRows, PartRecorder
from migrate.work.place import Work

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
    index: str,
    documents: Iterable[str],
    inputs: Mapping[str, str] = NO_INPUTS,
) -> dict[str, Any]:
    """Complete what stands beside the rows."""
    identity = noted_identity(work, embedder)
    embedder.save_state(work.content)
    details = {"made by": made_by, **hash_files(work.content, index, documents)}
    counts = {"documents": work.rows}
    Manifest("store", model=identity, inputs=dict(inputs), counts=counts, details=details).write(work.content)
    return {"count": work.rows, "dim": identity.dim}


def as_embedding(output: Path, facts: Mapping[str, Any]) -> Embedding:
    """The facts that `finish_beside` gave, as a result."""
    return Embedding(output, facts["count"], facts["dim"], tuple(facts.get("skipped", ())))


def further(progress: Progress, stage: str, before: int, total: int | None) -> Progress:
    """What an embedder reports of a batch, as progress of the whole."""
    return lambda _, done, __: progress(stage, before + done, total)
