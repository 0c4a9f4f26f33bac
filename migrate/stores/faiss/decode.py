"""Reads the vectors back from any index that FAISS has loaded, part by part. Runs in the child process only.

`reconstruct_n` is never called: it aborts on id maps, and returns uninitialised memory for ids that are not 0, 1, 2 ...
Instead, the codes are decoded and the inverted lists are walked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import faiss
import numpy as np
from numpy.typing import NDArray

from migrate.stores.faiss.fourcc import LARGEST_DIM, METRICS
from migrate.stores.faiss.recipe import Recipe
from migrate.stores.faiss.undo import invert
from migrate.stores.frames import RefusedError

Rows = NDArray[np.float32]
Codes = NDArray[np.uint8]
Lists = Callable[[], Iterator[tuple[int, Any, int]]]
"""Number, address and count of each run of codes."""

_ADVICE: Final = "write the vectors to a flat index first"
_BLOCK: Final = 32


@dataclass(frozen=True)
class Part:
    """The vectors of an index, however deeply it is nested, and what is known of how they are kept.

    `runs`, (n, 2), are address and count of the vectors that lie in the memory of FAISS as they are, None where they do
    not; `end` is the address after the last byte of the index, if that is known.
    """

    chain: str
    recipe: Recipe
    rows: Callable[[], Iterator[Rows]]
    exact: bool
    labels: NDArray[np.int64] | None = None
    remarks: tuple[str, ...] = ()
    runs: NDArray[np.int64] | None = None
    end: int | None = None


def decode_index(loaded: Any) -> Part:
    """Return the vectors, labels and recipe of an index."""
    index: Any = faiss.downcast_index(loaded)
    name = _name(index)
    _check_header(index)
    decode = next((decode for family, decode in _FAMILIES.items() if isinstance(index, family)), None)
    if decode is None:
        raise RefusedError(f"the vectors of {name} cannot be read; {_ADVICE}")
    decoded = decode(index)
    if decoded.labels is not None and len(decoded.labels) != index.ntotal:
        raise RefusedError(
            f"{name} counts {index.ntotal} vectors but holds {len(decoded.labels)}: FAISS drops NaN vectors "
            "from the lists yet counts them; build it again without them"
        )
    return decoded


def _name(index: Any) -> str:
    return type(index).__name__


def _check_header(index: Any) -> None:
    name, metric = _name(index), index.metric_type
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


# Indexes with others inside.


def _id_map(index: Any) -> Part:
    _expect_same_shape(index, index.index, "the index inside")
    inner = decode_index(index.index)
    ids = faiss.vector_to_array(index.id_map).astype(np.int64)
    if ids.size != index.ntotal:
        raise RefusedError(f"the map holds {ids.size} ids for {index.ntotal} vectors; copy it again")
    if inner.labels is not None:
        if inner.labels.size and not 0 <= inner.labels.min() <= inner.labels.max() < ids.size:
            raise RefusedError(f"the inner labels are not 0 to {ids.size - 1}; build the index again")
        ids = ids[inner.labels]
    kind = "IDMap2" if isinstance(index, faiss.IndexIDMap2) else "IDMap"
    return replace(
        inner,
        chain=f"Index{kind}({inner.chain})",
        recipe={"kind": kind, "inner": inner.recipe},
        labels=ids,
        remarks=(*_compared(index, index.index), *inner.remarks),
        end=inner.end and inner.end + 8 + 8 * ids.size,
    )


def _transformed(index: Any) -> Part:
    inner = decode_index(index.index)
    inverses = [invert(index.chain.at(number)) for number in range(index.chain.size())]

    def rows() -> Iterator[Rows]:
        for block in inner.rows():
            for inverse in reversed(inverses):
                block = inverse.apply(block)
            yield np.ascontiguousarray(block, np.float32)

    return replace(
        inner,
        chain=f"IndexPreTransform({', '.join([*(inverse.name for inverse in inverses), inner.chain])})",
        recipe={
            "kind": "PreTransform",
            "transforms": [inverse.recipe for inverse in inverses],
            "inner": inner.recipe,
        },
        rows=rows,
        exact=inner.exact and all(inverse.exact for inverse in inverses),
        remarks=(*(inverse.remark for inverse in inverses if inverse.remark), *inner.remarks),
        runs=None,
    )


def _refined(index: Any) -> Part:
    base, refine = faiss.downcast_index(index.base_index), faiss.downcast_index(index.refine_index)
    _expect_same_shape(index, base, "the one to search in")
    _expect_same_shape(index, refine, "the one to refine with")
    stored = decode_index(refine)
    # the base is looked at for its settings; its rows are the worse copy
    decoded = decode_index(base)
    recipe = {"kind": "Refine", "base": decoded.recipe, "refine": stored.recipe, "k_factor": float(index.k_factor)}
    chain = f"{_name(index)}({decoded.chain}, {stored.chain})"
    return replace(stored, chain=chain, recipe=recipe, end=stored.end and stored.end + 4)


def _graph(index: Any) -> Part:
    if index.storage is None:
        raise RefusedError("the index holds the graph but not the vectors; save it without IO_FLAG_SKIP_STORAGE")
    stored = decode_index(index.storage)
    _expect_same_shape(index, index.storage, "its storage")
    recipe = {**_graph_recipe(index), "storage": stored.recipe}
    remarks = (*_compared(index, index.storage), *stored.remarks)
    return replace(stored, chain=_name(index), recipe=recipe, remarks=remarks)


def _graph_recipe(index: Any) -> Recipe:
    """Return the settings of a graph, without those of its storage."""
    if isinstance(index, faiss.IndexNSG):
        nsg = index.nsg
        return {"kind": "NSG", "R": int(nsg.R), "search_L": int(nsg.search_L), "GK": int(index.GK)}
    links = faiss.vector_to_array(index.hnsw.cum_nneighbor_per_level)
    return {
        "kind": "HNSW",
        "M": int(links[1]) // 2 if links.size > 1 else 32,
        "efConstruction": int(index.hnsw.efConstruction),
        "efSearch": int(index.hnsw.efSearch),
    }


def _expect_same_shape(index: Any, inner: Any, role: str) -> None:
    """Make sure that an index and the one inside have as many vectors, of one dimension."""
    if (index.d, index.ntotal) != (inner.d, inner.ntotal):
        raise RefusedError(
            f"{_name(index)} counts {index.ntotal} vectors of dimension {index.d}, but {role} has {inner.ntotal} "
            f"of dimension {inner.d}; the file is damaged, copy it again or build the index again"
        )


def _compared(index: Any, inner: Any) -> tuple[str, ...]:
    if index.metric_type == inner.metric_type:
        return ()
    metrics = f"{METRICS[index.metric_type]}, {METRICS.get(inner.metric_type, inner.metric_type)}"
    return (f"the index and the one inside compare differently: {metrics}",)


# Inverted lists.


def _inverted(index: Any) -> Part:
    """Decode an IndexIVF, in the order of the lists."""
    refused = {
        "IndexIVFFlatDedup": "keeps equal vectors once and tells no one where; build IVF,Flat first",
        "IndexIVFSpectralHash": "keeps bits that no vector can be told from; re-embed the documents",
    }
    if _name(index) in refused:
        raise RefusedError(f"{_name(index)} {refused[_name(index)]}")
    if _name(index) == "IndexIVFFlatPanorama":
        raise RefusedError(
            "the vectors of IndexIVFFlatPanorama do not lie one after the other; build the index as IVF,Flat first"
        )
    inverted = index.invlists
    if inverted is None or inverted.nlist != index.nlist:
        raise RefusedError(
            f"the index should have {index.nlist} inverted lists, but has none or another number; copy the file again"
        )
    if not isinstance(index, faiss.IndexIVFFastScan) and inverted.code_size != index.code_size:
        raise RefusedError(
            f"the lists have codes of {inverted.code_size} bytes, and the index of {index.code_size}; copy it again"
        )

    def lists() -> Iterator[tuple[int, Any, int]]:
        for number in range(index.nlist):
            if count := inverted.list_size(number):
                codes = inverted.get_codes(number)
                yield number, codes, count
                inverted.release_codes(number, codes)

    labels, runs, end = _labels(index, lists)
    decoded = _coded(index, lists)
    recipe = {
        "kind": "IVF",
        "nlist": int(index.nlist),
        "nprobe": int(index.nprobe),
        "by_residual": bool(index.by_residual),
        "quantizer": _quantizer_recipe(faiss.downcast_index(index.quantizer), index.nlist, index.d),
        "code": decoded.recipe,
    }
    remarks = (*_quantizer_remarks(index), *decoded.remarks)
    is_plain = _name(index) == "IndexIVFFlat"
    return replace(decoded, recipe=recipe, labels=labels, remarks=remarks, runs=runs if is_plain else None, end=end)


def _labels(index: Any, lists: Lists) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return the labels of all lists, address and count of their codes, and the address after the last byte."""
    inverted = index.invlists
    runs = np.array([(int(codes), count) for _, codes, count in lists()], np.int64).reshape(-1, 2)
    stored = int(runs[:, 1].sum())
    if stored != index.ntotal:
        raise RefusedError(
            f"the index counts {index.ntotal} vectors, but its lists hold {stored}: FAISS drops NaN "
            "vectors from the lists yet counts them; build it again without them"
        )
    labels, first, end = np.empty(stored, np.int64), 0, 0
    for number, _, count in lists():
        ids = inverted.get_ids(number)
        labels[first : first + count] = faiss.rev_swig_ptr(ids, count)
        first, end = first + count, max(end, int(ids) + labels.itemsize * count)
        inverted.release_ids(number, ids)
    return labels, runs, end


