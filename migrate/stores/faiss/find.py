"""Finds the FAISS index at a path."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from migrate.errors import StoreError
from migrate.locations import Address
from migrate.stores.base import KindSupport
from migrate.stores.binary_reader import read_errors
from migrate.stores.documents import llamaindex
from migrate.stores.faiss import fourcc
from migrate.stores.faiss.fourcc import HEAD_BYTES, describe_content
from migrate.stores.faiss.store import FaissStore
from migrate.stores.outputs import FolderOutput
from migrate.stores.records import check_options

_LISTED: Final = 8


class FaissKind:
    """FAISS files and the folders around them, as the registry knows them."""

    name = "faiss"
    support = KindSupport(
        "FAISS, and folders of LangChain, LlamaIndex, `datasets` around it",
        ("FOLDER", "FILE"),
        "",
        "ids, texts, metadata, kind and parameters of the index",
        "codes are approximate, some refused: see [indexes](docs/indexes.md)",
        "bounded for flat indexes",
    )

    def recognises(self, path: Path) -> bool:
        """Return whether it is a FAISS file, or a folder with a file that is one or is named as one."""
        with read_errors(path):
            files = _visible_files(path) if path.is_dir() else [path]
        return any(file.suffix in (".faiss", ".index") or fourcc.is_index(_head(file)) for file in files)

    def output(self, location: str) -> FolderOutput:
        """A folder for a flat index and a docs.jsonl."""
        from migrate.stores.create import FaissOutput

        return FaissOutput(Path(location))

    def open(self, location: str) -> FaissStore:
        """Open a FAISS file, or a folder with exactly one; `PATH#?text=FIELD&id=FIELD` names what a file beside it has.

        `<name>.faiss` with `<name>.pkl` beside it is a LangChain store; for others, files beside the index hold the
        ids and texts, and without any the ids are the labels of the index.

        Raises
        ------
        StoreError
            There is no such path, no index or more than one; or the store is malformed.
        UnsupportedStoreError
            The index is of a kind that is not read.
        ManifestError
            The folder has a manifest that is not one of a store.
        OutputError
            The operating system refused.
        """
        address = Address(location) if os.path.lexists(location) else Address.parse(location)
        check_options(f"{self.name}:{location}", address.options, ("text", "id"))
        path = Path(address.place)
        kind = _file_kind(path)
        if stat.S_ISDIR(kind):
            index = _find_index(path)
        elif stat.S_ISREG(kind):
            index = path
        else:
            raise StoreError(f"{path}: this is a pipe, a socket or a device; give the file or folder of the store")
        pickled = index.with_suffix(".pkl")
        is_langchain = index.suffix == ".faiss" and pickled.is_file()
        return FaissStore(path, index, pickled if is_langchain else None, address.options)


def _file_kind(path: Path) -> int:
    with read_errors(path):
        try:
            return path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError, ValueError) as error:
            raise StoreError(f"{path}: no such file or folder; check the path") from error


def _find_index(folder: Path) -> Path:
    files = _visible_files(folder)
    heads = {file: _head(file) for file in files}
    indexes = [file for file, head in heads.items() if fourcc.is_index(head)]
    if len(indexes) == 1:
        return indexes[0]
    if folder / llamaindex.VECTORS_NAME in indexes:
        # the others are its further namespaces, images for example
        return folder / llamaindex.VECTORS_NAME
    if indexes:
        raise StoreError(f"{folder}: has {len(indexes)} FAISS indexes ({_names(indexes)}); give one of these")
    for file in files:
        if file.suffix in (".faiss", ".index", ".bin"):
            raise StoreError(f"{file}: expected a FAISS index, found {describe_content(heads[file])}")
    contents = f"only {_names(files)}" if files else "an empty folder"
    raise StoreError(f"{folder}: expected a FAISS index, found {contents}; give the folder that holds the store")


def _visible_files(folder: Path) -> list[Path]:
    with read_errors(folder):
        return sorted(file for file in folder.iterdir() if not file.name.startswith(".") and file.is_file())


def _head(file: Path) -> bytes:
    with read_errors(file):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            return os.read(descriptor, HEAD_BYTES)
        finally:
            os.close(descriptor)


def _names(files: list[Path]) -> str:
    names = ", ".join(file.name for file in files[:_LISTED])
    return names if len(files) <= _LISTED else f"{names}, ..."
