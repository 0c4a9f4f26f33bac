"""Names the content of a file that is no FAISS index by its first bytes: a Git LFS pointer, a web page ..."""

from __future__ import annotations

from typing import Final

HEAD_BYTES: Final = 512

_BEGINNINGS: Final = {
    b"version https://git-lfs": "a Git LFS pointer; run git lfs pull in its repository, then try again",
    b"\x1f\x8b": "a gzip file; unpack it first",
    b"PK\x03\x04": "a zip file; unpack it first",
    b"BZh": "a bzip2 file; unpack it first",
    b"\xfd7zXZ": "an xz file; unpack it first",
    b"\x28\xb5\x2f\xfd": "a zstd file; unpack it first",
    b"SQLite format 3": "an SQLite database; give the FAISS index instead",
    b"PAR1": "a Parquet file; give the FAISS index instead",
    b"\x89HDF": "an HDF5 file; give the FAISS index instead",
    b"\x93NUMPY": "a NumPy array; give the FAISS index instead",
    b"\x7fELF": "a program; give the FAISS index instead",
    b"%PDF": "a PDF; give the FAISS index instead",
    **{bytes([0x80, protocol]): "a pickle; give the folder, or the .faiss file beside it" for protocol in (2, 3, 4, 5)},
}


def describe_content(head: bytes) -> str:
    """Return what the first bytes of a file show, and what to do about it."""
    if not head:
        return "an empty file; copy or write it again"
    for beginning, found in _BEGINNINGS.items():
        if head.startswith(beginning):
            return found
    begun = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if begun.startswith((b"<!doctype html", b"<html", b"<?xml")):
        return "a web page; download the file itself (the raw file), then try again"
    try:
        # the head may end inside a character
        text = head.decode("utf-8-sig", errors="strict" if len(head) < HEAD_BYTES else "ignore")
    except UnicodeDecodeError:
        text = "\0"
    if all(char.isprintable() or char in "\t\r\n" for char in text):
        return f"{'JSON' if begun.startswith((b'{', b'[')) else 'text'}; give the FAISS index instead"
    shown = head[:4].hex(" ")
    return f"bytes that begin with {shown}; give the file that faiss.write_index or FAISS.save_local wrote"
