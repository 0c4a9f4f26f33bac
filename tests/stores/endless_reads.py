"""Reads a store of one kind again and again, each time with another of its files replaced by what is no file.

For a process of its own: a reading that waits for ever, or fills the memory or the disk, ends it.
"""

import faulthandler
import json
import os
import resource
import shutil
import socket
from pathlib import Path

import sync_tools as tools
from kind_faiss import Faiss
from kinds import kind_class

from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.errors import LeadMigrateError
from migrate.files import SQLITE_JOURNALS
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence
from migrate.stores.old_checksums import stored_sources
from migrate.testing.stores import example_vectors
from migrate.vectors import Document

COUNT = 60
TOO_LONG_S = 120
MOST_MEMORY_BYTES = 8 << 30
MOST_FILE_BYTES = 1 << 28


class OwnFile(Faiss):
    """A file of the user's own beside an index."""

    def write_documents(self, folder, documents):
        records = [{"id": d.id, "text": d.text, **d.metadata} for d in documents]
        (folder / "index.json").write_text(json.dumps(records))


class HuggingFace(Faiss):
    """A dataset beside an index."""

    def write_documents(self, folder, documents):
        from test_huggingface import write_dataset

        write_dataset(folder, {"id": [d.id for d in documents], "text": [d.text for d in documents]}, shards=2)


class LlamaIndex(Faiss):
    """What LlamaIndex's `persist` writes."""

    def write_vectors(self, folder, vectors):
        super().write_vectors(folder, vectors)
        (folder / "index.faiss").rename(folder / "default__vector_store.json")

    def write_documents(self, folder, documents):
        from test_llamaindex import node, write_index_store, write_nodes

        write_nodes(folder, {d.id: node(d.id, d.text) for d in documents})
        write_index_store(folder, {str(row): d.id for row, d in enumerate(documents)})


OWN = {kind.__name__: kind for kind in (OwnFile, HuggingFace, LlamaIndex)}


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def full_device(path):
    path.symlink_to("/dev/full")


def listener(path):
    """A socket, whose whole path would be too long a name."""
    with socket.socket(socket.AF_UNIX) as bound:
        place = os.open(path.parent, os.O_RDONLY)
        bound.bind(f"/proc/self/fd/{place}/{path.name}")
        os.close(place)


def folder(path):
    path.mkdir()


def read(location):
    """All that is read of a store."""
    store = open_store(location)
    batch = read_all(store.scan())
    documents = list(store.documents())
    beside = [stored_confidence(store), stored_sources(store)]
    store.companions.verify()
    manifest = store.info.manifest
    model = load_embedder(manifest.model.spec, state=store.folder)
    query = model.embed([Document("1", "the text of 5")], "query")
    numbers = [None if values is None else values.tolist() for values in (batch.vectors, *beside, query)]
    return list(batch.ids), documents, numbers, manifest


def made(kind):
    """The location of a store that was translated into the kind, so that all is beside it that may be."""
    maker = OWN[kind]() if kind in OWN else kind_class(kind)()
    vectors = example_vectors(COUNT, tools.DIM)
    records = {
        f"doc-{row:03d}": tools.record(f"doc-{row:03d}", f"the text of {row}, about {row % 7}", row, vectors[row])
        for row in range(COUNT)
    }
    old, new = maker.make(Path("old"), records), maker.place(Path("new"))
    assert run(["fit", old, "--target", "tfidf:6", "--sample", "40", "--kind", "ridge", "-q", "-o", "stitch"]) == 0
    assert run(["translate", old, "stitch", "-q", "-o", new]) == 0
    return new


def endings(kind, place):
    """How each reading ended, by the file and what was put in its place: an error in one line, or what was read."""
    os.chdir(place)
    location = made(kind)
    faulthandler.dump_traceback_later(TOO_LONG_S, exit=True)
    sound = read(location)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY_BYTES,) * 2)
    paths = sorted(path for path in Path("new").rglob("*") if path.is_file())
    databases = [path for path in paths if path.suffix in (".db", ".sqlite", ".sqlite3")]
    paths += [path.with_name(path.name + ending) for path in databases for ending in SQLITE_JOURNALS]
    ended = {}
    for path in paths:
        for replace in (pipe, device, full_device, listener, folder):
            print(f"{path}: a {replace.__name__}", flush=True)  # where a reading ends this process
            ended[f"{path}: a {replace.__name__}"] = ending(location, sound, path, replace)
    assert read(location) == sound
    return ended


def ending(location, sound, path, replace):
    aside = Path("aside")
    is_there = path.exists()
    if is_there:
        path.rename(aside)
    replace(path)
    try:
        return "the same" if read(location) == sound else "another store"
    except LeadMigrateError as error:
        return f"{error.exit_code}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        if is_there:
            aside.rename(path)
