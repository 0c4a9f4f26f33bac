"""Carries directions and probes, which were found in the old space, into the new one, and judges them on the sample.

A direction is a displacement: a difference of two vectors, such as a concept, a filter or what steers a model (Emb2Emb,
Mai et al. 2020). The offset of a stitch x A + b drops out of a difference, so a direction d becomes d A.

A probe scores a vector, w·x + c; it is a covector. With the map back y B + a, fitted on the same pairs, a new vector
scores w·(y B + a) + c, so w becomes w Bᵀ and c becomes c + w·a. Sent the way of a direction, it would be wrong unless A
were orthogonal.

The map A is not the stitch's own matrix. A stitch may bend, read texts, or be stretched so that translated vectors are
found as often as true ones; what a displacement becomes on average is what a ridge fitted on the same sample says. The
identity stays the identity.
"""

from __future__ import annotations

import copy
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.file import read_arrays
from migrate.errors import InputError, StitchError, StoreError
from migrate.lab.carry.judge import Judge, Judgement, Kind, PairedVectors
from migrate.lab.labels.roc import Matrix
from migrate.stitch.affine import AffineMap
from migrate.stitch.base import Stitch
from migrate.stitch.fitted import DOCUMENT, FittedStitch, require_direction
from migrate.stitch.linear import Identity, Ridge
from migrate.stores.base import Store, difference_from
from migrate.vectors import Progress, Vectors, check_vectors, no_progress

INTERCEPT: Final = ".intercept"
"""What follows the name of a probe in the name of its intercepts."""

FEWEST_PAIRS: Final = 20


@dataclass(frozen=True, slots=True)
class Carried:
    """Carried arrays by name, in the new space, and a judgement of every row that was given.

    `pairs` is how many documents of the sample judged. An array of which one row is refused is left out.
    """

    pairs: int
    directions: Mapping[str, Vectors]
    probes: Mapping[str, Vectors]
    judgements: tuple[Judgement, ...]
    left_out: tuple[str, ...]


def read_rows(path: Path, dim: int, *, intercepts: bool = False) -> dict[str, Vectors]:
    """Return the arrays of an .npz file by name: each a vector, (dim,), or rows, (k, dim), float32.

    With `intercepts` there may be `NAME.intercept`, one number for each row of NAME. Raises `InputError` where the file
    is none, or holds nothing, another shape, a zero row, or what is not finite.
    """
    arrays = read_arrays(path)
    names = [name for name in arrays if not (intercepts and name.endswith(INTERCEPT))]
    if not names:
        raise InputError(f"{path}: no array of vectors in the file; save some with numpy.savez")
    rows = {}
    for name in names:
        array = arrays[name]
        if array.dtype.kind not in "fiu" or array.ndim not in (1, 2) or array.shape[-1] != dim or not array.size:
            raise InputError(
                f"{path}: {name}: {array.dtype} of shape {array.shape} does not hold vectors of the store's "
                f"dimension, {dim}; give what was found in the old space"
            )
        rows[name] = np.ascontiguousarray(array, dtype=np.float32)
        table = np.atleast_2d(rows[name])
        check_vectors(range(len(table)), table, source=f"{path}: {name}", noun="row")
        if intercepts:
            rows.update(_intercept(path, name, arrays, len(table)))
    strange = sorted(set(arrays) - set(rows))
    if strange:
        raise InputError(f"{path}: {strange[0]}: there is no array of that name without {INTERCEPT}; rename it")
    return rows


def _intercept(path: Path, name: str, arrays: Mapping[str, NDArray[Any]], count: int) -> dict[str, Vectors]:
    """Return the intercepts of a probe; zeros where there are none."""
    key = name + INTERCEPT
    numbers = arrays.get(key, np.zeros(count))
    if numbers.dtype.kind not in "fiu" or numbers.size != count or not np.isfinite(numbers).all():
        raise InputError(f"{path}: {key}: it has other than {count} finite numbers, one a row of {name}; correct it")
    return {key: np.asarray(numbers, dtype=np.float32).reshape(-1)}


