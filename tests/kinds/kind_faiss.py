"""Indexes of FAISS, and arrays of NumPy, with a docs.jsonl."""

import json
import shutil
from pathlib import Path

import faiss
import faiss_tools
import numpy as np
from kind_base import Kind, vectors_of


class Faiss(Kind):
    """An index of any factory; with `labels`, which docs.jsonl names, in no order."""

    def __init__(self, factory="Flat", *, labels=False, metric="l2"):
        self.factory, self.labels, self.metric = factory, labels, metric

    def make(self, folder, records):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.write_vectors(folder, vectors_of(records))
        self.write_documents(folder, [document for document, _ in records.values()])
        return str(folder)

    def write_vectors(self, folder, vectors):
        labels = self.labels_of(len(vectors)) if self.labels else None
        faiss_tools.save(faiss_tools.build(self.factory, vectors, labels=labels, metric=self.metric), folder)

    def write_documents(self, folder, documents):
        labels = self.labels_of(len(documents))
        more = {"faiss_id": lambda row: int(labels[row])} if self.labels else {}
        faiss_tools.write_docs(folder, documents, **more)

    def labels_of(self, count):
        return np.random.default_rng(3).permutation(count) * 7 + 5

    def read(self, location):
        index = faiss.read_index(f"{location}/index.faiss")
        vectors = vectors_by_label(index)
        found = [(doc_id, fields, vectors[fields.get("faiss_id", row)]) for row, doc_id, fields in lines_of(location)]
        return found, {"index": describe_index(index)}


class Arrays(Faiss):
    """Vectors as NumPy saves them."""

    def __init__(self, dtype=np.float32):
        super().__init__()
        self.dtype = dtype

    def write_vectors(self, folder, vectors):
        np.save(folder / "vectors.npy", vectors.astype(self.dtype))

    def read(self, location):
        paths = self.files(location).glob("*.npy")
        (path,) = (path for path in paths if path.name not in ("confidence.npy", "sources.npy"))
        vectors = np.load(path)
        facts = {"file": path.name, "dtype": str(vectors.dtype), "shape": list(vectors.shape)}
        return [(doc_id, fields, vectors[row]) for row, doc_id, fields in lines_of(location)], facts


def lines_of(location):
    """Rows, ids and fields of a docs.jsonl."""
    with Path(location, "docs.jsonl").open(encoding="utf-8") as file:
        for row, line in enumerate(file):
            fields = json.loads(line)
            yield row, fields.pop("id"), fields


def vectors_by_label(index):
    """All vectors of an index, by label."""
    inner = faiss.downcast_index(index)
    if isinstance(inner, faiss.IndexIDMap | faiss.IndexIDMap2):
        rows = vectors_by_label(inner.index)
        labels = faiss.vector_to_array(inner.id_map)
        return {int(label): rows[row] for row, label in enumerate(labels)}
    ivf = faiss.try_extract_index_ivf(inner)
    if ivf is None:
        return dict(enumerate(inner.reconstruct_n(0, inner.ntotal)))
    lists = ivf.invlists
    labels = [faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number)).copy() for number in range(ivf.nlist)]
    ivf.set_direct_map_type(faiss.DirectMap.Hashtable)
    return {int(label): inner.reconstruct(int(label)) for part in labels for label in part}


def describe_index(index):
    """What an index is made of, outermost first."""
    inner = faiss.downcast_index(index)
    facts = {"class": type(inner).__name__, "count": inner.ntotal, "dim": inner.d, "metric": inner.metric_type}
    for name in ("nlist", "nprobe", "by_residual", "code_size"):
        if hasattr(inner, name):
            facts[name] = getattr(inner, name)
    if hasattr(inner, "hnsw"):
        facts["hnsw"] = [inner.hnsw.efConstruction, inner.hnsw.efSearch, inner.hnsw.nb_neighbors(1)]
    for name in ("index", "storage", "quantizer", "base_index", "refine_index"):
        if getattr(inner, name, None) is not None:
            facts[name] = describe_index(getattr(inner, name))
    return facts
