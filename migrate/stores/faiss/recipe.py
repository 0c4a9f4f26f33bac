"""Recipes of indexes: nested facts of how one was built, and the factory string of such a recipe.

A recipe is JSON: `{"kind": "IVF", "nlist": 64, "code": {"kind": "PQ", ...}, ...}`. `decode.py` makes it, `rescale.py`
fits it to another dimension, and `build.py` builds an index from it. Nothing here needs FAISS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

Recipe = Mapping[str, Any]

EXACT: Final = ("Flat", "IDMap,Flat", "IDMap2,Flat")
"""Indexes, by their factory strings, whose search is exact."""

SCALAR_NAMES: Final = {
    "QT_8bit": "SQ8",
    "QT_6bit": "SQ6",
    "QT_4bit": "SQ4",
    "QT_fp16": "SQfp16",
    "QT_bf16": "SQbf16",
    "QT_8bit_direct": "SQ8_direct",
    "QT_8bit_direct_signed": "SQ8_direct_signed",
}
"""Scalar quantizers that `faiss.index_factory` has a name for."""


def factory(recipe: Recipe) -> str:
    """Return the string that `faiss.index_factory` would build it from, or the nearest to it.

    >>> factory({"kind": "IDMap2", "inner": {"kind": "SQ", "type": "QT_8bit"}})
    'IDMap2,SQ8'
    """
    return _NAMES[recipe["kind"]](recipe)


def _scalar(recipe: Recipe) -> str:
    name: str = recipe["type"]
    return SCALAR_NAMES.get(name, name.replace("QT_", "SQ_"))


def _product(recipe: Recipe) -> str:
    if "fastscan" in recipe:
        block = f"_{recipe['fastscan']}" if recipe["fastscan"] != 32 else ""
        return f"PQ{recipe['M']}x{recipe['nbits']}fs{'r' if recipe.get('residual') else ''}{block}"
    bits = f"x{recipe['nbits']}" if recipe["nbits"] != 8 else ""
    return f"PQ{recipe['M']}{bits}" + (f"+{recipe['refine_M']}" if "refine_M" in recipe else "")


def _additive(recipe: Recipe) -> str:
    splits = f"{recipe['splits']}x" if "splits" in recipe else ""
    fast = "fs" + (f"_{recipe['fastscan']}" if recipe["fastscan"] != 32 else "") if "fastscan" in recipe else ""
    norms = {3: "float", 4: "qint8", 5: "qint4", 6: "cqint8", 7: "cqint4", 8: "lsq2x4", 9: "rq2x4"}
    norm = norms.get(recipe["search_type"])
    return f"{recipe['kind']}{splits}{recipe['M']}x{recipe['nbits']}{fast}{f'_N{norm}' if norm else ''}"


def _lists(recipe: Recipe) -> str:
    quantizer = recipe["quantizer"]
    if quantizer["kind"] == "IMI":
        lists = f"IMI{quantizer['M']}x{quantizer['nbits']}"
    else:
        lists = f"IVF{recipe['nlist']}" + (f"_HNSW{quantizer['M']}" if quantizer["kind"] == "HNSW" else "")
    return f"{lists},{factory({**recipe['code'], 'residual': recipe['by_residual']})}"


def _pca(recipe: Recipe) -> str:
    return f"PCA{'W' if recipe['whiten'] else ''}{'R' if recipe['rotate'] else ''}{recipe['d_out']}"


def _transforms(recipe: Recipe) -> str:
    return ",".join(factory(step) for step in (*recipe["transforms"], recipe["inner"]))


def _refine(recipe: Recipe) -> str:
    inner = factory(recipe["refine"])
    return f"{factory(recipe['base'])},{'RFlat' if inner == 'Flat' else f'Refine({inner})'}"


def _lsh(recipe: Recipe) -> str:
    return f"LSH{'r' if recipe['rotate'] else ''}{'t' if recipe['thresholds'] else ''}"


_NAMES: Final[dict[str, Callable[[Recipe], str]]] = {
    "Flat": lambda _: "Flat",
    "SQ": _scalar,
    "PQ": _product,
    **dict.fromkeys(("RQ", "LSQ", "PRQ", "PLSQ"), _additive),
    "LSH": _lsh,
    "RaBitQ": lambda recipe: f"RaBitQ{recipe['nbits'] if recipe['nbits'] > 1 else ''}",
    "HNSW": lambda recipe: f"HNSW{recipe['M']},{factory(recipe['storage'])}",
    "NSG": lambda recipe: f"NSG{recipe['R']},{factory(recipe['storage'])}",
    "IVF": _lists,
    "IDMap": lambda recipe: f"IDMap,{factory(recipe['inner'])}",
    "IDMap2": lambda recipe: f"IDMap2,{factory(recipe['inner'])}",
    "Refine": _refine,
    "PreTransform": _transforms,
    "PCA": _pca,
    "OPQ": lambda recipe: f"OPQ{recipe['M']}_{recipe['d_out']}",
    "RR": lambda recipe: f"RR{recipe['d_out']}",
    "Linear": lambda recipe: f"Linear{recipe['d_out']}",
    "L2norm": lambda _: "L2norm",
    "Centering": lambda _: "Centering",
    "Pad": lambda recipe: f"Pad{recipe['d_out']}",
}


def recipe_of(index: str) -> Recipe | None:
    """Return the recipe of a new index, from a factory string such as `IVF1024,Flat` or `HNSW32`; None if of no other.

    As many lists are searched as the root of their number, where FAISS alone would search one.
    """
    if match := re.fullmatch(r"IVF([1-9]\d{0,6}),(Flat|SQ8|SQfp16)", index):
        n_lists = int(match[1])
        scalar_types = {name: scalar_type for scalar_type, name in SCALAR_NAMES.items()}
        code = {"kind": "Flat"} if match[2] == "Flat" else {"kind": "SQ", "type": scalar_types[match[2]]}
        quantizer = {"kind": "Flat"}
        lists = {"nlist": n_lists, "nprobe": round(n_lists**0.5), "by_residual": code["kind"] == "SQ"}
        return {"kind": "IVF", **lists, "quantizer": quantizer, "code": code}
    if match := re.fullmatch(r"HNSW([2-9]|[1-9]\d{1,2})(,Flat)?", index):
        graph = {"M": int(match[1]), "efConstruction": 40, "efSearch": 64}
        return {"kind": "HNSW", **graph, "storage": {"kind": "Flat"}}
    return None


def settings(recipe: Recipe) -> dict[str, int]:
    """Return the numbers a person may want to see, with FAISS's names."""
    shown = {"nlist", "nprobe", "M", "nbits", "efConstruction", "efSearch", "k_factor", "R", "search_L"}
    numbers: dict[str, int] = {}
    for name, value in recipe.items():
        if isinstance(value, Mapping):
            if name != "quantizer":
                numbers |= {key: number for key, number in settings(value).items() if key not in numbers}
        elif name in shown and not isinstance(value, bool):
            numbers[name] = int(value)
    return numbers
