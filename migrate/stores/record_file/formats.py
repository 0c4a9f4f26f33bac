"""Formats of files of records with vectors, and which of them a file has."""

from __future__ import annotations

from pathlib import Path

from migrate.stores.binary_reader import read_head
from migrate.stores.documents.jsonl import DOCS_NAME
from migrate.stores.documents.own_file import is_of_lines
from migrate.stores.record_file.contents import (
    HEAD_BYTES,
    JSON,
    LINES,
    TABLES,
    Content,
    JsonContent,
    LinesContent,
    NanoContent,
    TableContent,
    begins_as_nano,
    has_list,
)
from migrate.stores.record_file.pickle_file import PICKLES, PickleContent, is_pickle


def holds_vectors(path: Path) -> bool:
    """Return whether a file is named and begins as one of records with vectors.

    Documents beside an index are not, whatever lists of numbers are among their metadata. What a pickle holds is told
    where it is opened.
    """
    if not path.is_file() or path.name == DOCS_NAME:
        return False
    if path.suffix in PICKLES:
        return is_pickle(path)
    if path.suffix not in (*JSON, *LINES, *TABLES):
        return False
    head = read_head(path, HEAD_BYTES)
    return has_list(head) or (path.suffix in JSON and begins_as_nano(head))


def content_of(path: Path) -> Content:
    """Return the content of a file by its name; of `.json`, by its beginning."""
    if path.suffix in PICKLES:
        return PickleContent(path)
    if path.suffix in LINES:
        return LinesContent(path)
    if path.suffix in TABLES:
        return TableContent(path)
    if begins_as_nano(read_head(path, HEAD_BYTES)):
        return NanoContent(path)
    if is_of_lines(path):
        return LinesContent(path)
    return JsonContent(path)
