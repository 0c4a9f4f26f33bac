"""What is tried of each kind of store: how its stores differ, and which commands are left out."""

from dataclasses import dataclass, field
from pathlib import Path

import golden_data
import numpy as np
from golden_data import OLD_DIM
from kinds import KINDS as PLAIN
from kinds import TYPED, Entry, kind_class

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


def with_metadata(records):
    """The same nested ones, of which LlamaIndex embeds the metadata with the text."""
    from kind_llamaindex import embedded_text

    return {
        name: (document, golden_data.embed(embedded_text(document), "old", OLD_DIM))
        for name, (document, _) in nested(records).items()
    }


def records_of(documents):
    """Documents by id, with their vectors."""
    return {d.id: (d, golden_data.embed(d.text, "old", OLD_DIM)) for d in documents}


@dataclass(frozen=True)
class Golden:
    """What is tried of a kind.

    `settings` are those of its class. `is_exact` tells that vectors are kept to the bit. `tolerance` is how far sums of
    vectors may be from the golden ones on another machine. `shape` gives documents the metadata that the kind can hold.
    `runs` adds the command `run`, for one kind of each family. A variant differs from another kind in how its vectors
    are kept alone: what depends on that is done with it, and no audit, check or refusal. `is_once` has its own steps.
    """

    entry: Entry
    settings: dict = field(default_factory=dict)
    is_exact: bool = True
    tolerance: float = 1e-3
    shape: object = nested
    runs: bool = False
    is_variant: bool = False
    is_once: bool = False


class Stores:
    """Stores of a kind in the current folder, whose records change; what it needs ends with `ends`."""

    def __init__(self, golden, ends):
        self.golden = golden
        made = kind_class(golden.entry)
        self.kind = made(**golden.settings) if golden.settings else made.started(ends, Path("server").absolute())

    def make(self, documents):
        """The old store; returns where."""
        self.records = self.golden.shape(records_of(documents))
        return self.kind.make(Path("old"), self.records)

    def change(self, location, documents):
        """Change what differs."""
        after = self.golden.shape(records_of(documents))
        for name, (document, vector) in after.items():
            before = self.records.get(name)
            if before is not None and before[0] == document and np.array_equal(before[1], vector):
                after[name] = before  # what is the same object is not written again
        self.kind.change(location, self.records, after)
        self.records = after

    def new(self, name):
        """Where a new store goes, as `-o` takes it."""
        return self.kind.place(Path(name))

    def opened(self, name):
        """How a new store is opened, by migrate."""
        return self.new(name) + self.kind.options


_FAISS = PLAIN["faiss"]

KINDS = {
    # a model of TF-IDF, which is saved beside what it made, and commands that ask for no kind
    "once": Golden(_FAISS, tolerance=2e-3, is_once=True),
    "faiss-flat": Golden(_FAISS),
    "faiss-ip": Golden(_FAISS, {"metric": "ip"}, is_variant=True),
    "faiss-ivf": Golden(_FAISS, {"factory": "IVF8,Flat"}, is_variant=True),
    "faiss-ivfpq": Golden(_FAISS, {"factory": "IVF8,PQ8x4"}, is_exact=False, tolerance=0.5, is_variant=True),
    "faiss-hnsw": Golden(_FAISS, {"factory": "HNSW8,Flat"}, is_variant=True),
    "faiss-idmap": Golden(_FAISS, {"factory": "IDMap,Flat", "labels": True}, is_variant=True),
    "faiss-idmap-ivf": Golden(
        _FAISS, {"factory": "IDMap2,IVF8,SQ8", "labels": True}, is_exact=False, tolerance=0.05, is_variant=True
    ),
    "arrays": Golden(PLAIN["arrays"]),
    "arrays-half": Golden(PLAIN["arrays"], {"dtype": np.float16}, is_exact=False, is_variant=True),
    "pickle": Golden(PLAIN["pickle"]),
    "langchain": Golden(PLAIN["langchain"], runs=True),
    "langchain-ivf": Golden(PLAIN["langchain"], {"factory": "IVF8,Flat"}, is_variant=True),
    "llamaindex": Golden(PLAIN["llamaindex"], shape=with_metadata),
    "parquet": Golden(TYPED["parquet"], runs=True),
    "parquet-file": Golden(TYPED["parquet-file"], is_exact=False, is_variant=True),
    "lancedb": Golden(TYPED["lancedb"], runs=True),
    "lancedb-half": Golden(TYPED["lancedb"], {"dtype": np.float16}, is_exact=False, is_variant=True),
    "chroma": Golden(TYPED["chroma"], shape=flat),
    "qdrant": Golden(TYPED["qdrant"]),
    "qdrant-server": Golden(TYPED["qdrant-server"]),
    "sqlite-vec": Golden(TYPED["sqlite-vec"], runs=True),
    "sqlite": Golden(TYPED["sqlite"], runs=True),
    "pgvector": Golden(TYPED["pgvector"], runs=True),
}
"""Kinds by name."""
