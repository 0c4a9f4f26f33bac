"""Vectors that were computed elsewhere, read from an `.npz` file: looked up, never computed.

The file holds `doc_ids` (n,) and `docs` (n, dim), and may hold `query_ids` and `queries` in the same form. Where it
also holds `doc_texts` or `query_texts`, vectors are looked up by text, whatever the ids are. `model`, a name, says that
files of this name hold vectors of one model, as one to which documents are added later.

The file is not trusted: nothing in it is executed, and no memory is allocated before its claims are checked.
"""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from migrate.embedders.abilities import VectorTable
from migrate.embedders.base import Role
from migrate.embedders.kinds import EmbedderKind, LoadOptions
from migrate.embedders.profile import Profile
from migrate.errors import InputError, MissingVectorError, OutputError, VectorError
from migrate.files import atomic_file, describe_os_error, refuse_endless, sha256_file, write_bytes
from migrate.manifest import ModelIdentity
from migrate.vectors import (
    Document,
    Progress,
    Text,
    Vectors,
    as_vectors,
    check_vectors,
    no_progress,
    summarize_norms,
    unit_rows,
)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Every array of an `.npz` file by its name, without pickles."""
    refuse_endless(path)
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(archive, path)
            return {name.removesuffix(".npy"): _read_array(archive, name, path) for name in archive.namelist()}
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(
            f"{path}: no .npz file of vectors can be read there ({describe_os_error(error).lower()}); check the path"
        ) from error
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the permissions") from error
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        RuntimeError,
        KeyError,
        OverflowError,
        struct.error,
    ) as error:
        reason = str(error)[:200]
        raise InputError(
            f"{path}: not an .npz file, or a damaged one ({reason}); copy it again, or write it with numpy.savez"
        ) from error


def _check_members(archive: zipfile.ZipFile, path: Path) -> None:
    """Each array once, and as NumPy packs it; deflate packs a run of zeros 1,000 to 1, which no file of vectors needs.

    Other ways to pack say in other ways that they are damaged, and are without a limit.
    """
    names = archive.namelist()
    if len(set(names)) < len(names):
        raise ValueError("an array twice")
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in archive.infolist()):
        raise ValueError("arrays that are packed in another way")
    expanded = sum(member.file_size for member in archive.infolist())
    if expanded > _MOST_EXPANSION * path.stat().st_size + _SPARE_BYTES:
        raise InputError(
            f"{path}: claims {expanded} bytes of arrays in a file of {path.stat().st_size}; it is not read: "
            "save the arrays with numpy.savez"
        )


def _read_array(archive: zipfile.ZipFile, name: str, path: Path) -> NDArray[Any]:
    """Read one array, after its header is found to claim no more bytes than the member has."""
    size = archive.getinfo(name).file_size
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    with archive.open(name) as file:
        version = npy.read_magic(file)
        if version not in readers:
            raise ValueError(f"array format {version}")
        try:
            shape, _, dtype = readers[version](file)
        # NumPy evaluates a header as Python, and passes on Python's errors about a broken one
        except (SyntaxError, tokenize.TokenError, RecursionError, MemoryError, TypeError) as error:
            raise ValueError("an array with a damaged header") from error
    if dtype.hasobject or dtype.names:
        raise InputError(f"{path}: {name} holds Python objects or records, which are not read; save plain arrays")
    # NumPy would take the memory before it reads the first byte
    if math.prod(shape) * dtype.itemsize > size:
        raise InputError(
            f"{path}: {name} claims an array of shape {shape} in {size} bytes; the file is damaged, copy it again"
        )
    with archive.open(name) as file:
        array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
    return array


@dataclass(frozen=True, slots=True)
class _Table:
    """Vectors with the row of each id and, where the file holds texts, of each text."""

    vectors: Vectors
    row_of_id: Mapping[str, int]
    row_of_text: Mapping[str, int] | None
    normalized: bool

    def find(self, text: Text) -> int | None:
        """Row of a document or query, None where the file does not hold it."""
        if self.row_of_text is None:
            return self.row_of_id.get(text.id)
        return self.row_of_text.get(text.text)


@dataclass(frozen=True, slots=True)
class _Read:
    """A file as it was read: its tables by role, and its hash."""

    tables: Mapping[Role, _Table]
    revision: str
    """The model that the file names, or its own hash."""
    names_model: bool


_FLOAT16_ROUNDING = 2e-3
"""Difference of a norm from 1 that float16 may make: it rounds by up to 2^-11 in each value; and some room."""

_FLOAT32_ROUNDING = 1e-6
"""The same of float32."""


# Vectors hardly compress at all, lists of ids up to some tens of times
_MOST_EXPANSION = 100
_SPARE_BYTES = 64 << 20
"""Bytes of arrays that are read from a file however small it is."""

_NAMED = 3
"""Texts that a message names."""


class FileEmbedder(VectorTable):
    """A file of vectors as an embedder.

    Vectors stored in half precision come back as float32. Where every norm is 1 within what float16 rounds off the
    rows are brought back to unit length: the model gave unit vectors, and the rounding would otherwise make a store
    of them look as if it were not normalised.
    """

    cacheable = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self._has_found: set[Role] = set()

    @property
    def identity(self) -> ModelIdentity:
        """The file as artefacts remember it: its base name, and the model that it names or its hash."""
        documents = self._read.tables["document"]
        return ModelIdentity(
            spec=f"file:{self.path.name}",
            dim=documents.vectors.shape[1],
            normalized=documents.normalized,
            revision=self._read.revision,
        )

    @property
    def profile(self) -> Profile:
        """Free, without a limit, and for the texts of the file alone."""
        return Profile(f"file:{self.path}", kind="file", is_paid=False, embeds_new_texts=False)

    @property
    def finds_by_id(self) -> bool:
        """True if documents are found by their ids, and not by their texts."""
        return self._read.tables["document"].row_of_text is None

    def holds(self, document: Document) -> bool:
        """Return True if the file has the vector of a document."""
        is_held = self._read.tables["document"].find(document) is not None
        if is_held:
            self._has_found.add("document")
        return is_held

    # Read only where it is needed, as the file may be of gigabytes: a plan asks for the profile alone
    @cached_property
    def _read(self) -> _Read:
        arrays = read_arrays(self.path)
        if "docs" not in arrays:
            raise InputError(
                f"{self.path}: no arrays named doc_ids and docs among {', '.join(arrays) or 'none'}; save them so"
            )
        tables: dict[Role, _Table] = {"document": self._read_table(arrays, "doc_ids", "docs", "doc_texts")}
        if "queries" in arrays:
            tables["query"] = self._read_table(arrays, "query_ids", "queries", "query_texts")
            dim = tables["document"].vectors.shape[1]
            query_dim = tables["query"].vectors.shape[1]
            if dim != query_dim:
                raise VectorError(f"{self.path}: documents have dimension {dim}, queries {query_dim}; use one model")
        names_model = "model" in arrays
        revision = self._read_name(arrays["model"]) if names_model else sha256_file(self.path)
        return _Read(tables, revision, names_model)

    def _read_table(self, arrays: Mapping[str, np.ndarray], ids_name: str, name: str, texts_name: str) -> _Table:
        if ids_name not in arrays:
            raise InputError(f"{self.path}: has {name} but no {ids_name}; add the ids")
        ids = self._read_strings(arrays, ids_name)
        vectors = self._read_vectors(arrays[name], ids, name)
        row_of_id = {identifier: row for row, identifier in enumerate(ids)}
        if len(row_of_id) != len(ids):
            raise InputError(f"{self.path}: {ids_name} names {len(ids) - len(row_of_id)} ids twice; keep one of each")
        row_of_text = None
        if texts_name in arrays:
            texts = self._read_strings(arrays, texts_name, count=len(ids))
            row_of_text = {text: row for row, text in enumerate(texts)}
        vectors, normalized = _restore_unit(vectors)
        return _Table(vectors, row_of_id, row_of_text, normalized)

    def _read_name(self, array: np.ndarray) -> str:
        if array.ndim != 0 or array.dtype.kind != "U" or not str(array).strip():
            raise InputError(f"{self.path}: model is {_describe(array)}, not a name; save one string, or leave it out")
        return str(array)

    def _read_strings(self, arrays: Mapping[str, np.ndarray], name: str, count: int | None = None) -> list[str]:
        array = arrays[name]
        if array.ndim != 1 or array.dtype.kind not in "USiu":
            raise InputError(f"{self.path}: {name} is {_describe(array)}, not a list of strings; save one")
        if count is not None and len(array) != count:
            raise InputError(f"{self.path}: {len(array)} {name} for {count} ids; give one for each")
        try:
            # Ids may be numbers, and some programs save texts as bytes
            return [item.decode() if isinstance(item, bytes) else str(item) for item in array.tolist()]
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path}: {name} is not UTF-8 ({error.reason})") from error

    def _read_vectors(self, array: np.ndarray, ids: Sequence[str], name: str) -> Vectors:
        if array.ndim != 2 or array.dtype.kind != "f" or not array.shape[1]:
            raise InputError(f"{self.path}: {name} is {_describe(array)}, not a table of floats; save one")
        if len(array) != len(ids):
            raise InputError(f"{self.path}: {len(array)} rows in {name} for {len(ids)} ids; give one for each")
        with np.errstate(over="ignore"):
            vectors = as_vectors(array, source=str(self.path))
        check_vectors(ids, vectors, source=f"{self.path} ({name})")
        # What a model gives that failed without saying so
        if len(vectors) >= 4 and (vectors == vectors[0]).all():
            raise InputError(f"{self.path}: {len(vectors):,} rows of {name} are the same vector; embed the texts again")
        return vectors

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """The stored vectors of the texts, by id, or by identical text where the file holds texts.

        Raises MissingVectorError: the file does not hold all of them; says how many are missing, and names some.
        InputError: it is malformed, or holds no queries.
        """
        table = self._read.tables.get(role)
        if table is None:
            raise InputError(f"{self.path} holds no query vectors; add the arrays query_ids and queries")
        rows = [row for text in texts if (row := table.find(text)) is not None]
        if rows:
            self._has_found.add(role)
        if len(rows) < len(texts):
            raise self._missing(table, [text for text in texts if table.find(text) is None], len(texts), role)
        progress("embed", len(texts), len(texts))
        if rows:
            return table.vectors[rows]
        return np.empty((0, table.vectors.shape[1]), dtype=np.float32)

    def _missing(self, table: _Table, missing: Sequence[Text], count: int, role: Role) -> MissingVectorError:
        """The error for texts that the file does not hold: by far the most often it is a file of other texts."""
        plural = "documents"
        if role == "query":
            plural = "queries"
        named = ", ".join(repr(text.id) for text in missing[:_NAMED])
        if len(missing) > _NAMED:
            named += ", ..."
        changed = 0
        if table.row_of_text is not None:
            changed = sum(text.id in table.row_of_id for text in missing)
        changed_note = ""
        if changed:
            changed_note = f" ({changed:,} of them have another text there)"
        lacking = f"{len(missing):,} of {count:,} {plural} ({named}){changed_note}"
        remedy = "is it the right file? If it is, embed what is missing and add it"
        # Where none was ever found it is the wrong file, and a list of all would only lie beside it
        if len(missing) > _NAMED and role not in self._has_found:
            remedy = "it has not one of those that were looked up, as a file of other texts: name the right one"
        elif table.row_of_text is None and len(missing) > _NAMED and self._list_missing(missing):
            remedy += f"; {self._missing_path} lists it"
            if not self._read.names_model:
                remedy += " (a file has to name its `model` to be the same after that: fit to one that does)"
        return MissingVectorError(f"{self.path}: holds no vector for {lacking}; {remedy}")

    @property
    def _missing_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.missing.txt")

    def _list_missing(self, missing: Sequence[Text]) -> bool:
        """Write the ids that the file lacks beside it, one a line; False where that cannot be done."""
        with suppress(OutputError), atomic_file(self._missing_path, force=True) as unfinished:
            write_bytes(unfinished, "".join(f"{text.id}\n" for text in missing).encode())
            return True
        return False


def _restore_unit(vectors: Vectors) -> tuple[Vectors, bool]:
    """The vectors, and whether they are of unit length; rounded unit vectors are brought back to it.

    Vectors whose norms are 1 to the precision of float32 stay as they are, bit for bit.
    """
    if not len(vectors):
        return vectors, False
    norms = summarize_norms(vectors)
    off = max(norms.maximum - 1, 1 - norms.minimum)
    if off >= _FLOAT16_ROUNDING:
        return vectors, False
    if off < _FLOAT32_ROUNDING:
        return vectors, True
    return unit_rows(vectors), True


def _describe(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"


def _load(name: str, _options: LoadOptions) -> FileEmbedder:
    return FileEmbedder(Path(name))


KIND = EmbedderKind(_load, "vectors.npz")
