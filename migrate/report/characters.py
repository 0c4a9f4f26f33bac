"""Characters that do more than show something: names of files, ids, texts and the words of servers may hold any."""

from __future__ import annotations

import json
import re
import unicodedata

_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
"""What XML 1.0 has no form for, HTML calls an error, or both discourage; and marks that change the order in which text
is shown."""

_NOT_ASCII = re.compile(r"[^\n -~]")
"""Characters that are neither a line end nor printable ASCII, as nearly all of a document are."""


def printable(text: str) -> str:
    r"""Return the text as one line that a terminal shows and does not obey.

    Control characters, line ends, what changes the direction of writing and halves of characters are written as Python
    writes them.

    >>> printable("a\x1b[31m\u202eb")
    'a\\x1b[31m\\u202eb'
    """
    # Nearly every cell is plain ASCII, and a look at each character takes long
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_shown(char) else repr(char)[1:-1] for char in text)


def printable_lines(text: str) -> str:
    """Return the same of each line."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """Return a JSON document that says the same, with escapes for what a terminal would obey."""
    return _NOT_ASCII.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    """Return a character of a JSON document, as an escape where a terminal would obey it."""
    char = match.group()
    return char if _is_shown(char) else json.dumps(char)[1:-1]


def _is_shown(char: str) -> bool:
    # spaces of other widths are not printable to Python, and do no harm
    return char.isprintable() or unicodedata.category(char) == "Zs"


def for_markup(text: str) -> str:
    r"""Return the text with a mark in place of each character that HTML and XML forbid, or that reorders text.

    >>> for_markup("a\x00b\u202ec")
    'a\ufffdb\ufffdc'
    """
    return _FORBIDDEN.sub("\ufffd", text)