def _quantizer_recipe(quantizer: Any, nlist: int, dim: int) -> Recipe:
    # A file of `shard_ivf_index_centroids` has fewer centroids than lists; the lists are all there.
    if quantizer is None or quantizer.d != dim or not 0 < quantizer.ntotal <= nlist:
        raise RefusedError(f"the quantizer does not fit to {nlist} lists of dimension {dim}; copy the file again")
    metric = METRICS.get(quantizer.metric_type, "l2")
    if isinstance(quantizer, faiss.IndexHNSW):
        return {**_graph_recipe(quantizer), "metric": metric}
    if isinstance(quantizer, faiss.MultiIndexQuantizer):
        return {"kind": "IMI", "M": int(quantizer.pq.M), "nbits": int(quantizer.pq.nbits)}
    if isinstance(quantizer, faiss.IndexFlat):  # finds the nearest centroid at least as well as any other
        return {"kind": "Flat", "metric": metric}
    return {"kind": "Other", "was": _name(quantizer)}


def _quantizer_remarks(index: Any) -> Iterator[str]:
    quantizer = index.quantizer
    if quantizer.metric_type != index.metric_type and quantizer.metric_type in METRICS:
        yield f"the quantizer compares by {METRICS[quantizer.metric_type]}, the lists by {METRICS[index.metric_type]}"
    if quantizer.ntotal < index.nlist:
        yield f"a shard: the quantizer holds {quantizer.ntotal} of {index.nlist} centroids, the lists are whole"


