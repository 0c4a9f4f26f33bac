"""Reads the vectors back from an index that FAISS has loaded. Runs in the child process only.

FAISS reads every vector itself, with `reconstruct_batch`. Its `reconstruct_n` is never called: it aborts on id maps,
and returns uninitialised memory for lists whose ids are not 0, 1, 2 ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import faiss
import numpy as np
from numpy.typing import NDArray

from migrate.stores.faiss.fourcc import LARGEST_DIM, METRICS
from migrate.stores.frames import RefusedError

Rows = NDArray[np.float32]

# Arbitrary: each transform that is undone makes a copy of as much.
_BLOCK_BYTES: Final = 4 << 20

_RIGHT_ANGLES: Final = 2e-4
"""How far products of rows of a rotation may be from 0 and 1. FAISS leaves a millionth, and a ten-thousandth where a
PCA was trained with hardly more vectors than it has axes; a wrong sign among 4,096 numbers a thousandth."""

_PLAIN: Final = ("IndexFlat", "IndexFlatL2", "IndexFlatIP", "IndexIVFFlat")
"""Classes whose vectors lie in memory, and in the file, one after the other."""

_FAST_SCAN_BLOCK: Final = 32
"""FAISS finds the codes of fast-scan indexes in blocks of so many rows, and wrong ones in others."""

_LEAST_SPREAD: Final = 2
"""Fractions that were cut to whole numbers are no further apart than this."""


@dataclass(frozen=True)
class Decoded:
    """The vectors of an index, however deeply it is nested, and what is known of how they are kept.

    `stored` is the index inside that keeps them, `transforms` what was done to them before, in that order. `added` are
    the numbers that an index in an id map gave its vectors, None where that is the order of the rows. `runs`,
    (n, 2), are address and count of the vectors that lie in the memory of FAISS as they are, None where they do not;
    `end` is the address after the last byte of the index, if that is known.
    """

    stored: Any
    transforms: tuple[Any, ...]
    labels: NDArray[np.int64] | None
    added: NDArray[np.int64] | None
    remarks: tuple[str, ...]
    runs: NDArray[np.int64] | None
    end: int | None

    @property
    def exact(self) -> bool:
        """True if the vectors come back to the bit."""
        return "Flat" in _name(self.stored) and all(map(_is_lossless, self.transforms))

    def rows(self) -> Iterator[Rows]:
        """Yield all vectors, some at a time."""
        row_bytes = 4 * self.stored.d
        step = max(1, _BLOCK_BYTES // row_bytes)
        for first in range(0, self.stored.ntotal, step):
            numbers = np.arange(first, min(first + step, self.stored.ntotal))
            block = self.stored.reconstruct_batch(numbers)
            for transform in reversed(self.transforms):
                block = transform.reverse_transform(block)
            yield block


def decode_index(loaded: Any) -> Decoded:
    """Return the vectors and labels of an index."""
    index: Any = faiss.downcast_index(loaded)
    ids: NDArray[np.int64] | None = None
    transforms: list[Any] = []
    remarks: list[str] = []
    tail_bytes = 0
    _check_header(index)
    while (inner := _inner(index)) is not None:
        inner = faiss.downcast_index(inner)
        _check_header(inner)
        if isinstance(index, faiss.IndexPreTransform):
            transforms += _transforms(index, inner)
        else:
            _expect_same_shape(index, inner)
        if isinstance(index, faiss.IndexIDMap):
            map_ids = faiss.vector_to_array(index.id_map).astype(np.int64)
            if map_ids.size != index.ntotal:
                raise RefusedError(f"the map holds {map_ids.size} ids for {index.ntotal} vectors; copy it again")
            if ids is None:
                ids = map_ids
            else:
                ids = map_ids[_checked(ids, map_ids.size)]
            # The length of the map and its ids, which FAISS writes behind the index inside.
            tail_bytes += 8 + 8 * map_ids.size
        if isinstance(index, faiss.IndexRefine):
            # The `k_factor`, which FAISS writes behind both of its indexes.
            tail_bytes += 4
        if index.metric_type != inner.metric_type:
            metrics = f"{METRICS[index.metric_type]}, {METRICS[inner.metric_type]}"
            remarks.append(f"the index and the one inside compare differently: {metrics}")
        index = inner
    _check_stored(index)
    labels, runs, end = _lists(index) if isinstance(index, faiss.IndexIVF) else _codes(index)
    added = None if ids is None else labels
    if ids is not None:
        if labels is None:
            labels = ids
        else:
            labels = ids[_checked(labels, ids.size)]
    _try_one(index, transforms)
    remarks += [remark for transform in transforms if (remark := _remark(transform))]
    remarks += _remarks(index)
    is_plain = _name(index) in _PLAIN and not transforms
    return Decoded(
        index, tuple(transforms), labels, added, tuple(remarks), runs if is_plain else None, end and end + tail_bytes
    )


def _name(index: Any) -> str:
    return type(index).__name__


def chain_of(loaded: Any) -> str:
    """Return the classes of an index and of those inside, such as `IndexIDMap2(IndexHNSWFlat)`."""
    index = faiss.downcast_index(loaded)
    inside: list[str] = []
    if isinstance(index, faiss.IndexPreTransform):
        inside = [_name(faiss.downcast_VectorTransform(index.chain.at(number))) for number in range(index.chain.size())]
    names = ("index", "base_index", "refine_index")
    inside += [chain_of(getattr(index, name)) for name in names if hasattr(index, name)]
    if inside:
        return f"{_name(index)}({', '.join(inside)})"
    return _name(index)


def _inner(index: Any) -> Any:
    """Return the index inside that the vectors come from; None where it keeps them itself."""
    if isinstance(index, faiss.IndexIDMap | faiss.IndexPreTransform):
        return index.index
    if isinstance(index, faiss.IndexRefine):  # the base is the worse copy
        return index.refine_index
    if not isinstance(index, faiss.IndexHNSW | faiss.IndexNSG | faiss.IndexNNDescent):
        return None
    if index.storage is None:
        raise RefusedError("the index holds the graph but not the vectors; save it without IO_FLAG_SKIP_STORAGE")
    return index.storage


def _check_header(index: Any) -> None:
    name = _name(index)
    metric = index.metric_type
    if metric not in METRICS:
        metrics = {value: key[7:] for key, value in vars(faiss).items() if key.startswith("METRIC_")}
        raise RefusedError(
            f"{name} uses the metric {metrics.get(metric, metric)}, but only L2 and inner product are read; build the "
            "index with one of these first"
        )
    if not index.is_trained:
        raise RefusedError(f"the {name} is not trained; train and fill it first")
    if not 0 < index.d <= LARGEST_DIM:
        raise RefusedError(f"{name} has a dimension of {index.d}; the file is damaged, copy it again")


def _expect_same_shape(index: Any, inner: Any) -> None:
    """Make sure that an index and the one inside have as many vectors, of one dimension."""
    if (index.d, index.ntotal) != (inner.d, inner.ntotal):
        raise RefusedError(
            f"{_name(index)} counts {index.ntotal} vectors of dimension {index.d}, but the {_name(inner)} inside has "
            f"{inner.ntotal} of dimension {inner.d}; the file is damaged, copy it again or build the index again"
        )


def _checked(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the labels inside an id map, which are the places of its ids."""
    if labels.size and not 0 <= labels.min() <= labels.max() < count:
        raise RefusedError(f"the inner labels are not 0 to {count - 1}; build the index again")
    return labels


