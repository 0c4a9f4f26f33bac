"""The first bytes of FAISS files and of files that are none, and the bytes around the vectors of flat indexes."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.stores.base import WAY_TO_TEXTS, Metric

METRICS: Final[dict[int, Metric]] = {0: "ip", 1: "l2"}
# Code, dimension, count, two numbers that are not used, a flag, the metric, and how many floats follow.
FLAT_HEAD_BYTES: Final = 45
# Arbitrary: no model comes near it, and most damaged headers are far beyond.
LARGEST_DIM: Final = 1 << 20
METRIC_NUMBERS: Final[dict[Metric, int]] = {name: number for number, name in METRICS.items()}
# Arbitrary: enough to tell what else a file is by its beginning.
HEAD_BYTES: Final = 512
_GIVE_VECTORS: Final = "give the file or folder that holds the vectors"
_INDEX_NAMES: Final = (".faiss", ".index", ".bin")


def is_index(head: bytes) -> bool:
    """Return whether these first bytes can be those of a FAISS file: a code of four characters, then no more text."""
    is_code = re.fullmatch(rb"I[A-Za-z][A-Za-z0-9]{2}", head[:4]) is not None
    return is_code and re.fullmatch(rb"[ -~\s]{4}", head[4:8]) is None  # a dimension


def is_named_as_index(path: Path) -> bool:
    """Return whether a file has a name that programs give to indexes."""
    return path.suffix in _INDEX_NAMES


def not_an_index(path: Path, head: bytes) -> StoreError:
    """Return the error of a file that begins with `head` and is no index of FAISS, to be raised."""
    expected = "a FAISS index" if is_named_as_index(path) else "a store"
    return StoreError(f"{path}: this is not {expected} but {describe_content(head)}")


def describe_content(head: bytes) -> str:
    """Return what the first bytes of a file show, and what to do about it."""
    if not head:
        return "an empty file; copy or write it again"
    beginnings = {
        b"version https://git-lfs": "a Git LFS pointer; run git lfs pull in its repository, then try again",
        b"\x1f\x8b": "a gzip file; unpack it first",
        b"PK\x03\x04": "a zip file; unpack it first",
        b"BZh": "a bzip2 file; unpack it first",
        b"\xfd7zXZ": "an xz file; unpack it first",
        b"\x28\xb5\x2f\xfd": "a zstd file; unpack it first",
        b"SQLite format 3": "an SQLite database; name its table of vectors, as sqlite:FILE#TABLE",
        b"PAR1": "a Parquet file; give it as parquet:FILE",
        b"\x89HDF": f"an HDF5 file; write its vectors as a .npy by numpy.save, and {WAY_TO_TEXTS}",
        b"\x93NUMPY": "a NumPy array; rename it to end in .npy",
        b"\x7fELF": f"a program; {_GIVE_VECTORS}",
        b"%PDF": f"a PDF; {_GIVE_VECTORS}",
        **dict.fromkeys(
            (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
            "a pickle; give the folder, or the .faiss file beside it",
        ),
    }
    for beginning, content in beginnings.items():
        if head.startswith(beginning):
            return content
    begun = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if begun.startswith((b"<!doctype html", b"<html", b"<?xml")):
        return "a web page; download the file itself (the raw file), then try again"
    try:
        # the head may end inside a character
        text = head.decode("utf-8-sig", errors="strict" if len(head) < HEAD_BYTES else "ignore")
    except UnicodeDecodeError:
        text = "\0"
    if all(char.isprintable() or char in "\t\r\n" for char in text):
        if begun.startswith((b"{", b"[")):
            return f"JSON without vectors; {_GIVE_VECTORS}, or name their field, as records:FILE#?vector=FIELD"
        return f"text without vectors; {_GIVE_VECTORS}"
    shown = head[:4].hex(" ")
    return f"bytes that begin with {shown}; give the file that faiss.write_index or FAISS.save_local wrote"


def _head(code: str, dim: int, count: int, metric: Metric) -> bytes:
    """Return a code and the header of a trained index; FAISS ignores the two numbers in its middle."""
    # 1 << 20 is what FAISS itself writes there, so that files are the same to the byte.
    return struct.pack("<4siqqqBi", code.encode(), dim, count, 1 << 20, 1 << 20, 1, METRIC_NUMBERS[metric])


def flat_head(dim: int, count: int, metric: Metric) -> bytes:
    """Return the bytes before the vectors of an IndexFlatL2 or IndexFlatIP, 45 of them."""
    return _head("IxFI" if metric == "ip" else "IxF2", dim, count, metric) + struct.pack("<Q", count * dim)


def read_flat_head(head: bytes, size: int) -> tuple[int, int, Metric] | None:
    """Return dimension, count and metric of a file of `size` bytes that begins as `flat_head`; None for any other."""
    # the one head that is not left to FAISS: nothing follows it but the vectors, and no process has to be started
    if len(head) < FLAT_HEAD_BYTES:
        return None
    _, dim, count, _, _, _, number, _ = struct.unpack("<4siqqqBiQ", head[:FLAT_HEAD_BYTES])
    metric = METRICS.get(number)
    if metric is None or not 0 < dim <= LARGEST_DIM or count < 0 or size != FLAT_HEAD_BYTES + 4 * dim * count:
        return None
    same = flat_head(dim, count, metric)
    # the two numbers in the middle are ignored by FAISS, too
    if head[:16] + head[32:FLAT_HEAD_BYTES] != same[:16] + same[32:]:
        return None
    return (dim, count, metric)


def id_map_ends(kind: str, dim: int, metric: Metric, labels: NDArray[np.int64] | None) -> tuple[bytes, bytes]:
    """Return the bytes before and after the index inside an IDMap or IDMap2; none for other kinds."""
    # FAISS writes an index from memory alone; around these bytes the vectors of any number are streamed to their place
    if kind not in {"IDMap", "IDMap2"} or labels is None:
        return b"", b""
    head = _head("IxMp" if kind == "IDMap" else "IxM2", dim, labels.size, metric)
    return head, struct.pack("<Q", labels.size) + labels.astype("<i8", copy=False).tobytes()
