"""Spoils the index: its bytes, or the whole of it for another one that FAISS writes."""

import hashlib
import json
import os
import shutil
import struct

import faiss
import numpy as np
from fault_place import spoiler

HEADER_BYTES = 45
DIM = 32
ROWS = 150
ROW_BYTES = DIM * 4


def content(place):
    return bytearray(place.index.read_bytes())


@spoiler
def put(place, value):
    place.index.write_bytes(value)


@spoiler
def edit(place, change):
    place.index.write_bytes(change(content(place)))


@spoiler
def pack(place, offset, layout, value):
    raw = content(place)
    struct.pack_into(layout, raw, offset, value)
    place.index.write_bytes(raw)


def flipped(raw, byte, bit=0):
    changed = bytearray(raw)
    changed[byte] ^= 1 << bit
    return changed


@spoiler
def flip(place, byte):
    place.index.write_bytes(flipped(content(place), byte))


@spoiler
def then(place, *spoilers):
    """One after the other."""
    for spoil in spoilers:
        spoil(place)


def change_manifest(place, folder, change):
    """Change the facts of a manifest, which has no hash of its own then, like an older one."""
    path = place / folder / "lead-migrate.json"
    facts = json.loads(path.read_text())
    facts.pop("manifest_sha256", None)
    change(facts)
    path.write_text(json.dumps(facts))


def forget_checksum(place):
    change_manifest(place, "store", lambda facts: facts["details"].pop("index_hash", None))


def forget_documents(place):
    """The manifest knows no hash of the documents."""
    change_manifest(place, "store", lambda facts: facts["details"].pop("documents_hashes", None))


def flipped_copy(place):
    shutil.copytree(place / "store", place / "copy")
    (place / "copy/index.faiss").write_bytes(flipped(content(place), 9_999))


def forget_texts(place):
    """The manifest knows no hash of the documents, and no stitch that of the texts."""
    if (place / "store/lead-migrate.json").is_file():
        forget_documents(place)
    if (place / "stitch/lead-migrate.json").is_file():
        change_manifest(place, "stitch", lambda facts: facts["details"]["fingerprint"].pop("texts_hash", None))


def random_rows():
    return np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)


@spoiler
def faiss_writes(place, make):
    """Replace the index by one that FAISS makes of rows; the documents go, so that its labels are the ids."""
    place.docs.unlink(missing_ok=True)
    made = make(random_rows())
    write = faiss.write_index_binary if isinstance(made, faiss.IndexBinary) else faiss.write_index
    write(made, str(place.index))
    digest = hashlib.sha256(place.index.read_bytes()).hexdigest()
    hashes = {"index_hash": digest, "documents_hashes": {}}
    change_manifest(place, "store", lambda facts: facts["details"].update(hashes))


def of_factory(factory):
    """What `faiss.index_factory` makes, trained and filled."""

    def make(rows):
        index = faiss.index_factory(DIM, factory)
        index.train(np.tile(rows, (4, 1)))
        if factory.startswith("IDMap"):
            index.add_with_ids(rows, np.arange(len(rows)) * 7 + 1000)
        else:
            index.add(rows)
        return index

    return make


def binary(rows):
    index = faiss.IndexBinaryFlat(64)
    index.add(np.packbits(rows[:, :1].repeat(64, axis=1) > 0, axis=1))
    return index


def labelled(*first):
    def make(rows):
        index = faiss.IndexIDMap2(faiss.IndexFlatIP(DIM))
        index.add_with_ids(rows, np.r_[first, np.arange(len(rows))[len(first) :]].astype(np.int64))
        return index

    return make


def untrained(_rows):
    return faiss.index_factory(DIM, "IVF4,Flat")


def empty(_rows):
    return faiss.IndexFlatIP(DIM)


def fractions_as_bytes(rows):
    index = faiss.index_factory(DIM, "SQ8_direct")
    index.train(rows)
    index.add(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return index


def two_metrics(rows):
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(DIM), DIM, 4, faiss.METRIC_INNER_PRODUCT)
    index.train(rows)
    index.add(rows)
    return index


def graph_without_vectors(place):
    index = faiss.IndexHNSWFlat(DIM, 8)
    index.add(random_rows())
    place.docs.unlink()
    faiss.write_index(index, str(place.index), faiss.IO_FLAG_SKIP_STORAGE)


def lists_on_disk(place):
    """An index with its lists in a second file, in a folder that is not the store."""
    place.docs.unlink()
    forget_checksum(place)
    forget_texts(place)
    lists_file = place / "elsewhere/lists.ivfdata"
    lists_file.parent.mkdir()
    index = of_factory("IVF4,Flat")(random_rows())
    lists = faiss.OnDiskInvertedLists(index.nlist, index.code_size, str(lists_file))
    lists.merge_from(index.invlists, index.ntotal)
    index.replace_invlists(lists)
    faiss.write_index(index, str(place.index))
    return lists_file


def lists_elsewhere(place):
    lists_on_disk(place)


def lists_missing(place):
    lists_on_disk(place).unlink()


def lists_moved_beside(place):
    lists_on_disk(place).rename(place / "store/lists.ivfdata")


def lists_linked(place):
    (place / "store/lists.ivfdata").symlink_to(lists_on_disk(place))


def lists_cut(place):
    lists_moved_beside(place)
    path = place / "store/lists.ivfdata"
    os.truncate(path, path.stat().st_size - 1)


@spoiler
def fifo(place, name):
    """A pipe into which nobody writes, in the place of a file."""
    (place / name).unlink(missing_ok=True)
    os.mkfifo(place / name)


@spoiler
def device(place, name):
    (place / name).unlink()
    (place / name).symlink_to("/dev/zero")


def as_folder(place):
    place.index.unlink()
    place.index.mkdir()


def second_index(place):
    (place / "store/second.faiss").write_bytes(content(place))


@spoiler
def unreadable(place, name):
    (place / name).chmod(0)
    place.unprivileged = True


def read_only(place):
    for path in (place / "store").iterdir():
        path.chmod(0o444)
    (place / "store").chmod(0o555)
    place.unprivileged = True
