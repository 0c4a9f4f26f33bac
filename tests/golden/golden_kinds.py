"""Stores of every kind, made, changed and read by the kind's own client alone.

`read` gives the records in the client's own order as (id, fields, vector or None), and facts of the whole: settings,
types. `tools` makes the plain ones; what only some kinds have (half precision, other vectors, rows without a vector)
is made here.
"""

import json
import shutil
import uuid
from contextlib import ExitStack, closing
from pathlib import Path

import faiss_tools
import golden_data
import numpy as np
import sync_tools as tools
from golden_data import OLD_DIM

from migrate.vectors import Document


def flat(records):
    """The records as they are: no field is nested or null."""
    return records


def nested(records):
    """The same with fields of any depth, and null."""
    values = ({"a": {"b": [1, None, {"c": ""}]}}, [], {}, None, [1, 2.5, "3"])
    return {
        name: (Document(d.id, d.text, {**d.metadata, "nested": values[d.metadata["page"] % 5]}), vector)
        for name, (d, vector) in records.items()
    }


def path_of(location):
    """The folder or file of a location."""
    return Path(location.partition("#")[0].rpartition(":")[2])


class Kind:
    """A kind: `needs` names what has to be installed, `is_exact` tells that vectors are kept to the bit.

    `tolerance` is how far sums of vectors may be from the golden ones on another machine; `target` and `source` are
    the models, `can_embed_old` tells that a plain command can check it against the source model.
    """

    needs = ()
    is_exact = True
    tolerance = 1e-3
    shape = staticmethod(nested)
    maker = tools.Folder
    runs = False
    """The command `run` is tried as well: once a family."""

    def __init__(self, folder, ends):
        self.folder, self.ends = folder, ends
        self.tools = self.maker()
        self.start()

    def start(self):
        """Start what the kind needs."""

    def make(self, documents):
        """The old store; returns where."""
        self.records = self.shape(records_of(documents))
        return self.fill(self.folder / "old", self.records)

    def fill(self, folder, records):
        return self.tools.make(folder, records)

    def change(self, location, documents):
        """Change what differs."""
        after = self.shape(records_of(documents))
        for name, (document, vector) in after.items():
            before = self.records.get(name)
            if before is not None and before[0] == document and np.array_equal(before[1], vector):
                after[name] = before
        self.alter(location, self.records, after)
        self.records = after

    def alter(self, location, before, after):
        self.tools.change(location, before, after)

    def new(self, name):
        """Where a new store goes, as `-o` takes it."""
        return self.tools.new(self.folder / name)

    def opened(self, name):
        """How a new store is opened, by migrate."""
        return self.new(name)

    def place(self, location):
        """The folder of files of a store, or None."""
        return path_of(location)

    def read(self, location):
        """(records, facts)."""
        raise NotImplementedError


def records_of(documents):
    """Documents by id, with their vectors."""
    return {d.id: (d, golden_data.embed(d.text, "old", OLD_DIM)) for d in documents}


