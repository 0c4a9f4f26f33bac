"""Reads a stitch that `FittedStitch.save` wrote, and checks every file against the manifest."""

from __future__ import annotations

import atexit
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from migrate.digests import function_name, is_hash_of
from migrate.errors import LeadMigrateError, OutputError, StitchError, UsageError
from migrate.files import describe_os_error, read_file, refuse_endless
from migrate.locations import place_of
from migrate.manifest import read_manifest
from migrate.reading import expect, read_json, typed
from migrate.removed import removal
from migrate.stitch.base import restore_saved, saved_arrays
from migrate.stitch.fitted import SAMPLE_NAME, WEIGHTS_NAME, Fallback, FittedStitch, TrueVectors, input_dim
from migrate.stitch.registry import REMOVED, new_stitch
from migrate.stitch.select import Selection
from migrate.stitch.text_reader import READER_FILES, TextReader
from migrate.vectors import squared_norms
from migrate.work.remote import download

Fact = TypeVar("Fact")


class _ModelError(LeadMigrateError):
    """A model by which a stitch reads texts cannot be loaded on this machine."""

    exit_code = UsageError.exit_code


_copies: dict[str, tempfile.TemporaryDirectory[str]] = {}
"""Copies of stitches at URLs, by these; gone with the process."""


def stitch_folder(location: str | Path) -> Path:
    """The folder that a stitch lies in; of one at a URL the copy that `load_stitch` has read."""
    target = place_of(location)
    if isinstance(target, Path):
        return target
    if target not in _copies:
        _fetch(target)
    return Path(_copies[target].name)


def _fetch(url: str) -> Path:
    # Not the folder of the copy before: a stitch that was fitted anew may have fewer files
    copy = tempfile.TemporaryDirectory(prefix="lead-migrate-")
    atexit.register(copy.cleanup)
    download(url, Path(copy.name))
    if (older := _copies.pop(url, None)) is not None:
        older.cleanup()
    _copies[url] = copy
    return Path(copy.name)


def load_stitch(location: str | Path) -> FittedStitch:
    """Read a stitch that `FittedStitch.save` wrote, in a folder or at a URL such as `s3://bucket/stitch`.

    Raises ManifestError: there is no stitch, or one of another format version. StitchError: a file is missing, damaged
    or inconsistent with the others. UsageError: nothing is known of such URLs. OutputError: a file cannot be read.
    """
    target = place_of(location)
    if isinstance(target, Path):
        return _load(target)
    folder = _fetch(target)
    try:
        return _load(folder)
    except LeadMigrateError as error:  # the user knows the place by its URL
        raise type(error)(str(error).replace(str(folder), target)) from error


def _load(folder: Path) -> FittedStitch:
    manifest = read_manifest(folder, "stitch")
    details = manifest.stitch
    try:
        spec = _read_spec(folder, details.stitch)
        norm = float(_required(details.norm, "norm"))
        files = _required(details.files, "files")
        for name, recorded in files.items():
            # These files are copied into every store that the stitch translates, so no name may point outside of it.
            if name not in (WEIGHTS_NAME, SAMPLE_NAME, *READER_FILES) and not re.fullmatch(r"embedder\.[a-z]+", name):
                raise StitchError(f"{folder}: the manifest names {name!r}, a file that no stitch has; do not trust it")
            if not is_hash_of(recorded, folder / name, f"{folder / name}: the manifest"):
                raise StitchError(
                    f"{folder / name}: its {function_name(recorded)} is not the one in the manifest; fit the stitch "
                    "again"
                )
        # safetensors maps the file by its path, so that what cannot be mapped has to be refused before
        refuse_endless(folder / WEIGHTS_NAME)
        tensors = load_file(folder / WEIGHTS_NAME)
        # A stitch without one of its views would still translate, but worse
        if missing := sorted(set(details.arrays) - tensors.keys()):
            raise StitchError(
                f"{folder / WEIGHTS_NAME}: the array {missing[0]!r}, which the manifest names, is missing "
                f"({len(missing)} missing in all); fit the stitch again"
            )
        # Ids are strings in JSON whatever they hold, where safetensors has numbers alone
        ids_and_copies = expect(read_json(folder / SAMPLE_NAME), {"ids": list[str], "copies": Mapping[str, int]})
        sample = TrueVectors(ids_and_copies["ids"], tensors.pop("sample.vectors"), ids_and_copies["copies"])
        _refuse_leaning(folder, spec, tensors)
        stitch = restore_saved(new_stitch(spec), _group(tensors, "stitch"))
        fallback = None
        if details.fallback is not None:
            judged = _read_selection(details.fallback)
            spare = restore_saved(new_stitch(judged.chosen), _group(tensors, "fallback"))
            fallback = Fallback(spare, judged)
        selection = _read_selection(_required(details.selection, "selection"))
        # Files of the reader and of a model that was fitted on the corpus lie side by side
        state = {n: read_file(folder / n) for n in files if n not in (WEIGHTS_NAME, SAMPLE_NAME)}
        tokenizer = {name: state.pop(name) for name in READER_FILES if name in state}
        learned = _group(tensors, "reader")
        with _loading_models(folder):
            reader = TextReader.restore(learned, tokenizer) if learned else None
        fitted = FittedStitch(stitch, norm, sample, selection, manifest, state, reader, fallback)
        _check_sample(folder, sample)
        source_dim = input_dim(manifest, source=str(folder))
        _check_map(folder, fitted, source_dim)
        if fallback is not None:
            if fallback.stitch.reads_texts:
                raise StitchError(f"{folder}: the fallback stitch reads texts, which it must not; fit it again")
            _check_map(folder, fitted.without_texts(), source_dim)
    except PermissionError as error:
        raise OutputError(f"cannot read {folder}: {describe_os_error(error)}; check the permissions") from error
    except (
        OSError, SafetensorError, AttributeError, LookupError, RecursionError, TypeError, UsageError, ValueError,
    ) as error:  # fmt: skip
        raise StitchError(f"{folder}: the stitch is incomplete or damaged ({error}); fit it again") from error
    return fitted


