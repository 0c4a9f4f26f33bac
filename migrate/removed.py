"""Capabilities that were removed: one sentence for a file that needs one of them."""

from __future__ import annotations

from typing import Final

LAST_READER: Final = "0a3df1b0"
"""The last commit that has all of them."""


def removal(subject: str) -> str:
    """Return the sentence about a file that this version does not read any more.

    >>> removal("the stitch 'prefix+text'")
    "the stitch 'prefix+text' was removed; the commit 0a3df1b0 of lead-migrate is the last that reads it"
    """
    return f"{subject} was removed; the commit {LAST_READER} of lead-migrate is the last that reads it"
