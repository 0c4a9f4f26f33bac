"""Says what a file that is no FAISS index is, from its first bytes: a Git LFS pointer, a web page, an archive ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

HEAD_BYTES: Final = 512

_COMPRESSED: Final = {
    b"\x1f\x8b": "a gzip file",
    b"PK\x03\x04": "a zip file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
}
_FOREIGN: Final = {
    b"SQLite format 3": "an SQLite database",
    b"PAR1": "a Parquet file",
    b"\x89HDF": "an HDF5 file",
    b"\x93NUMPY": "a NumPy array",
    b"\x7fELF": "a program",
    b"%PDF": "a PDF",
}


def describe_content(head: bytes) -> str:
    """What the first bytes of a file show and what to do, as `found ...; do ...`."""
    for recognise in (_pointer_or_page, _archive, _other_format):
        if found := recognise(head):
            return found
    shown = head[:4].hex(" ")
    return f"bytes that begin with {shown}; give the file that faiss.write_index or FAISS.save_local wrote"


def _pointer_or_page(head: bytes) -> str | None:
    if not head:
        return "an empty file; copy or write it again"
    if head.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer; run git lfs pull in its repository, then try again"
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith((b"<!doctype html", b"<html", b"<?xml")):
        return "a web page; download the file itself (the raw file), then try again"
    return None


def _archive(head: bytes) -> str | None:
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            return f"{name}; unpack it first"
    return None


def _other_format(head: bytes) -> str | None:
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            return f"{name}; give the FAISS index instead"
    tests: list[tuple[Callable[[bytes], bool], str]] = [
        (_is_pickle, "a pickle; give the folder, or the .faiss file beside it"),
        (_is_json, "JSON; give the FAISS index instead"),
        (_is_text, "text; give the FAISS index instead"),
    ]
    return next((found for test, found in tests if test(head)), None)


def _is_pickle(head: bytes) -> bool:
    return len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= 5


def _is_json(head: bytes) -> bool:
    return _is_text(head) and head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))


def _is_text(head: bytes) -> bool:
    try:
        # The head may end inside a character.
        text = head.decode("utf-8-sig", errors="strict" if len(head) < HEAD_BYTES else "ignore")
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\t\r\n" for char in text)
