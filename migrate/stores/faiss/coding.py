"""The coding of an index, as a recipe to code new vectors by. Runs in the child process only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.stores.faiss.parts import Recipe, class_name, library
from migrate.stores.frames import RefusedError

Chunks = Callable[[], Iterator[NDArray[np.uint8]]]

_ADDITIVE = {
    "LocalSearchQuantizer": "LSQ",
    "ResidualQuantizer": "RQ",
    "ProductLocalSearchQuantizer": "PLSQ",
    "ProductResidualQuantizer": "PRQ",
}


@dataclass(frozen=True)
class Coding:
    """The quantizer of codes; `check` refuses codes in which the vectors are lost."""

    recipe: Recipe
    exact: bool = False
    remarks: tuple[str, ...] = ()
    check: Callable[[Chunks], None] = lambda _: None


def describe_coding(index: Any) -> Coding:
    """Return the coding of an index, alone or with inverted lists."""
    faiss = library()

    if class_name(index) in {"Index2Layer", "IndexIVFIndependentQuantizer"}:
        raise RefusedError(f"{class_name(index)} holds two quantizers; build the index as IVF,PQ first")
    if hasattr(index, "sq"):
        return _scalar(index)
    if hasattr(index, "pq"):
        return _product(index)
    if isinstance(index, faiss.IndexLSH):
        recipe = {"kind": "LSH", "nbits": int(index.nbits), "rotate": bool(index.rotate_data)}
        recipe["thresholds"] = bool(index.train_thresholds)
        remark = "LSH keeps one bit a dimension: the vectors read back are directions of signs, far from the originals"
        return Coding(recipe, remarks=(remark,))
    if "RaBitQ" in class_name(index):
        return _rabitq(index)
    if hasattr(index, "aq"):
        return _additive(index)
    if "Flat" in class_name(index):
        return Coding({"kind": "Flat"}, exact=True)
    raise RefusedError(f"the codes of {class_name(index)} cannot be decoded; build a flat index first")


def _scalar(index: Any) -> Coding:
    faiss = library()

    names = {
        getattr(faiss.ScalarQuantizer, name): name for name in dir(faiss.ScalarQuantizer) if name.startswith("QT_")
    }
    name = names.get(index.sq.qtype, "")
    if not name or name in {"QT_0bit", "QT_count"}:
        raise RefusedError(
            f"a scalar quantizer of type {name or index.sq.qtype} keeps nothing of the vectors; build the "
            "index with another"
        )
    recipe = {"kind": "SQ", "type": name}
    if name.startswith("QT_8bit_direct"):
        remark = f"{name} keeps whole numbers only: exact where the vectors were such, else cut to them"
        return Coding(recipe, remarks=(remark,), check=_expect_large_numbers)
    return Coding(recipe)


def _expect_large_numbers(chunks: Chunks) -> None:
    """Codes of unit vectors are zeros (and ones), whichever way they point."""
    spread = {int(value) for codes in chunks() for value in (codes.min(), codes.max())}
    if spread and max(spread) - min(spread) <= 2:
        raise RefusedError(
            f"the 8bit_direct codes hold only {min(spread)} to {max(spread)}: the vectors were fractions, "
            "and nothing of them is left; re-embed the documents"
        )


def _product(index: Any) -> Coding:
    faiss = library()

    pq = index.pq
    recipe: Recipe = {"kind": "PQ", "M": int(pq.M), "nbits": int(pq.nbits)}
    if isinstance(index, faiss.IndexFastScan | faiss.IndexIVFFastScan):
        recipe |= {"fastscan": int(index.bbs)}
    elif hasattr(index, "refine_pq"):
        recipe |= {"refine_M": int(index.refine_pq.M)}
    else:
        # only an index that searches so needs the slow training; FAISS does not keep whether it was done
        recipe |= {"polysemous": _is_polysemous(index)}
    return Coding(recipe)


def _is_polysemous(index: Any) -> bool:
    if hasattr(index, "search_type"):
        return bool(index.search_type == library().IndexPQ.ST_polysemous)
    return bool(index.polysemous_ht > 0)


def _rabitq(index: Any) -> Coding:
    recipe: Recipe = {"kind": "RaBitQ", "nbits": int(index.rabitq.nb_bits)}
    if class_name(index).endswith("FastScan"):
        raise RefusedError(
            f"FAISS does not give out the codes of {class_name(index)}; build it as RaBitQ without fs first"
        )
    return Coding(recipe)


def _additive(index: Any) -> Coding:
    faiss = library()

    quantizer = faiss.downcast_AdditiveQuantizer(index.aq)
    kind = _ADDITIVE.get(class_name(quantizer))
    if kind is None:
        raise RefusedError(f"the additive quantizer {class_name(quantizer)} is not read; build the index with another")
    bits = faiss.vector_to_array(quantizer.nbits).tolist()
    recipe: Recipe = {"kind": kind, "M": len(bits), "nbits": int(bits[0]), "search_type": int(quantizer.search_type)}
    if kind.startswith("P"):
        recipe |= {"splits": int(quantizer.nsplits), "M": len(bits) // int(quantizer.nsplits)}
    if isinstance(index, faiss.IndexFastScan | faiss.IndexIVFFastScan):
        recipe |= {"fastscan": int(index.bbs)}
    return Coding(recipe)