def write_rows(path: Path, rows: Mapping[str, Vectors]) -> None:
    """Write arrays as `read_rows` reads them. NumPy's own `savez` cannot write one that is called `file`."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in rows.items():
            with archive.open(f"{name}.npy", "w") as file:
                # Nothing that runs code when it is read
                np.lib.format.write_array(file, array, allow_pickle=False)


def carry(
    store: Store,
    fitted: FittedStitch,
    *,
    directions: Mapping[str, Vectors] | None = None,
    probes: Mapping[str, Vectors] | None = None,
    labels: Mapping[str, str] | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Carried:
    """Carry directions and probes of the old space of `store` by the stitch that was fitted on it.

    Arrays are vectors, (p,), or rows, (k, p); a probe NAME has its intercepts, (k,), under `NAME.intercept`. With
    `labels`, by document id, a direction or probe whose name is a label is judged by who has that label.

    Refused is a direction that cannot be told from a random one, a probe or a direction with labels whose AUC may be
    that of chance, and one that is significantly worse than what the labels of the sample alone teach in the new space.
    Raises `StitchError` where the stitch is for queries or another store, or its sample is too small to judge by.
    """
    pairs = _read_pairs(store, fitted)
    forth = _unfitted(fitted, pairs)
    judge = Judge(pairs, labels or {}, seed)
    judgements: list[Judgement] = []
    moved: dict[Kind, dict[str, Vectors]] = {"direction": {}, "probe": {}}
    if directions:
        maps = [_map_of(forth, pairs, rows) for rows in _resamples(forth, len(pairs), seed)]
        folds = [(_map_of(forth, pairs, fit), held_out) for fit, held_out in judge.folds]
        for done, (name, rows) in enumerate(directions.items()):
            moved["direction"][name] = (rows.astype(np.float64) @ maps[0].matrix).astype(np.float32)
            for label, row in _rows(name, rows):
                judgements.append(judge.direction(name, label, row, maps, folds))
            progress("judge directions", done + 1, len(directions))
    if probes:
        # A probe weighs vectors, and so moves against them: by the map from the new space to the old one
        swapped = PairedVectors(pairs.ids, pairs.new, pairs.old)
        if isinstance(fitted.stitch, Identity):
            back: Stitch = fitted.stitch
        else:
            back = Ridge().tuned(pairs.new, pairs.old)
        whole = _map_of(back, swapped, np.arange(len(pairs)))
        folds = [(_map_of(back, swapped, fit), held_out) for fit, held_out in judge.folds]
        names = [name for name in probes if not name.endswith(INTERCEPT)]
        for done, name in enumerate(names):
            weights = _rows_of(probes[name])
            biases = probes[name + INTERCEPT].astype(np.float64)
            carried = (weights @ whole.matrix.T).astype(np.float32)
            # In the shape that it was given in: a single probe stays a single row
            moved["probe"][name] = carried.reshape(*probes[name].shape[:-1], -1)
            moved["probe"][name + INTERCEPT] = (biases + weights @ whole.offset).astype(np.float32)
            for (label, row), bias in zip(_rows(name, probes[name]), biases, strict=True):
                judgements.append(judge.probe(name, label, row, float(bias), folds))
            progress("judge probes", done + 1, len(names))
    refused = {(judgement.kind, judgement.array) for judgement in judgements if judgement.refused}
    # The whole array: the rows of one are used together, and a gap would renumber the others
    for kind, name in refused:
        moved[kind].pop(name)
        moved[kind].pop(name + INTERCEPT, None)
    left_out = tuple(sorted(name for _, name in refused))
    return Carried(len(pairs), moved["direction"], moved["probe"], tuple(judgements), left_out)


def _rows_of(rows: Vectors) -> Matrix:
    return np.atleast_2d(rows).astype(np.float64)


def _rows(name: str, rows: Vectors) -> Iterator[tuple[str, Matrix]]:
    """Yield each row with its name."""
    is_single = rows.ndim == 1 or len(rows) == 1
    for position, row in enumerate(_rows_of(rows)):
        yield (name if is_single else f"{name}[{position}]"), row


def _read_pairs(store: Store, fitted: FittedStitch) -> PairedVectors:
    require_direction(fitted.manifest, DOCUMENT, source=store.info.location)
    difference = difference_from(store, fitted.manifest.stitch.fitted_on, store.snapshot())
    if difference is not None:
        raise StitchError(
            f"{store.info.location}: the stitch was fitted on another store ({difference}); give the stitch's own"
        )
    rows_of = fitted.sample.row_of
    ids = []
    old = []
    for batch in store.scan():
        for row, doc_id in enumerate(batch.ids):
            if doc_id in rows_of:
                ids.append(doc_id)
                # A view would keep the whole batch in memory
                old.append(batch.vectors[row].copy())
    if len(ids) < len(rows_of):
        raise StoreError(f"{store.info.location}: lacks {len(rows_of) - len(ids)} documents of the sample; fit again")
    if len(ids) < FEWEST_PAIRS:
        raise StitchError(
            f"{store.info.location}: the stitch was fitted on {len(ids)} documents, and {FEWEST_PAIRS} are needed to "
            "judge by; fit one on more"
        )
    vectors = np.stack(old)
    check_vectors(ids, vectors, source=store.info.location)
    return PairedVectors(ids, vectors, fitted.sample.vectors[[rows_of[doc_id] for doc_id in ids]])


def _unfitted(fitted: FittedStitch, pairs: PairedVectors) -> Stitch:
    """Return the map of directions, with all that is chosen once for the sample: a ridge, or the identity."""
    if isinstance(fitted.stitch, Identity):
        return fitted.stitch
    return Ridge().tuned(pairs.old, pairs.new)


def _map_of(stitch: Stitch, pairs: PairedVectors, rows: NDArray[np.int64]) -> AffineMap:
    affine = copy.copy(stitch).fit(pairs.old[rows], pairs.new[rows]).affine(pairs.old.shape[1])
    assert affine is not None  # noqa: S101 - a ridge or the identity
    return affine


def _resamples(stitch: Stitch, count: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield all rows, and then draws with replacement; the latter only where they could make a difference."""
    rng = np.random.default_rng(seed)
    yield np.arange(count)
    # The identity learns nothing of the rows
    if isinstance(stitch, Identity):
        return
    for _ in range(40):
        yield rng.integers(count, size=count)
