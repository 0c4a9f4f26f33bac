"""The files beside an index: copied into a new store byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from migrate.files import copy_file, output_errors
from migrate.manifest import MANIFEST_NAME
from migrate.stores import fourcc
from migrate.stores.cursor import read_errors


def companions(index: Path, *patterns: str) -> list[Path]:
    """The files beside an index whose names fit a pattern; no hidden ones, nor the index, nor our manifest."""
    with read_errors(index.parent):
        return sorted(
            file
            for file in index.parent.iterdir()
            if file.is_file()
            and not file.name.startswith(".")
            and file.name not in (index.name, MANIFEST_NAME)
            and any(file.match(pattern) for pattern in patterns)
        )


def is_faiss(file: Path) -> bool:
    """Whether a file begins as a FAISS index does."""
    with read_errors(file), file.open("rb") as opened:
        return fourcc.is_known(opened.read(4).decode("latin-1"))


def copy_files(files: Iterable[Path], folder: Path) -> None:
    """Copy files into a folder, durably."""
    for file in files:
        target = folder / file.name
        with output_errors(target):
            copy_file(file, target)
