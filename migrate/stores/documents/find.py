"""Finds the documents that belong to an index, by the files beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from migrate.stores.documents.arrow import has_parquet, open_parquet
from migrate.stores.documents.base import DocumentSource, Labels, LabelsOnly
from migrate.stores.documents.huggingface import DatasetDocuments, has_dataset
from migrate.stores.documents.jsonl import DOCS_NAME, JsonlDocuments
from migrate.stores.documents.llamaindex import LlamaIndexDocuments, is_llamaindex
from migrate.stores.documents.own_file import find_own_file

_Test = Callable[[Path], bool]
_Opener = Callable[[Path, Labels, int], DocumentSource]


def _has_docs(index: Path) -> bool:
    return index.with_name(DOCS_NAME).exists()


def _open_docs(index: Path, labels: Labels, count: int) -> DocumentSource:
    return JsonlDocuments(index.with_name(DOCS_NAME), labels, count)


# The first whose files are there opens them: frameworks by their own file names before files of any name.
_KINDS: Final[tuple[tuple[_Test, _Opener], ...]] = (
    (is_llamaindex, LlamaIndexDocuments),
    (_has_docs, _open_docs),
    (has_dataset, DatasetDocuments),
)


def find_documents(
    index: Path, labels: Labels, count: int, asked: Mapping[str, str] = MappingProxyType({})
) -> DocumentSource:
    """The documents of an index; labels alone where no file beside the index has any.

    Parameters
    ----------
    index
        The FAISS file.
    labels
        The label of each row.
    count
        How many rows the index has.
    asked
        The fields that hold `text` and `id` in a file of the user's own; where any is named, only such files are read.
    """
    for test, opener in () if asked else _KINDS:
        if test(index):
            return opener(index, labels, count)
    if has_parquet(index):
        return open_parquet(index, labels, count, asked)
    found, why = find_own_file(index, labels, count, asked)
    return found or LabelsOnly(labels, index, why)