# Codes: of an index that keeps them in a row, or of each list.


def _flat(index: Any) -> Part:
    name = _name(index)
    if name not in {"IndexFlat", "IndexFlatL2", "IndexFlatIP"}:
        # Panorama stores the vectors level by level, and FAISS returns zeros for them
        raise RefusedError(f"the vectors of {name} do not lie one after the other; {_ADVICE}")
    count, dim = index.ntotal, index.d
    if index.codes.size() != 4 * count * dim:
        raise RefusedError(f"the index counts {count} vectors but holds {index.codes.size()} bytes; copy it again")
    decoded = _row_of_codes(index)
    if not count:
        return decoded
    start = int(index.get_xb())
    return replace(decoded, runs=np.array([[start, count]], np.int64), end=start + 4 * count * dim)


def _row_of_codes(index: Any) -> Part:
    """Decode an IndexFlatCodes or IndexFastScan."""
    packed = isinstance(index, faiss.IndexFastScan)
    expected = _packed_bytes(index, index.ntotal) if packed else index.ntotal * index.code_size
    if index.codes.size() < expected:
        raise RefusedError(f"{index.codes.size()} bytes of codes in place of {expected}; copy the file again")
    pointer = index.codes.get() if packed else index.codes.data()
    return _coded(index, lambda: iter([(0, pointer, index.ntotal)] if index.ntotal else []))


def _coded(index: Any, lists: Lists) -> Part:
    if _name(index) in {"Index2Layer", "IndexIVFIndependentQuantizer"}:
        raise RefusedError(f"{_name(index)} holds two quantizers; build the index as IVF,PQ first")
    recipe, decode = _code_recipe(index), _decoder(index)
    remarks: tuple[str, ...] = ()
    if recipe["kind"] == "LSH":
        remarks = ("LSH keeps one bit a dimension: the vectors read back are directions of signs, far from the "
                   "originals",)  # fmt: skip
    if str(recipe.get("type")).startswith("QT_8bit_direct"):
        remarks = (f"{recipe['type']} keeps whole numbers only: exact where the vectors were such, else cut to them",)
        _expect_large_numbers(codes for _, codes in _blocks(index, lists))

    def rows() -> Iterator[Rows]:
        return (decode(number, codes) for number, codes in _blocks(index, lists))

    return Part(_name(index), recipe, rows, exact=recipe["kind"] == "Flat", remarks=remarks)


