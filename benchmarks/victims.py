"""What `survive.py` runs and kills: small stores of every kind, a stitch, a corpus, an embedder that keeps its bill."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

import migrate.embed.corpus as corpus
import migrate.steps.translate.job as job
import migrate.translate as translation
from migrate.embed import embed_corpus, reembed_store
from migrate.embedders import Embedder, Role
from migrate.manifest import Manifest, ModelIdentity
from migrate.selection import Pairs
from migrate.steps.fit.job import fit_pairs
from migrate.steps.translate import Translate
from migrate.stitch.persistence import load_stitch
from migrate.stitch.text_reader import TextReader
from migrate.stores import create_store, open_store
from migrate.stores.base import Metric
from migrate.vectors import Document, Progress, Text, Vectors, no_progress

DIM, TARGET_DIM = 64, 48
PART_DOCUMENTS = 256
TRANSLATED = {"flat": "Flat", "idmap2": "IDMap2,Flat", "langchain": "", "ivf": "IVF16,Flat", "hnsw": "HNSW8,Flat"}
TEXTS = "texts"
KINDS = (*TRANSLATED, TEXTS, "embed", "re-embed")
Job = Callable[[Path], object]


class CountingEmbedder(Embedder):
    """Vectors from a hash of the text; every text that is embedded leaves a byte in a file."""

    cacheable = False

    def __init__(self, bill: Path) -> None:
        self.bill = bill

    @property
    def identity(self) -> ModelIdentity:
        """A name, as nothing was learned."""
        return ModelIdentity("counting", TARGET_DIM, normalized=True)

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed texts, and pay."""
        rows = [np.frombuffer(hashlib.shake_128(text.text.encode()).digest(TARGET_DIM), np.int8) for text in texts]
        vectors = np.array(rows, np.float32).reshape(-1, TARGET_DIM) + np.float32(0.5)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        with self.bill.open("ab") as file:
            file.write(b"." * len(texts))
        return vectors


def documents(count: int) -> Iterable[Document]:
    """Documents that differ."""
    return (Document(f"doc-{row}", f"the text of document {row}", {"row": row}) for row in range(count))


def make_store(kind: str, folder: Path, rows: int) -> None:
    """A store of random vectors, written by FAISS itself where it is not new."""
    import faiss

    vectors = np.random.default_rng(0).standard_normal((rows, DIM), dtype=np.float32)
    folder.mkdir(parents=True)
    if kind in ("langchain", "re-embed", TEXTS):
        metric: Metric = "ip"
        writer = create_store(folder, format="langchain" if kind == "langchain" else "faiss", dim=DIM, metric=metric)
        writer.append(list(documents(rows)), vectors)
        writer.finish()
        return
    index = faiss.index_factory(DIM, TRANSLATED[kind])
    index.train(vectors)
    index.add_with_ids(vectors, np.arange(rows) * 3 + 7) if kind == "idmap2" else index.add(vectors)
    faiss.write_index(index, str(folder / "index.faiss"))


def make_stitch(source: Path, folder: Path, *, reads_texts: bool = False) -> None:
    """A stitch for a store, fitted on some of its rows."""
    store = open_store(source)
    rows = np.arange(200)
    batch = store.get(rows)
    target = batch.vectors @ np.random.default_rng(1).standard_normal((DIM, TARGET_DIM)).astype(np.float32)
    model = CountingEmbedder(folder).identity
    manifest = Manifest("stitch", model=model, details={"fingerprint": store.snapshot().fingerprint})
    pairs = Pairs(tuple(batch.ids), batch.vectors, target)
    if not reads_texts:
        fit_pairs(pairs, ["ridge"], manifest=manifest, state={}, seed=0).save(folder)
        return
    texts = [document.text for document in store.documents(rows)]
    reader = TextReader.fit(texts)
    fitted = fit_pairs(pairs, ["ridge+text"], manifest=manifest, state={}, seed=0, texts=texts, reader=reader)
    fitted.save(folder)


def make_parts_small(put: Callable[[object, str, object], None] = setattr) -> None:
    """Let a small store have many parts; and the manifest the same date every time."""
    os.environ["SOURCE_DATE_EPOCH"] = "1700000000"
    put(translation, "_BATCH_BYTES", 1 << 16)
    put(translation, "_FEWEST_ROWS", 64)
    put(job, "_PART_BYTES", 1 << 17)
    put(corpus, "BATCH_DOCUMENTS", PART_DOCUMENTS)


def prepare(kind: str, folder: Path, rows: int) -> None:
    """Everything that a job reads."""
    if kind != "embed":
        make_store(kind, folder / "source", rows)
    if kind in (*TRANSLATED, TEXTS):
        make_stitch(folder / "source", folder / "stitch", reads_texts=kind == TEXTS)


def job_of(kind: str, folder: Path, rows: int, *, force: bool = False) -> Job:
    """What is run again and again, to the output it is given."""
    source, stitch, bill = folder / "source", folder / "stitch", CountingEmbedder(folder / "bill")
    if kind == "embed":
        return lambda output: embed_corpus(lambda: documents(rows), bill, output, force=force)
    if kind == "re-embed":
        return lambda output: reembed_store(open_store(source), bill, output, force=force)
    return lambda output: Translate(open_store(source), load_stitch(stitch), output, force=force).run()


def digest(folder: Path) -> dict[str, str]:
    """Hash of every file of a folder."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*"))}
