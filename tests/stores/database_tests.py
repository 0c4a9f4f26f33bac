"""What the tests of all databases share."""

import hashlib
import json

import numpy as np
from kind_base import records_of

from migrate.stores import open_store
from migrate.stores.registry import output_of
from migrate.testing.stores import StoreTests, example_vectors
from migrate.work.writer import write_rows


class DatabaseTests(StoreTests):
    """Rows in the order of the ids, in folders that `maker` makes."""

    has_rows = False
    same_bytes = False
    maker = None

    def make_store(self, folder, documents, vectors, metric):
        return self.maker.make(folder, backwards(documents, vectors), metric)


class ServerTests(DatabaseTests):
    """Collections of a server, of a name for each folder; `server` is its location, `client` asks it."""

    options = ""

    def make_store(self, folder, documents, vectors, metric):
        self.maker.create(self.client, name_of(folder), backwards(documents, vectors), metric)
        return f"{self.server}#{name_of(folder)}{self.options}"

    def new_location(self, folder):
        return f"{self.server}#{name_of(folder)}"


def name_of(folder):
    """A name for the collection of a folder of a test, the same each time."""
    return f"c{hashlib.sha256(str(folder).encode()).hexdigest()[:20]}"


def backwards(documents, vectors):
    """Records in an order that is not that of their ids."""
    return records_of(documents[::-1], vectors[::-1])


def written(store, location, folder, vectors):
    """What a command writes: the store under `location`, complete, and what is told of it."""
    output = output_of(location)
    content = folder.with_name(f"{folder.name}.content")
    content.mkdir()
    finished = write_rows(output.writer(store, content, vectors.shape[1]), [(0, vectors)], len(vectors))
    output.publish(content, force=False)
    return open_store(output.location), finished


def store_of_lines(folder, *lines):
    """A store of arrays that has documents of these lines of a docs.jsonl, and vectors of 8 dimensions."""
    folder.mkdir()
    np.save(folder / "vectors.npy", example_vectors(len(lines)))
    (folder / "docs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return open_store(folder)


def files_of(folder):
    """Contents and times of all files."""
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}
