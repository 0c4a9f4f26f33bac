"""The files beside an index: copied into a new store byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from migrate.files import copy_file, output_errors
from migrate.manifest import MANIFEST_NAME
from migrate.stores import fourcc
from migrate.stores.cursor import read_errors


def companions(index: Path, pattern: str = "*") -> list[Path]:
    """The files beside an index whose names fit a pattern, without hidden ones, the index and our own manifest."""
    with read_errors(index.parent):
        return sorted(
            file
            for file in index.parent.glob(pattern)
            if file.is_file() and not file.name.startswith(".") and file.name not in (index.name, MANIFEST_NAME)
        )


def is_faiss(file: Path) -> bool:
    """Whether a file begins as a FAISS index does."""
    with read_errors(file), file.open("rb") as opened:
        return fourcc.is_known(opened.read(4).decode("latin-1"))


def copy_companions(index: Path, folder: Path, pattern: str = "*") -> None:
    """Copy the files beside an index into a folder, durably."""
    copy_files(companions(index, pattern), folder)


def copy_files(files: Iterable[Path], folder: Path) -> None:
    """Copy files into a folder, durably."""
    for file in files:
        target = folder / file.name
        with output_errors(target):
            copy_file(file, target)
