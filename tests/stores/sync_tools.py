"""Records that change, a model that costs nothing, and commands for processes of their own."""

import hashlib

import numpy as np

from migrate.embedders.base import Embedder
from migrate.manifest import ModelIdentity
from migrate.vectors import Document

DIM, TARGET_DIM = 8, 6


class Hashed(Embedder):
    """A vector for each text, at random but always the same; counts the texts that it was asked for."""

    def __init__(self, name="hashed", dim=TARGET_DIM):
        self.name, self.dim, self.asked = name, dim, []

    @property
    def identity(self):
        return ModelIdentity(self.name, self.dim, True)

    def embed(self, texts, role, *, progress=None):
        self.asked += [text.text for text in texts]
        return np.array([truth(text.text, self.dim) for text in texts], np.float32).reshape(-1, self.dim)


def truth(text, dim=TARGET_DIM):
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    row = np.random.default_rng(seed).normal(size=dim)
    return (row / np.linalg.norm(row)).astype(np.float32)


def old_vector(text):
    return np.random.default_rng(len(text) + sum(text.encode())).normal(size=DIM).astype(np.float32)


def some_records(count=200):
    """Documents by their ids, which are in no order, with their old vectors."""
    # one that is no number, as ids that all are could be those of rows
    names = ["last", *(f"doc-{(77 * row + 5) % count:03d}" for row in range(1, count))]
    return {name: record(name, f"the text of {name}", row) for row, name in enumerate(names)}


def record(name, text, page, vector=None):
    return Document(name, text, {"page": page, "source": "a"}), old_vector(text) if vector is None else vector


def changed(records):
    """The same after some time: 30 added, 20 with another text, 10 with other metadata, 15 deleted, 2 other vectors."""
    ids = sorted(records)
    after = {name: records[name] for name in records if name not in ids[20:35]}
    for name in ids[40:60]:
        after[name] = record(name, f"another text of {name}", 7)
    for name in ids[70:80]:
        document, vector = records[name]
        after[name] = Document(name, document.text, {"page": 1_000, "source": "b"}), vector
    for name in ids[100:102]:
        document, vector = records[name]
        after[name] = document, vector + np.float32(1)
    for number in range(30):
        after[f"new-{number}"] = record(f"new-{number}", f"what is new, {number}", number)
    return after


def translate_in_parts(old, stitch, location, state):
    """Translate a few rows at a time."""
    import os

    import migrate.steps.translate.job as job
    import migrate.translate
    from migrate.stitch.persistence import load_stitch
    from migrate.stores import open_store

    os.environ |= {"SOURCE_DATE_EPOCH": "1700000000", "XDG_STATE_HOME": state}
    migrate.translate._BATCH_BYTES, migrate.translate._FEWEST_ROWS, job._PART_BYTES = 1, 32, 1
    migrate.translate(open_store(old), load_stitch(stitch), location)


def translate_few_at_once(location, replace):
    """Let this process translate, and write into a field, a few rows at a time; `replace` is `setattr` or undoes it."""
    import migrate.steps.translate.job as job
    import migrate.translate
    from migrate.stores import open_store

    replace(migrate.translate, "_BATCH_BYTES", 1)
    replace(migrate.translate, "_FEWEST_ROWS", 32)
    replace(job, "_PART_BYTES", 1)
    store = open_store(location)
    if hasattr(store, "driver"):
        replace(type(store.rows), "at_once", 25)


def translate_into(old, stitch, field, force=False):
    """Translate a few rows at a time into a field of the same records, which is written a few at a time."""
    import migrate.translate
    from migrate.stitch.persistence import load_stitch
    from migrate.stores import open_store

    translate_few_at_once(old, setattr)
    return migrate.translate(open_store(old), load_stitch(stitch), into=field, force=force).remarks


def sync_billed(old, new, cache, bill):
    """Sync; every text that is embedded leaves a line in a file. Whether anything was written."""
    from migrate import sync
    from migrate.embedders.cache import CachedEmbedder
    from migrate.stores import open_store

    class Billed(Hashed):
        def embed(self, texts, role, *, progress=None):
            with bill.open("a") as file:
                file.writelines(f"{text.id}\n" for text in texts)
            return super().embed(texts, role)

    return sync(open_store(old), open_store(new), target=CachedEmbedder(Billed(), cache)).written


def sync_in_parts(old, new, cache, bill):
    """The same a few rows at a time, in a process of its own."""
    import os

    import migrate.translate

    os.environ["SOURCE_DATE_EPOCH"] = "1700000000"
    migrate.translate._BATCH_BYTES, migrate.translate._FEWEST_ROWS = 1, 64
    return sync_billed(old, new, cache, bill)


def reembed_hashed(old, new):
    """Embed a store again by `Hashed`, with vectors as long as the old ones."""
    import migrate

    migrate.reembed(old, Hashed(dim=DIM), new)