def _check_stored(index: Any) -> None:
    """Refuse what FAISS would crash on, or read other vectors from than were added."""
    name = _name(index)
    if isinstance(index, faiss.IndexIVFFastScan) or getattr(index, "bbs", _FAST_SCAN_BLOCK) != _FAST_SCAN_BLOCK:
        raise RefusedError(
            f"FAISS cannot reconstruct the fast-scan codes of {name} from a file; build the index from the vectors "
            "without fast scan (PQ8x4, not PQ8x4fs; RaBitQ, not RaBitQfs), or embed the documents again"
        )
    if not isinstance(index, faiss.IndexIVF | faiss.IndexFlatCodes | faiss.IndexFastScan):
        raise RefusedError(
            f"FAISS does not reconstruct vectors from {name}; build an index that keeps them, such as Flat or SQ8, "
            "from the vectors first, or embed the documents again"
        )


def _try_one(index: Any, transforms: list[Any]) -> None:
    """Refuse an index whose vectors FAISS cannot reconstruct: told by one, as it may abort over many."""
    if not index.ntotal:
        return
    try:
        row = index.reconstruct(0)[None]
        for transform in reversed(transforms):
            row = transform.reverse_transform(row)
    except RuntimeError as error:
        raise RefusedError(
            f"FAISS cannot reconstruct vectors from {_name(index)}{' after a transform' * bool(transforms)}; build an "
            "index that keeps them, such as Flat or SQ8, from the vectors first, or embed the documents again"
        ) from error


