"""Finds the documents that belong to an index, by the files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from migrate.stores.documents.arrow import ParquetDocuments
from migrate.stores.documents.base import DocumentSource, Labels, LabelsOnly, sidecar_files
from migrate.stores.documents.huggingface import DatasetDocuments, find_datasets
from migrate.stores.documents.jsonl import DOCS_NAME, JsonlDocuments
from migrate.stores.documents.llamaindex import LlamaIndexDocuments, is_llamaindex
from migrate.stores.documents.own_file import find_own_file


def find_documents(index: Path, labels: Labels, count: int, named: Mapping[str, str]) -> DocumentSource:
    """Return the documents of an index; labels alone where no file beside the index has any.

    `named` are the fields that hold `text` and `id` in a file of the user's own; if there are any, only such files are
    read.
    """
    # frameworks by their own file names before files of any name
    docs = index.with_name(DOCS_NAME)
    if not named and is_llamaindex(index):
        return LlamaIndexDocuments(index, labels, count)
    if not named and docs.exists():
        return JsonlDocuments(docs, labels, count)
    if not named and find_datasets(index.parent):
        return DatasetDocuments(index, labels, count)
    if sidecar_files(index, "*.parquet"):
        return ParquetDocuments(index, labels, count, named)
    found, why = find_own_file(index, labels, count, named)
    return found or LabelsOnly(labels, index, why)
