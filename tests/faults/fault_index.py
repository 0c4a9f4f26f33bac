"""Spoils the index: its bytes, or the whole of it for another one that FAISS writes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import faiss
import numpy as np
from fault_place import Place, Spoiler

HEADER_BYTES = 45
DIM = 32
ROWS = 150
ROW_BYTES = DIM * 4

Make = Callable[[np.ndarray], faiss.Index]


def content(place: Place) -> bytearray:
    return bytearray(place.index.read_bytes())


def put(value: bytes) -> Spoiler:
    """Replace the bytes of the index."""
    return lambda place: place.index.write_bytes(value)


def edit(change: Callable[[bytearray], bytes | bytearray]) -> Spoiler:
    """Change the bytes of the index."""
    return lambda place: place.index.write_bytes(change(content(place)))


def pack(offset: int, layout: str, value: int) -> Spoiler:
    """Write a number into the index."""

    def spoil(place: Place) -> None:
        raw = content(place)
        struct.pack_into(layout, raw, offset, value)
        place.index.write_bytes(raw)

    return spoil


def flip(place_of_byte: int, bit: int = 0) -> Spoiler:
    """Flip one bit of the index."""

    def change(raw: bytearray) -> bytearray:
        raw[place_of_byte] ^= 1 << bit
        return raw

    return edit(change)


def then(*spoilers: Spoiler) -> Spoiler:
    """One after the other."""

    def spoil(place: Place) -> None:
        for part in spoilers:
            part(place)

    return spoil


def change_details(place: Place, folder: str, change: Callable[[dict], object]) -> None:
    """Change the details of a manifest, which has no hash of its own then, like an older one."""
    path = place / folder / "lead-migrate.json"
    facts = json.loads(path.read_text())
    facts.pop("manifest_sha256", None)
    change(facts["details"])
    path.write_text(json.dumps(facts))


def forget_checksum(place: Place) -> None:
    """The manifest knows no hash of the index."""
    change_details(place, "store", lambda details: details.pop("index_sha256", None))


def forget_documents(place: Place) -> None:
    """The manifest knows no hash of the documents."""
    change_details(place, "store", lambda details: details.pop("documents_sha256", None))


def flipped_copy(place: Place) -> None:
    """Beside the store stands a copy with a flipped bit."""
    shutil.copytree(place / "store", place / "copy")
    path = place / "copy/index.faiss"
    raw = bytearray(path.read_bytes())
    raw[9_999] ^= 1
    path.write_bytes(raw)


def forget_texts(place: Place) -> None:
    """The manifest knows no hash of the documents, and no stitch that of the texts."""
    if (place / "store/lead-migrate.json").is_file():
        forget_documents(place)
    if (place / "stitch/lead-migrate.json").is_file():
        change_details(place, "stitch", lambda details: details["fingerprint"].pop("texts_sha256", None))


def renew_checksum(place: Place) -> None:
    """The manifest has the hash of the index as it is, and none of documents."""
    digest = hashlib.sha256(place.index.read_bytes()).hexdigest()
    change_details(place, "store", lambda details: details.update(index_sha256=digest, documents_sha256={}))


def random_rows(count: int = ROWS) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, DIM)).astype(np.float32)


def faiss_writes(make: Make) -> Spoiler:
    """Replace the index by one that FAISS writes; the documents go, so that its labels are the ids."""

    def spoil(place: Place) -> None:
        place.docs.unlink(missing_ok=True)
        made = make(random_rows())
        write = faiss.write_index_binary if isinstance(made, faiss.IndexBinary) else faiss.write_index
        write(made, str(place.index))
        renew_checksum(place)

    return spoil


def of_factory(factory: str, metric: int = faiss.METRIC_L2) -> Make:
    """What `faiss.index_factory` makes, trained and filled."""

    def make(rows: np.ndarray) -> faiss.Index:
        index = faiss.index_factory(DIM, factory, metric)
        index.train(np.tile(rows, (4, 1)))
        if factory.startswith("IDMap"):
            index.add_with_ids(rows, np.arange(len(rows)) * 7 + 1000)
        else:
            index.add(rows)
        return index

    return make


def binary(rows: np.ndarray) -> faiss.IndexBinary:
    index = faiss.IndexBinaryFlat(64)
    index.add(np.packbits(rows[:, :1].repeat(64, axis=1) > 0, axis=1))
    return index


def other_metric(rows: np.ndarray) -> faiss.Index:
    index = faiss.IndexFlat(DIM, faiss.METRIC_L1)
    index.add(rows)
    return index


def labelled(*first: int) -> Make:
    """An id map whose first ids are these."""

    def make(rows: np.ndarray) -> faiss.Index:
        index = faiss.IndexIDMap2(faiss.IndexFlatIP(DIM))
        index.add_with_ids(rows, np.r_[first, np.arange(len(rows))[len(first) :]].astype(np.int64))
        return index

    return make


def sparse_lists(rows: np.ndarray) -> faiss.Index:
    index = of_factory("IVF4,Flat")(rows)
    index.reset()
    index.add_with_ids(rows, np.arange(len(rows)) * 1_000_003)
    return index


def lists_that_lost_a_row(rows: np.ndarray) -> faiss.Index:
    index = of_factory("IVF4,Flat")(rows)
    index.reset()
    rows[7] = np.nan
    index.add(rows)
    return index


def untrained(_rows: np.ndarray) -> faiss.Index:
    return faiss.index_factory(DIM, "IVF4,Flat")


def empty(_rows: np.ndarray) -> faiss.Index:
    return faiss.IndexFlatIP(DIM)


def fractions_as_bytes(rows: np.ndarray) -> faiss.Index:
    index = faiss.index_factory(DIM, "SQ8_direct")
    index.train(rows)
    index.add(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return index


def two_metrics(rows: np.ndarray) -> faiss.Index:
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(DIM), DIM, 4, faiss.METRIC_INNER_PRODUCT)
    index.train(rows)
    index.add(rows)
    return index


def graph_without_vectors(place: Place) -> None:
    index = faiss.IndexHNSWFlat(DIM, 8)
    index.add(random_rows())
    place.docs.unlink()
    faiss.write_index(index, str(place.index), faiss.IO_FLAG_SKIP_STORAGE)


def lists_on_disk(place: Place) -> Path:
    """An index with its lists in a second file, in a folder that is not the store."""
    place.docs.unlink()
    forget_checksum(place)
    forget_texts(place)
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    index = of_factory("IVF4,Flat")(random_rows())
    lists = faiss.OnDiskInvertedLists(index.nlist, index.code_size, str(elsewhere / "lists.ivfdata"))
    lists.merge_from(index.invlists, index.ntotal)
    index.replace_invlists(lists)
    faiss.write_index(index, str(place.index))
    return elsewhere / "lists.ivfdata"


def lists_elsewhere(place: Place) -> None:
    lists_on_disk(place)


def lists_missing(place: Place) -> None:
    lists_on_disk(place).unlink()


def lists_moved_beside(place: Place) -> None:
    lists_on_disk(place).rename(place / "store/lists.ivfdata")


def lists_linked(place: Place) -> None:
    (place / "store/lists.ivfdata").symlink_to(lists_on_disk(place))


def lists_cut(place: Place) -> None:
    lists_moved_beside(place)
    path = place / "store/lists.ivfdata"
    os.truncate(path, path.stat().st_size - 1)


def fifo(name: str) -> Spoiler:
    """A pipe into which nobody writes, in the place of a file."""

    def spoil(place: Place) -> None:
        (place / name).unlink(missing_ok=True)
        os.mkfifo(place / name)

    return spoil


def device(name: str) -> Spoiler:
    """A file without an end."""

    def spoil(place: Place) -> None:
        (place / name).unlink()
        (place / name).symlink_to("/dev/zero")

    return spoil


def as_folder(place: Place) -> None:
    place.index.unlink()
    place.index.mkdir()


def second_index(place: Place) -> None:
    (place / "store/second.faiss").write_bytes(content(place))


def unreadable(name: str) -> Spoiler:
    def spoil(place: Place) -> None:
        (place / name).chmod(0)
        place.unprivileged = True

    return spoil


def read_only(place: Place) -> None:
    for path in (place / "store").iterdir():
        path.chmod(0o444)
    (place / "store").chmod(0o555)
    place.unprivileged = True


def flips_in(make: Make | None, count: int) -> Spoiler:
    """Flip bits of the first bytes in turn; the checksum stays that of the sound index."""

    def spoil(place: Place) -> Iterator[None]:
        if make is not None:
            faiss_writes(make)(place)
        sound = content(place)
        for byte in range(count):
            for bit in (0, 3, 7):
                spoiled = sound.copy()
                spoiled[byte] ^= 1 << bit
                place.index.write_bytes(spoiled)
                yield

    return spoil
