"""Frames between this process and a guarded one: a tag, a length, and bytes, over a pipe."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

FACTS: Final = b"FACT"
LABELS: Final = b"LABL"
ROWS: Final = b"ROWS"
RUNS: Final = b"RUNS"
PLACES: Final = b"PLAC"
TEXT: Final = b"TEXT"
DONE: Final = b"DONE"
REFUSED: Final = b"REFU"
FAILED: Final = b"FAIL"
OS_ERROR: Final = b"OSER"

HEADER: Final = struct.Struct("<4sQ")
# Arbitrary: a process that was brought to talk nonsense must not make this one hold what it announces.
LONGEST: Final = 64 << 20
"""No frame is longer; longer contents are cut into several."""


class RefusedError(Exception):
    """A file that is not read; the message is the user's. It never leaves the guarded process as an exception."""


def send(pipe: BinaryIO, tag: bytes, content: bytes | bytearray | memoryview = b"") -> None:
    """Write one frame."""
    pipe.write(HEADER.pack(tag, len(content)))
    pipe.write(content)


def send_facts(pipe: BinaryIO, tag: bytes, content: Mapping[str, Any]) -> None:
    """Write a frame of JSON."""
    send(pipe, tag, json.dumps(content).encode())


def send_array(pipe: BinaryIO, tag: bytes, numbers: NDArray[Any]) -> None:
    """Write the bytes of the numbers, in as many frames as they need."""
    content = np.ascontiguousarray(numbers).reshape(-1).view(np.uint8).data
    for first in range(0, len(content), LONGEST):
        send(pipe, tag, content[first : first + LONGEST])
