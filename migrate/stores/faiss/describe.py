"""Says after what an index is built: the string for `faiss.index_factory`, and the settings that it has no words for.

Runs in the child process only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import faiss
from faiss.contrib.factory_tools import get_hnsw_M, reverse_index_factory

from migrate.stores.faiss.recipe import Recipe

_REFINE = "Refine(Flat)"


def describe_index(loaded: Any) -> Recipe:
    """Return the recipe of an index; its factory string is empty where FAISS would not build such an index from any."""
    index = faiss.downcast_index(loaded)
    factory = ""
    with suppress(AssertionError, KeyError, NotImplementedError, RuntimeError):
        name = _factory(index)
        # believed where FAISS understands it; lists without vectors take memory too
        faiss.index_factory(index.d, re.sub(r"IMI\d+x\d+|IVF\d+", "IVF1", name))
        factory = name
    settings: dict[str, float] = {}
    for name, number in _sizes(index):
        settings.setdefault(name, number)
    for name, component, attribute in _tunables(index):
        settings.setdefault(name, float(getattr(component, attribute)))
    return Recipe(factory, settings)


def apply_settings(index: Any, recipe: Recipe) -> None:
    """Give an index the settings of a recipe that its factory string cannot express."""
    for name, component, attribute in _tunables(index):
        if name in recipe.settings:
            kind = type(getattr(component, attribute))
            setattr(component, attribute, kind(recipe.settings[name]))


def inside(loaded: Any, *, quantizers: bool = True) -> Iterator[Any]:
    """Yield an index and those inside, the outermost first, with or without those that find the lists."""
    index = faiss.downcast_index(loaded)
    yield index
    for name in ("index", "base_index", "refine_index", "storage", *(("quantizer",) if quantizers else ())):
        inner = getattr(index, name, None)
        if inner is not None:
            yield from inside(inner, quantizers=quantizers)


def _factory(loaded: Any) -> str:
    """Return the string that FAISS builds such an index from.

    FAISS has a function for it, which stops at transforms.
    """
    index = faiss.downcast_index(loaded)
    if isinstance(index, faiss.IndexIDMap):
        return f"{type(index).__name__.removeprefix('Index')},{_factory(index.index)}"
    if isinstance(index, faiss.IndexPreTransform):
        transforms = [faiss.downcast_VectorTransform(index.chain.at(step)) for step in range(index.chain.size())]
        quantizers = [component.pq for component in inside(index.index) if hasattr(component, "pq")]
        steps = [_transform(transform, quantizers) for transform in transforms]
        return ",".join([*steps, _factory(index.index)])
    if isinstance(index, faiss.IndexRefine):
        refine = f"Refine({_factory(index.refine_index)})".replace(_REFINE, "RFlat")
        return f"{_factory(index.base_index)},{refine}"
    if isinstance(index, faiss.IndexHNSW):
        return f"HNSW{get_hnsw_M(index)},{_factory(index.storage)}"
    return re.sub(r"(PQ\d+)x8\b", r"\1", reverse_index_factory(index))


def _transform(transform: Any, quantizers: list[Any]) -> str:
    if isinstance(transform, faiss.NormalizationTransform):
        return "L2norm"
    if isinstance(transform, faiss.RemapDimensionsTransform):
        return f"Pad{transform.d_out}"
    if isinstance(transform, faiss.PCAMatrix):
        return f"PCA{'R' if transform.random_rotation else ''}{transform.d_out}"
    if not isinstance(transform, faiss.LinearTransform):
        raise NotImplementedError
    # An OPQ is stored as a matrix like any other; before a product quantizer it is what it was.
    if quantizers:
        return f"OPQ{quantizers[0].M}_{transform.d_out}"
    return f"RR{transform.d_out}"


def _sizes(loaded: Any) -> Iterator[tuple[str, int]]:
    """Yield the numbers in a factory string that a person may want to see, with FAISS's names."""
    for component in inside(loaded, quantizers=False):
        if isinstance(component, faiss.IndexIVF):
            yield "nlist", component.nlist
        if isinstance(component, faiss.IndexHNSW):
            yield "M", get_hnsw_M(component)
        if hasattr(component, "pq"):
            yield "M", component.pq.M
            yield "nbits", component.pq.nbits


def _tunables(loaded: Any, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield the name of each setting that no factory string has, and the object and the attribute that hold it."""
    index = faiss.downcast_index(loaded)
    if isinstance(index, faiss.IndexIDMap | faiss.IndexPreTransform):
        yield from _tunables(index.index, prefix)
    elif isinstance(index, faiss.IndexRefine):
        yield f"{prefix}k_factor", index, "k_factor"
        yield from _tunables(index.base_index, prefix)
    elif isinstance(index, faiss.IndexHNSW):
        yield f"{prefix}efConstruction", index.hnsw, "efConstruction"
        yield f"{prefix}efSearch", index.hnsw, "efSearch"
        yield f"{prefix}is_similarity", index.hnsw, "is_similarity"
    elif isinstance(index, faiss.IndexIVF):
        yield f"{prefix}nprobe", index, "nprobe"
        yield f"{prefix}by_residual", index, "by_residual"
        # which may compare by another metric than the lists
        for component in inside(index.quantizer):
            yield f"{prefix}quantizer_metric", component, "metric_type"
        yield from _tunables(index.quantizer, f"{prefix}quantizer_")
