"""The hash of what is written and read: BLAKE3, noted as `blake3:HEX`. HEX alone is SHA-256, of earlier versions.

Names that only have to differ, as those of files in a cache, are SHA-256 all the same (`migrate.files`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Final, Protocol, Self

from blake3 import blake3

from migrate.errors import ManifestError
from migrate.files import open_file
from migrate.progress import note_progress

BLAKE3: Final = "blake3"
SHA256: Final = "sha256"

# A call for each text takes half as long again (0.40 s in place of 0.24 s for 400,000 ids); more at once gains nothing.
_AT_ONCE: Final = 1 << 16

_READ_BYTES: Final = 1 << 18
_TOLD_BYTES: Final = 1 << 28
"""Bytes of a file between two reports of how far its hash is."""

_DISPLAY_NAMES: Final = {BLAKE3: "BLAKE3", SHA256: "SHA-256"}

_EARLIER_NAMES: Final = {
    "index_sha256": "index_hash",
    "documents_sha256": "documents_hashes",
    "beside_sha256": "beside_hashes",
    "ids_sha256": "ids_hash",
    "vectors_sha256": "vectors_hash",
    "texts_sha256": "texts_hash",
}


class Hasher(Protocol):
    """A hash of bytes that come piece by piece."""

    @property
    def name(self) -> str:
        """The name of the function."""
        ...

    def update(self, content: memoryview | bytes | bytearray, /) -> object:
        """Take further bytes."""
        ...

    def hexdigest(self) -> str:
        """Return the hash of the bytes so far."""
        ...

    def copy(self) -> Self:
        """Return another hash of the same bytes, to be continued by others."""
        ...


_MAKERS: Final[dict[str, Callable[[], Hasher]]] = {BLAKE3: blake3, SHA256: hashlib.sha256}


def new_hasher(function: str = BLAKE3) -> Hasher:
    """Return the hash of no bytes yet."""
    return _MAKERS[function]()


def present_names(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts by the names of now; an earlier version named the function there, and hashes bare."""
    return {_EARLIER_NAMES.get(name, name): value for name, value in facts.items()}


def noted(hasher: Hasher) -> str:
    """Return a hash as files have it."""
    if hasher.name == SHA256:
        return hasher.hexdigest()
    return f"{hasher.name}:{hasher.hexdigest()}"


def function_of(note: str, source: object) -> str:
    """Return the name of the function in a hash that `source` has; ManifestError for one that is not known here."""
    name, separator, _ = note.rpartition(":")
    if not separator:
        return SHA256
    if name not in _MAKERS:
        raise ManifestError(
            f"{source}: has a hash by {name[:20]!r}, and this version knows {' and '.join(_MAKERS)}; install the "
            "version that wrote it, or a newer one"
        )
    return name


def digits_of(note: str) -> str:
    """Return a hash without the name of its function, for the name of a file."""
    return note.rpartition(":")[2]


def update_texts(hasher: Hasher, texts: Iterable[str]) -> None:
    """Let a hash take texts, each after its length, so that no others are the same bytes; many at once, for speed."""
    waiting = bytearray()
    for text in texts:
        # JSON can spell half a character, so an id may hold one: it gets a hash, and is refused where it matters.
        content = text.encode(errors="surrogatepass")
        waiting += len(content).to_bytes(8, "little")
        waiting += content
        if len(waiting) >= _AT_ONCE:
            hasher.update(waiting)
            waiting.clear()
    hasher.update(waiting)


def hash_bytes(*pieces: bytes | memoryview, function: str = BLAKE3) -> str:
    """Return the hash of bytes, as files have it."""
    hasher = new_hasher(function)
    for piece in pieces:
        hasher.update(piece)
    return noted(hasher)


def hash_open_file(file: IO[bytes], function: str = BLAKE3) -> str:
    """Return the hash of what is left to read of an open file, read in constant memory."""
    hasher = new_hasher(function)
    buffer = bytearray(_READ_BYTES)
    read = 0
    reported = 0
    while size := file.readinto(buffer):  # type: ignore[attr-defined]
        hasher.update(memoryview(buffer)[:size])
        read += size
        if read - reported >= _TOLD_BYTES:
            note_progress("hash", read, os.fstat(file.fileno()).st_size)
            reported = read
    return noted(hasher)


def hash_file(path: Path, function: str = BLAKE3) -> str:
    """Return the hash of a file's bytes."""
    with open_file(path) as file:
        return hash_open_file(file, function)


def is_hash_of(note: str, path: Path, source: object) -> bool:
    """Return whether a file's bytes have the hash that `source` has; raises as `function_of`."""
    return hash_file(path, function_of(note, source)) == note


def function_name(note: str) -> str:
    """Return the name of the function of a hash that is known here, for a person."""
    return _DISPLAY_NAMES[function_of(note, "this")]


def shown(note: str) -> str:
    """Return the beginning of a hash for a person."""
    return f"{digits_of(note)[:12]}..."