@contextmanager
def _loading_models(folder: Path) -> Iterator[None]:
    """Say of a model of a stitch that cannot be loaded what it is needed for; its error says what to do."""
    try:
        yield
    except UsageError as error:
        raise _ModelError(f"{folder}: the stitch reads texts by a model that is not here: {error}") from error


def _read_spec(folder: Path, spec: str | None) -> str:
    """Return the spec of a stitch, of a kind that this version knows."""
    spec = _required(spec, "stitch")
    if spec in REMOVED:
        raise StitchError(f"{folder}: {removal(f'the stitch {spec!r}')}; fit it again")
    return spec


def _refuse_leaning(folder: Path, spec: str, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Refuse a kernel stitch that leans on a prior, without which it would translate worse."""
    if {"stitch.base", "fallback.base"} & tensors.keys():
        raise StitchError(f"{folder}: {removal(f'the stitch {spec!r} with a prior')}; fit it again")


def _required(value: Fact | None, name: str) -> Fact:
    if value is None:
        raise LookupError(f"its manifest has no {name!r}")
    return value


def _group(tensors: Mapping[str, NDArray[Any]], group: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(f"{group}."): rows for name, rows in tensors.items() if name.startswith(f"{group}.")}


def _read_selection(details: Mapping[str, Any]) -> Selection:
    names = Selection.__dataclass_fields__.keys() - {"tuned"}
    selection = typed(Selection, {name: value for name, value in details.items() if name in names})
    if all(row.stitch != selection.chosen for row in selection.candidates):
        raise LookupError(f"{selection.chosen!r}, which was chosen, is no candidate")
    if selection.confidence is not None and len(selection.confidence.coefficients) not in (3, 4):
        raise LookupError("the confidence has another number of coefficients")
    return selection


def _check_map(folder: Path, fitted: FittedStitch, source_dim: int) -> None:
    arrays: tuple[NDArray[Any], ...] = (*saved_arrays(fitted.stitch).values(), squared_norms(fitted.sample.vectors))
    if not all(np.isfinite(array).all() for array in arrays) or not 0 < fitted.norm < np.inf:
        raise StitchError(f"{folder}: the weights of the stitch hold NaN or Inf; fit the stitch again")
    if fitted.reads_texts and fitted.reader is None:
        raise StitchError(f"{folder}: the stitch reads texts, but what it needs to read them is missing; fit it again")
    texts = None
    if fitted.reader is not None:
        replace(fitted.reader, models={}).read(["word"])  # a tokenizer that cannot be read is found now
        with _loading_models(folder):
            texts = fitted.reader.read([""])  # nothing to embed for a further model
    # Mapping a row is a test of any kind of stitch: arrays of other shapes fail here, not in the middle of a store
    dim = fitted.stitch.transform(np.zeros((1, source_dim), dtype=np.float32), texts).shape[1]
    if dim != fitted.dim:
        raise StitchError(f"{folder}: the stitch maps to {dim} dimensions, its sample has {fitted.dim}; fit it again")


def _check_sample(folder: Path, sample: TrueVectors) -> None:
    n_ids = len(sample.row_of) - len(sample.copies)
    if not isinstance(sample.ids, list) or n_ids != len(sample.vectors):
        raise StitchError(
            f"{folder}: {len(sample.vectors)} vectors for {n_ids} documents of the sample; fit the stitch again"
        )
    if not all(type(row) is int and 0 <= row < n_ids for row in sample.copies.values()):
        raise StitchError(f"{folder}: lists copies of documents that are not in the sample; fit the stitch again")
