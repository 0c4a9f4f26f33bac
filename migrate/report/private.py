"""What the steps of a private translation have written, as text and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from migrate.lab.private.exchange import Exchanged
from migrate.report.facts import document

_WHAT = {"encrypt": "encrypted", "translate": "translated, still encrypted", "decrypt": "decrypted"}
_WHERE_TO = {
    "encrypt": "give this folder to the holder of the stitch, who translates it; keep the keyring to yourself",
    "translate": "give this folder back to the holder of the keyring, who decrypts it",
    "decrypt": "keep it on this side: decrypted results sent back can give away the secret key",
}


def keyring_text(path: Path) -> str:
    """What to do with a keyring."""
    return f"keyring: {path}; never give it away: its secret key opens everything that is encrypted with it"


def exchanged_text(step: str, done: Exchanged) -> str:
    """What was written, and how large it is."""
    size = f"{done.bytes / 1e6:,.1f} MB, {done.bytes / done.count:,.0f} bytes a vector"
    return f"{_WHAT[step]}: {done.count:,} vectors, {done.dim:,} dimensions, in {done.path} ({size})"


def where_to(step: str) -> str:
    """Where the folder goes next, and where not."""
    return _WHERE_TO[step]


def exchanged_document(step: str, done: Exchanged) -> dict[str, Any]:
    """The same as JSON."""
    facts = {"path": done.path, "vectors": done.count, "dimension": done.dim, "bytes": done.bytes}
    return document(f"private {step}", facts)