# Where the vectors lie.


def _codes(index: Any) -> tuple[None, NDArray[np.int64] | None, int | None]:
    """Check an index without lists; return address and count of its codes, and the address after the last byte."""
    expected = index.ntotal * index.code_size
    if isinstance(index, faiss.IndexFastScan):
        # whole blocks, and half a byte for each sub-vector of a row
        n_blocks = -(-index.ntotal // index.bbs)
        block_bytes = index.bbs * (index.M2 // 2)
        expected = n_blocks * block_bytes
    if index.codes.size() < expected:
        raise RefusedError(
            f"the index counts {index.ntotal} vectors but holds {index.codes.size()} bytes of codes in place of "
            f"{expected}; copy it again"
        )
    if _name(index) not in _PLAIN or not index.ntotal:
        return None, None, None
    start = int(index.get_xb())
    return None, np.array([[start, index.ntotal]], np.int64), start + expected


def _lists(index: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Number the rows of an IndexIVF in the order of its lists, for `reconstruct`, whatever ids they have.

    Returns
    -------
    labels, runs, end
        The ids in that order, address and count of the codes of each list, and the address after the last byte.
    """
    inverted = index.invlists
    if inverted is None or inverted.nlist != index.nlist:
        raise RefusedError(
            f"the index should have {index.nlist} inverted lists, but has none or another number; copy the file again"
        )
    if inverted.code_size != index.code_size:
        raise RefusedError(
            f"the lists have codes of {inverted.code_size} bytes, and the index of {index.code_size}; copy it again"
        )
    quantizer = index.quantizer
    # A file of `shard_ivf_index_centroids` has fewer centroids than lists; the lists are all there.
    if quantizer is None or quantizer.d != index.d or not 0 < quantizer.ntotal <= index.nlist:
        raise RefusedError(
            f"the quantizer does not fit to {index.nlist} lists of dimension {index.d}; copy the file again"
        )
    sizes = [inverted.list_size(number) for number in range(index.nlist)]
    stored = sum(sizes)
    if stored != index.ntotal and isinstance(index, faiss.IndexIVFFlatDedup):
        raise RefusedError(
            f"{_name(index)} keeps equal vectors once, {stored} for {index.ntotal} ids, and FAISS reconstructs no "
            "others; build an IndexIVFFlat from the vectors first, or embed the documents again"
        )
    if stored != index.ntotal:
        raise RefusedError(
            f"the index counts {index.ntotal} vectors, but its lists hold {stored}: FAISS drops NaN "
            "vectors from the lists yet counts them; build it again without them"
        )
    labels = np.empty(stored, np.int64)
    entries = np.empty(stored, np.int64)
    runs: list[tuple[int, int]] = []
    first = 0
    end = 0
    for number, size in enumerate(sizes):
        if size:
            codes = inverted.get_codes(number)
            ids = inverted.get_ids(number)
            rows = slice(first, first + size)
            labels[rows] = faiss.rev_swig_ptr(ids, size)
            # as the direct map of FAISS writes an entry
            entries[rows] = (number << 32) + np.arange(size)
            runs.append((int(codes), size))
            first += size
            end = max(end, int(ids) + labels.itemsize * size)
            inverted.release_ids(number, ids)
            inverted.release_codes(number, codes)
    # not `make_direct_map`, which takes no ids but 0 to n-1; by this one FAISS reconstructs rows of any ids
    index.direct_map.type = faiss.DirectMap.Array
    faiss.copy_array_to_vector(entries, index.direct_map.array)
    return labels, np.array(runs, np.int64).reshape(-1, 2), end


# What is lost.


def _transforms(index: Any, inner: Any) -> list[Any]:
    """Return the transforms before an index, each of which FAISS can undo."""
    transforms = [faiss.downcast_VectorTransform(index.chain.at(step)) for step in range(index.chain.size())]
    dims = [index.d, *(transform.d_out for transform in transforms)]
    if [*(transform.d_in for transform in transforms), inner.d] != dims or index.ntotal != inner.ntotal:
        raise RefusedError("the transforms do not fit to the index inside; the file is damaged, copy it again")
    for transform in transforms:
        if isinstance(transform, faiss.LinearTransform):
            _expect_rotation(transform)
        if isinstance(transform, faiss.RemapDimensionsTransform):
            _expect_places(transform)
    return transforms


def _expect_rotation(transform: Any) -> None:
    """Make sure that a matrix is a rotation, or a part of one: FAISS undoes any as if it were, to other vectors."""
    name = _name(transform)
    shape = (transform.d_out, transform.d_in)
    matrix = faiss.vector_to_array(transform.A).astype(np.float64)
    if transform.have_bias:
        bias_size = transform.b.size()
    else:
        bias_size = transform.d_out
    if matrix.size != transform.d_out * transform.d_in or bias_size != transform.d_out or not np.isfinite(matrix).all():
        raise RefusedError(f"the matrix of {name} is not {shape[0]} x {shape[1]} finite numbers; copy it again")
    matrix = matrix.reshape(shape)
    if transform.d_out > transform.d_in:
        matrix = matrix.T
    error = np.abs(matrix @ matrix.T - np.eye(len(matrix))).max(initial=0.0)
    if error > _RIGHT_ANGLES:
        raise RefusedError(
            f"the rows of {name} are off by {error:.2g} from those of a rotation, and FAISS undoes rotations alone: if "
            "it whitens or scales, build the index without it; if not, the file is damaged, copy it again"
        )


def _expect_places(transform: Any) -> None:
    positions = faiss.vector_to_array(transform.map).astype(np.int64)
    if positions.size != transform.d_out or (positions.size and positions.max() >= transform.d_in):
        raise RefusedError(
            f"{_name(transform)} does not have {transform.d_out} places below {transform.d_in}; copy it again"
        )


def _is_lossless(transform: Any) -> bool:
    if not isinstance(transform, faiss.RemapDimensionsTransform):
        return False
    positions = faiss.vector_to_array(transform.map)
    return bool(np.unique(positions[positions >= 0]).size == transform.d_in)


def _remark(transform: Any) -> str | None:
    """Return what a transform loses, or nothing where it is as good as nothing."""
    name = _name(transform)
    if isinstance(transform, faiss.NormalizationTransform):
        return "L2norm keeps the direction of a vector and drops its length; the vectors read back are of length 1"
    if transform.d_out < transform.d_in:
        return f"{name} projects {transform.d_in} dimensions to {transform.d_out}; what lay outside of these is lost"
    if _is_lossless(transform):
        return None
    return f"{name} is undone up to the rounding of float32"


def _remarks(index: Any) -> Iterator[str]:
    """Yield what is worth knowing of the index that keeps the vectors."""
    if isinstance(index, faiss.IndexLSH):
        yield "LSH keeps one bit a dimension: the vectors read back are directions of signs, far from the originals"
    if hasattr(index, "sq") and index.sq.qtype in _WHOLE_NUMBERS:
        yield f"{_WHOLE_NUMBERS[index.sq.qtype]} keeps whole numbers only: exact where the vectors were such, else cut"
    if isinstance(index, faiss.IndexIVF):
        quantizer = index.quantizer
        if quantizer.metric_type != index.metric_type and quantizer.metric_type in METRICS:
            metrics = f"{METRICS[quantizer.metric_type]}, the lists by {METRICS[index.metric_type]}"
            yield f"the quantizer compares by {metrics}"
        if quantizer.ntotal < index.nlist:
            yield f"a shard: the quantizer holds {quantizer.ntotal} of {index.nlist} centroids, the lists are whole"


_WHOLE_NUMBERS: Final = {
    faiss.ScalarQuantizer.QT_8bit_direct: "QT_8bit_direct",
    faiss.ScalarQuantizer.QT_8bit_direct_signed: "QT_8bit_direct_signed",
}


def expect_numbers(decoded: Decoded) -> None:
    """Refuse whole numbers that unit vectors were cut to: zeros (and ones) whichever way they pointed."""
    if not hasattr(decoded.stored, "sq") or decoded.stored.sq.qtype not in _WHOLE_NUMBERS:
        return
    least = np.inf
    most = -np.inf
    for block in decoded.rows():
        least = min(least, float(block.min(initial=np.inf)))
        most = max(most, float(block.max(initial=-np.inf)))
    if most - least <= _LEAST_SPREAD:
        raise RefusedError(
            f"the 8bit_direct codes hold only {least:.0f} to {most:.0f}: the vectors were fractions, and nothing of "
            "them is left; embed the documents again"
        )
