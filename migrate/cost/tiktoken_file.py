"""Exact counts for OpenAI's models: tiktoken, where it is installed and its encoding is on this machine already.

tiktoken would fetch the encoding from the network; here its cache is looked at first, and nothing is fetched.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from migrate.cost.tokens import Counts, TokenCounter
from migrate.files import sha256_file

if TYPE_CHECKING:
    from tiktoken import Encoding

ENCODING = "cl100k_base"
"""What text-embedding-3-small, text-embedding-3-large and text-embedding-ada-002 count by (tiktoken's `model.py`)."""

_URL = f"https://openaipublic.blob.core.windows.net/encodings/{ENCODING}.tiktoken"
_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
"""Of the file, as tiktoken itself expects it (`tiktoken_ext/openai_public.py`)."""


def cached_encoding_path() -> Path | None:
    """Where tiktoken keeps the encoding: the SHA-1 of its address in the folder that tiktoken looks into.

    None where a variable is set to nothing, by which tiktoken is told to keep nothing (tiktoken's `load.py`).
    """
    default = str(Path(tempfile.gettempdir()) / "data-gym-cache")
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR", default))
    return Path(folder) / hashlib.sha1(_URL.encode(), usedforsecurity=False).hexdigest() if folder else None


def find_tiktoken() -> TokenCounter | None:
    """The counter, or None where the library or the encoding is missing, or the encoding is damaged."""
    if find_spec("tiktoken") is None or not _is_whole(cached_encoding_path()):
        return None
    import tiktoken

    return TiktokenCounter(tiktoken.get_encoding(ENCODING))


def _is_whole(path: Path | None) -> bool:
    """Whether the file is the encoding: tiktoken throws away a file that is not, and asks the network for another."""
    if path is None or not path.is_file():
        return False
    return sha256_file(path) == _SHA256


class TiktokenCounter(TokenCounter):
    """Counts with a tiktoken encoding; what looks like a special token is text, as the API takes it."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self.source = f"exact, by tiktoken's {encoding.name}"

    def count(self, texts: Sequence[str]) -> Counts:
        """Tokens of each text."""
        found = self.encoding.encode_ordinary_batch(list(texts), num_threads=os.cpu_count() or 1)
        return np.array([len(tokens) for tokens in found], dtype=np.int64)