def read_jsonl(folder):
    with (folder / "docs.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Faiss(Kind):
    """An index with a docs.jsonl."""

    factory, labels, metric = "Flat", False, "l2"

    def fill(self, folder, records):
        shutil.rmtree(folder, ignore_errors=True)
        count = len(records)
        labels = np.random.default_rng(3).permutation(count) * 7 + 5 if self.labels else None
        vectors = np.array([vector for _, vector in records.values()])
        faiss_tools.save(faiss_tools.build(self.factory, vectors, labels=labels, metric=self.metric), folder)
        self.tools.write_documents(folder, [document for document, _ in records.values()])
        if labels is not None:
            lines = (folder / "docs.jsonl").read_text().splitlines()
            named = (f'{line[:-1]}, "faiss_id": {label}}}' for line, label in zip(lines, labels, strict=True))
            (folder / "docs.jsonl").write_text("\n".join(named) + "\n")
        return str(folder)

    def alter(self, location, before, after):
        self.fill(Path(location), after)

    def read(self, location):
        return read_faiss(Path(location), read_jsonl(Path(location)))


def read_faiss(folder, lines, name="index.faiss"):
    """Documents with the vectors of the labels that they name, or of their row."""
    import faiss

    index = faiss.read_index(str(folder / name))
    facts = {"index": describe_index(index)}
    vectors = vectors_by_label(index)
    found = []
    for row, line in enumerate(lines):
        label = line.get("faiss_id", row)
        found.append((line["id"], {key: value for key, value in line.items() if key != "id"}, vectors[label]))
    return found, facts


def vectors_by_label(index):
    """All vectors of an index, by label."""
    import faiss

    inner = faiss.downcast_index(index)
    if isinstance(inner, faiss.IndexIDMap | faiss.IndexIDMap2):
        rows = vectors_by_label(inner.index)
        labels = faiss.vector_to_array(inner.id_map)
        return {int(label): rows[row] for row, label in enumerate(labels)}
    ivf = faiss.try_extract_index_ivf(inner)
    if ivf is None:
        return dict(enumerate(inner.reconstruct_n(0, inner.ntotal)))
    lists = ivf.invlists
    labels = [
        faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number)).copy() for number in range(ivf.nlist)
    ]
    ivf.make_direct_map(True) if max(map(max, (x for x in labels if len(x)))) < inner.ntotal else None
    if ivf.direct_map.type == faiss.DirectMap.NoMap:
        ivf.set_direct_map_type(faiss.DirectMap.Hashtable)
    return {int(label): inner.reconstruct(int(label)) for part in labels for label in part}


def describe_index(index):
    """What an index is made of, outermost first."""
    import faiss

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


class FaissTfidf(Faiss):
    """The same with the vectors of `tfidf:32`, moved to `tfidf:24`: a model that is saved beside what it made."""


class FaissIp(Faiss):
    metric = "ip"


class FaissIvf(Faiss):
    factory = "IVF8,Flat"


class FaissIvfPq(Faiss):
    factory, is_exact, tolerance = "IVF8,PQ8x4", False, 0.5


class FaissSq(Faiss):
    factory, is_exact, tolerance = "SQ8", False, 0.05


class FaissHnsw(Faiss):
    factory = "HNSW8,Flat"


class FaissIdMap(Faiss):
    factory, labels = "IDMap,Flat", True


class FaissIdMapIvf(Faiss):
    factory, labels, is_exact = "IDMap2,IVF8,SQfp16", True, False


class Arrays(Kind):
    maker = tools.Arrays

    def read(self, location):
        folder = Path(location)
        (path,) = (path for path in folder.glob("*.npy") if path.name not in ("confidence.npy", "sources.npy"))
        vectors = np.load(path)
        facts = {"file": path.name, "dtype": str(vectors.dtype), "shape": list(vectors.shape)}
        lines = read_jsonl(folder)
        fields = [(line["id"], {key: value for key, value in line.items() if key != "id"}) for line in lines]
        return [(*pair, vector) for pair, vector in zip(fields, vectors, strict=True)], facts


class ArraysHalf(Arrays):
    """Vectors in half precision."""

    is_exact = False

    def fill(self, folder, records):
        location = super().fill(folder, records)
        path = folder / "vectors.npy"
        np.save(path, np.load(path).astype(np.float16))
        return location

    def alter(self, location, before, after):
        self.fill(Path(location), after)


KINDS = {
    "faiss-flat": Faiss,
    "faiss-ip": FaissIp,
    "faiss-ivf": FaissIvf,
    "faiss-ivfpq": FaissIvfPq,
    "faiss-sq8": FaissSq,
    "faiss-hnsw": FaissHnsw,
    "faiss-idmap": FaissIdMap,
    "faiss-idmap-ivf": FaissIdMapIvf,
    "arrays": Arrays,
    "arrays-half": ArraysHalf,
}
"""Kinds by name."""
