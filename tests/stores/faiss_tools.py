"""Stores made by FAISS itself, and readers of what lead-migrate made of them."""

import hashlib
import json

import faiss
import numpy as np

from migrate.stores import open_store
from migrate.work.writer import write_rows

COUNT = 400
DIM = 12

# Many small indexes on a busy machine: waiting for threads costs more than they save.
faiss.omp_set_num_threads(1)


def empty_index(factory, dim, metric=faiss.METRIC_L2):
    """What `faiss.index_factory` makes, quick to train."""
    index = faiss.index_factory(dim, factory, metric)
    for part in _trained_parts(index):
        # It only reorders a codebook, for a search that nothing here does, by annealing that takes seconds
        if hasattr(part, "do_polysemous_training"):
            part.do_polysemous_training = False
    return index


def _trained_parts(index):
    """An index, and all that is inside of it."""
    index = faiss.downcast_index(index)
    yield index
    for name in ("index", "base_index", "storage"):
        if getattr(index, name, None) is not None:
            yield from _trained_parts(getattr(index, name))


def build(factory, vectors, *, metric="l2", labels=None):
    number = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
    index = empty_index(factory, vectors.shape[1], number)
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is not None:
        ivf.cp.min_points_per_centroid = 1
    index.train(vectors)
    index.add(vectors) if labels is None else index.add_with_ids(vectors, np.asarray(labels, np.int64))
    return index


def save(index, folder, name="index.faiss"):
    folder.mkdir(parents=True, exist_ok=True)
    faiss.write_index(index, str(folder / name))
    return folder / name


def write_docs(folder, documents, **more):
    """A docs.jsonl of documents, with further fields of a line by its row."""
    lines = [
        {"id": document.id, "text": document.text, "metadata": dict(document.metadata)}
        | {name: make(row) for name, make in more.items()}
        for row, document in enumerate(documents)
    ]
    (folder / "docs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def serialize(index):
    return faiss.serialize_index(index).tobytes()


def read(store, batch_size=97):
    batches = [(list(batch.ids), batch.vectors.copy()) for batch in store.scan(batch_size=batch_size)]
    ids = [doc_id for part, _ in batches for doc_id in part]
    return ids, np.concatenate([part for _, part in batches]) if batches else np.empty((0, store.info.dim), np.float32)


def rewrite(store, folder, transform=lambda vectors: vectors, dim=None):
    """Write the store's vectors, transformed, through its own writer."""
    folder.mkdir()
    writer = store.destination(folder, dim or store.info.dim)
    batches = zip(range(0, store.info.count, 97), store.scan(batch_size=97), strict=True)
    write_rows(writer, ((start, transform(batch.vectors)) for start, batch in batches), store.info.count)
    return open_store(folder)


def digest(folder):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def damaged(path, cuts, first=0, spoils=60):
    """Cut a file after so many bytes, or that part of it, then spoil some bytes in the whole of it, again and again.

    Yields each time whether it was cut; no byte before the `first` is spoilt.
    """
    whole, random = path.read_bytes(), np.random.default_rng(3)
    for cut in cuts:
        path.write_bytes(whole[: int(cut * len(whole)) if isinstance(cut, float) else cut])
        yield True
    for _ in range(spoils):
        content = bytearray(whole)
        for place in random.integers(first, len(whole), 8):
            content[place] = int(random.integers(256))
        path.write_bytes(content)
        yield False
