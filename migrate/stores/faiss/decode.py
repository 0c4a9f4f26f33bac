"""Reads the vectors back from any index that FAISS has loaded, part by part. Runs in the child process only.

`reconstruct_n` is never called: it aborts on id maps, and returns uninitialised memory for ids that are not 0, 1, 2 ...
Instead, the codes are decoded and the inverted lists are walked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from migrate.stores.faiss.codes import code_blocks, decode_codes
from migrate.stores.faiss.fourcc import LARGEST_DIM, METRICS
from migrate.stores.faiss.inverted import decode_lists
from migrate.stores.faiss.parts import (
    Part,
    Recipe,
    Rows,
    Stored,
    class_name,
    expect_same_shape,
    graph_recipe,
    library,
    open_index,
)
from migrate.stores.faiss.undo import invert
from migrate.stores.frames import RefusedError

_ADVICE = "write the vectors to a flat index first"


def decode_index(loaded: Any) -> Part:
    """The vectors, labels and recipe of an index."""
    index: Any = open_index(loaded)
    name = class_name(index)
    _check_header(index)
    for family, decode in _families():
        if isinstance(index, family):
            part = decode(index)
            break
    else:
        raise RefusedError(f"the vectors of {name} cannot be read; {_ADVICE}")
    if part.labels is not None and len(part.labels) != index.ntotal:
        raise RefusedError(
            f"{name} counts {index.ntotal} vectors but holds {len(part.labels)}: FAISS drops NaN vectors "
            "from the lists yet counts them; build it again without them"
        )
    return part


def _check_header(index: Any) -> None:
    name, metric = class_name(index), index.metric_type
    if metric not in METRICS:
        metrics = {value: key[7:] for key, value in vars(library()).items() if key.startswith("METRIC_")}
        raise RefusedError(
            f"{name} uses the metric {metrics.get(metric, metric)}, but only L2 and inner product are read; build the "
            "index with one of these first"
        )
    if not index.is_trained:
        raise RefusedError(f"the {name} is not trained; train and fill it first")
    if not 0 < index.d <= LARGEST_DIM:
        raise RefusedError(f"{name} has a dimension of {index.d}; the file is damaged, copy it again")


def _families() -> Iterator[tuple[Any, Callable[[Any], Part]]]:
    """The classes of FAISS with what reads them, derived ones before their bases."""
    faiss = library()

    yield faiss.IndexIDMap, _id_map
    yield faiss.IndexPreTransform, _transformed
    yield faiss.IndexRefine, _refined
    yield faiss.IndexHNSW, _hnsw
    yield faiss.IndexNSG, _nsg
    yield faiss.IndexIVF, decode_lists
    yield faiss.IndexFlat, _flat
    yield faiss.IndexFlatCodes, decode_codes
    yield faiss.IndexFastScan, decode_codes


def _flat(index: Any) -> Part:
    name = class_name(index)
    if name not in {"IndexFlat", "IndexFlatL2", "IndexFlatIP"}:
        # Panorama stores the vectors level by level, and FAISS returns zeros for them
        raise RefusedError(f"the vectors of {name} do not lie one after the other; {_ADVICE}")
    count, dim = index.ntotal, index.d
    if index.codes.size() != 4 * count * dim:
        raise RefusedError(f"the index counts {count} vectors but holds {index.codes.size()} bytes; copy it again")
    if not count:
        return Part(name, {"kind": "Flat"}, lambda: iter(()), exact=True)
    start = int(index.get_xb())

    def rows() -> Iterator[Rows]:
        return (codes.view(np.float32) for codes in code_blocks(index, index.codes.data(), count, None))

    return Part(name, {"kind": "Flat"}, rows, exact=True, stored=Stored([start], [count], start + 4 * count * dim))


def _id_map(index: Any) -> Part:
    faiss = library()

    expect_same_shape(index, index.index, "the index inside")
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
        stored=_with_tail(inner.stored, 8 + 8 * ids.size),
    )


def _with_tail(stored: Stored | None, tail_bytes: int) -> Stored | None:
    """The same in an index that goes on for so many bytes after the one inside."""
    return stored and replace(stored, end=stored.end and stored.end + tail_bytes)


def _compared(index: Any, inner: Any) -> tuple[str, ...]:
    if index.metric_type == inner.metric_type:
        return ()
    metrics = f"{METRICS[index.metric_type]}, {METRICS.get(inner.metric_type, inner.metric_type)}"
    return (f"the index and the one inside compare differently: {metrics}",)


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
        stored=None,
    )


def _refined(index: Any) -> Part:
    base, refine = open_index(index.base_index), open_index(index.refine_index)
    expect_same_shape(index, base, "the one to search in")
    expect_same_shape(index, refine, "the one to refine with")
    kept = decode_index(refine)
    # the base is looked at for its settings; its rows are the worse copy
    decoded = decode_index(base)
    recipe = {"kind": "Refine", "base": decoded.recipe, "refine": kept.recipe, "k_factor": float(index.k_factor)}
    chain = f"{class_name(index)}({decoded.chain}, {kept.chain})"
    return replace(kept, chain=chain, recipe=recipe, stored=_with_tail(kept.stored, 4))


def _hnsw(index: Any) -> Part:
    if index.storage is None:
        raise RefusedError("the index holds the graph but not the vectors; save it without IO_FLAG_SKIP_STORAGE")
    stored = decode_index(index.storage)
    return _over_storage(index, stored, {**graph_recipe(index), "storage": stored.recipe})


def _nsg(index: Any) -> Part:
    if index.storage is None:
        raise RefusedError("the index holds the graph but not the vectors; save it with its storage")
    stored = decode_index(index.storage)
    recipe = {
        "kind": "NSG",
        "R": int(index.nsg.R),
        "search_L": int(index.nsg.search_L),
        "GK": int(index.GK),
        "storage": stored.recipe,
    }
    return _over_storage(index, stored, recipe)


def _over_storage(index: Any, stored: Part, recipe: Recipe) -> Part:
    expect_same_shape(index, index.storage, "its storage")
    remarks = (*_compared(index, index.storage), *stored.remarks)
    return replace(stored, chain=class_name(index), recipe=recipe, remarks=remarks)