def _blocks(index: Any, lists: Lists) -> Iterator[tuple[int, Codes]]:
    """Yield the number of a list and some of its codes, as many as take about 4 MiB as vectors."""
    step = max(1, (4 << 20) // (4 * index.d))
    for number, pointer, count in lists():
        if isinstance(index, faiss.IndexFastScan | faiss.IndexIVFFastScan):
            yield from ((number, codes) for codes in _unpacked(index, pointer, count, step))
        else:
            codes = faiss.rev_swig_ptr(pointer, count * index.code_size).reshape(count, index.code_size)
            yield from ((number, codes[first : first + step]) for first in range(0, count, step))


def _packed_bytes(index: Any, count: int) -> int:
    """Return the bytes that so many rows take in FastScan's order."""
    if index.bbs % _BLOCK or index.bbs < _BLOCK or index.M2 < 2:
        raise RefusedError(f"FastScan blocks of {index.bbs} rows, which is not a multiple of 32; copy the file again")
    return int(-(-count // index.bbs) * index.bbs * (index.M2 // 2))


def _unpacked(index: Any, pointer: Any, count: int, step: int) -> Iterator[Codes]:
    """Yield codes, some `step` at a time, that FastScan interleaves (`pq4_fast_scan.cpp`): 32 rows, in blocks of `bbs`.

    FAISS's own way back (`get_CodePacker`, `reconstruct`) is right for `bbs` = 32 only. Byte j < 16 holds the even
    quantizer's nibbles of rows p(j) and p(j) + 16, byte j + 16 the odd one's.
    """
    content = faiss.rev_swig_ptr(pointer, _packed_bytes(index, count))
    blocks = content.reshape(-1, index.M2 // 2, index.bbs // _BLOCK, _BLOCK)
    order = [*range(0, 16, 2), *range(1, 16, 2)]
    at_once, done = max(1, step // index.bbs), 0
    for first in range(0, len(blocks), at_once):
        chunk = blocks[first : first + at_once]
        even, odd = chunk[..., :16][..., order], chunk[..., 16:][..., order]
        rows = np.concatenate([even & 15 | odd << 4, even >> 4 | odd & 0xF0], axis=-1)
        codes = np.ascontiguousarray(rows.transpose(0, 2, 3, 1)).reshape(-1, blocks.shape[1])
        yield codes[: count - done]
        done += len(codes)


def _decoder(index: Any) -> Callable[[int, Codes], Rows]:
    """Return what decodes codes of a list."""
    if isinstance(index, faiss.IndexFastScan | faiss.IndexIVFFastScan):
        return _quantizer_decoder(index)
    if _name(index) in {"IndexFlat", "IndexFlatL2", "IndexFlatIP", "IndexIVFFlat"}:
        return lambda _, codes: np.ascontiguousarray(codes).view(np.float32)
    if not isinstance(index, faiss.IndexIVF):
        return lambda _, codes: index.sa_decode(np.ascontiguousarray(codes))
    width = index.coarse_code_size()

    def rows(number: int, codes: Codes) -> Rows:  # with the number of the list in front of each
        prefix = np.frombuffer(number.to_bytes(8, "little"), np.uint8)[:width]
        decoded: Rows = index.sa_decode(np.hstack([np.tile(prefix, (len(codes), 1)), codes]))
        return decoded

    return rows


def _quantizer_decoder(index: Any) -> Callable[[int, Codes], Rows]:
    """Return what decodes the codes of a FastScan index with the quantizer inside.

    Its own `sa_decode` needs a pointer that is not set after reading and crashes the process.
    """
    quantizer = getattr(index, "pq", None) or getattr(index, "aq", None)
    if quantizer is None:
        raise RefusedError(f"the FastScan codes of {_name(index)} are of no product or additive quantizer; {_ADVICE}")
    if isinstance(quantizer, faiss.AdditiveQuantizer) and not isinstance(quantizer, faiss.ProductQuantizer):
        quantizer = faiss.downcast_AdditiveQuantizer(quantizer)
    is_residual = isinstance(index, faiss.IndexIVFFastScan) and index.by_residual

    def rows(number: int, codes: Codes) -> Rows:
        decoded: Rows = quantizer.decode(np.ascontiguousarray(codes[:, : quantizer.code_size]))
        return decoded + index.quantizer.reconstruct(number) if is_residual else decoded

    return rows


def _code_recipe(index: Any) -> Recipe:
    """Return the coding of an index, alone or with inverted lists, to code new vectors by."""
    name, fast = _name(index), {}
    if isinstance(index, faiss.IndexFastScan | faiss.IndexIVFFastScan):
        fast = {"fastscan": int(index.bbs)}
    if hasattr(index, "sq"):
        return _scalar_recipe(index)
    if hasattr(index, "pq"):
        return {"kind": "PQ", "M": int(index.pq.M), "nbits": int(index.pq.nbits), **(fast or _product_recipe(index))}
    if isinstance(index, faiss.IndexLSH):
        recipe = {"kind": "LSH", "nbits": int(index.nbits), "rotate": bool(index.rotate_data)}
        return {**recipe, "thresholds": bool(index.train_thresholds)}
    if "RaBitQ" in name:
        if name.endswith("FastScan"):
            raise RefusedError(f"FAISS does not give out the codes of {name}; build it as RaBitQ without fs first")
        return {"kind": "RaBitQ", "nbits": int(index.rabitq.nb_bits)}
    if hasattr(index, "aq"):
        return {**_additive_recipe(index), **fast}
    if "Flat" in name:
        return {"kind": "Flat"}
    raise RefusedError(f"the codes of {name} cannot be decoded; build a flat index first")


def _scalar_recipe(index: Any) -> Recipe:
    kinds = faiss.ScalarQuantizer
    names = {getattr(kinds, name): name for name in dir(kinds) if name.startswith("QT_")}
    name = names.get(index.sq.qtype, "")
    if not name or name in {"QT_0bit", "QT_count"}:
        raise RefusedError(
            f"a scalar quantizer of type {name or index.sq.qtype} keeps nothing of the vectors; build the "
            "index with another"
        )
    return {"kind": "SQ", "type": name}


def _expect_large_numbers(blocks: Iterator[Codes]) -> None:
    """Refuse codes of unit vectors, which are zeros (and ones) whichever way they point."""
    spread = {int(value) for codes in blocks for value in (codes.min(), codes.max())}
    if spread and max(spread) - min(spread) <= 2:
        raise RefusedError(
            f"the 8bit_direct codes hold only {min(spread)} to {max(spread)}: the vectors were fractions, "
            "and nothing of them is left; re-embed the documents"
        )


def _product_recipe(index: Any) -> Recipe:
    if hasattr(index, "refine_pq"):
        return {"refine_M": int(index.refine_pq.M)}
    # only an index that searches so needs the slow training; FAISS does not keep whether it was done
    if hasattr(index, "search_type"):
        return {"polysemous": bool(index.search_type == faiss.IndexPQ.ST_polysemous)}
    return {"polysemous": bool(index.polysemous_ht > 0)}


def _additive_recipe(index: Any) -> Recipe:
    quantizer = faiss.downcast_AdditiveQuantizer(index.aq)
    kinds = {
        "LocalSearchQuantizer": "LSQ",
        "ResidualQuantizer": "RQ",
        "ProductLocalSearchQuantizer": "PLSQ",
        "ProductResidualQuantizer": "PRQ",
    }
    kind = kinds.get(_name(quantizer))
    if kind is None:
        raise RefusedError(f"the additive quantizer {_name(quantizer)} is not read; build the index with another")
    bits = faiss.vector_to_array(quantizer.nbits).tolist()
    recipe = {"kind": kind, "M": len(bits), "nbits": int(bits[0]), "search_type": int(quantizer.search_type)}
    if kind.startswith("P"):
        recipe |= {"splits": int(quantizer.nsplits), "M": len(bits) // int(quantizer.nsplits)}
    return recipe


_FAMILIES: Final[dict[Any, Callable[[Any], Part]]] = {
    faiss.IndexIDMap: _id_map,
    faiss.IndexPreTransform: _transformed,
    faiss.IndexRefine: _refined,
    faiss.IndexHNSW: _graph,
    faiss.IndexNSG: _graph,
    faiss.IndexIVF: _inverted,
    faiss.IndexFlat: _flat,
    faiss.IndexFlatCodes: _row_of_codes,
    faiss.IndexFastScan: _row_of_codes,
}
"""The classes of FAISS with what reads them, derived ones before their bases."""
