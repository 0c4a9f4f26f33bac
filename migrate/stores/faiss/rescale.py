"""Adapts the recipe of an index to another dimension and count, and says what had to change and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from migrate.stores.faiss.recipe import Recipe

_Adapted = dict[str, Any]


def rescale(recipe: Recipe, old_dim: int, dim: int, count: int) -> tuple[_Adapted, tuple[str, ...]]:
    """Return the recipe of an index of the same kind for `count` vectors of another dimension, and what differs."""
    scaler = _Scaler(count)
    adapted = scaler.adapt(recipe, old_dim, dim)
    return adapted, tuple(dict.fromkeys(scaler.remarks))


def nearest_divisor(dim: int, target: float) -> int:
    """Return the divisor of `dim` that is nearest to `target`, by ratio; the larger one of two.

    >>> nearest_divisor(384, 50)
    48
    """
    divisors = [number for number in range(1, dim + 1) if dim % number == 0]
    return max(divisors, key=lambda number: (min(number / target, target / number), number))


class _Scaler:
    def __init__(self, count: int) -> None:
        self.count = count
        self.remarks: list[str] = []

    def adapt(self, recipe: Recipe, old_dim: int, dim: int) -> _Adapted:
        return _ADAPT.get(recipe["kind"], _Scaler._same)(self, recipe, old_dim, dim)

    def _same(self, recipe: Recipe, old_dim: int, dim: int) -> _Adapted:
        return dict(recipe)

    def _inner(self, recipe: Recipe, old_dim: int, dim: int) -> _Adapted:
        names = ("inner", "storage", "base", "refine")
        return {**recipe, **{name: self.adapt(recipe[name], old_dim, dim) for name in names if name in recipe}}

    def _product(self, recipe: Recipe, old_dim: int, dim: int) -> _Adapted:
        new = dict(recipe)
        for name in ("M", "refine_M"):
            if name in recipe and (dim != old_dim or dim % recipe[name]):
                new[name] = nearest_divisor(dim, recipe[name] * dim / old_dim)
        if new["M"] != recipe["M"]:
            self.remarks.append(
                f"PQ: M {recipe['M']} became {new['M']}: a sub-vector has {dim // new['M']} of {dim} dimensions "
                f"where it had {old_dim // recipe['M']} of {old_dim}"
            )
        return new

    def _additive(self, recipe: Recipe, old_dim: int, dim: int) -> _Adapted:
        if "splits" not in recipe or dim % recipe["splits"] == 0:
            return dict(recipe)
        splits = nearest_divisor(dim, recipe["splits"])
        self.remarks.append(f"{recipe['kind']}: {recipe['splits']} parts became {splits}, which divides {dim}")
        return {**recipe, "splits": splits}

    def _scalar(self, recipe: Recipe, old_dim: int, dim: int) -> _Adapted:
        if not recipe["type"].startswith("QT_8bit_direct"):
            return dict(recipe)
        self.remarks.append(f"SQ: {recipe['type']} became QT_8bit; translated vectors are fractions, not whole numbers")
        return {**recipe, "type": "QT_8bit"}

    def _lsh(self, recipe: Recipe, old_dim: int, dim: int) -> _Adapted:
        if recipe["nbits"] != dim:
            self.remarks.append(f"LSH: {recipe['nbits']} bits became {dim}, one for each of {dim} dimensions")
        return {**recipe, "nbits": dim}

    def _lists(self, recipe: Recipe, old_dim: int, dim: int) -> _Adapted:
        new = {**recipe, "code": self.adapt(recipe["code"], old_dim, dim)}
        quantizer = recipe["quantizer"]
        if quantizer["kind"] == "IMI":
            count = nearest_divisor(dim, quantizer["M"])
            new["quantizer"] = {**quantizer, "M": count}
            new["nlist"] = 1 << count * quantizer["nbits"]
        elif self.count:
            new["nlist"] = min(recipe["nlist"], self.count)
        if quantizer["kind"] == "Other":
            self.remarks.append(
                f"IVF: the quantizer {quantizer['was']} became a flat one, which finds the nearest list"
            )
            new["quantizer"] = {"kind": "Flat"}
        if new["nlist"] != recipe["nlist"]:
            self.remarks.append(f"IVF: nlist {recipe['nlist']} became {new['nlist']}")
        return new

    def _transforms(self, recipe: Recipe, old_dim: int, dim: int) -> _Adapted:
        count = sub_quantizers(recipe["inner"])
        transforms = []
        for transform in recipe["transforms"]:
            new, old_dim, dim = self._transform(transform, old_dim, dim, count)
            transforms.append(new)
        inner = self.adapt(recipe["inner"], old_dim, dim)
        new_parts = sub_quantizers(inner)
        for new in transforms:
            if new["kind"] == "OPQ":
                new["M"] = new_parts or nearest_divisor(new["d_out"], new.get("M", 1))
        return {**recipe, "transforms": transforms, "inner": inner}

    def _transform(self, transform: Recipe, old_dim: int, dim: int, count: int) -> tuple[_Adapted, int, int]:
        if "d_out" not in transform:
            return dict(transform), old_dim, dim
        old_out, kind = transform["d_out"], transform["kind"]
        if kind == "Pad":
            # the padding made the dimension a multiple of something: of the same, again
            unit = old_out & -old_out
            new_out = -(-dim // unit) * unit
        else:
            new_out = dim if old_out == old_dim else min(old_out, dim)
        new = {**transform, "d_out": new_out, "d_in": dim}
        if kind == "Linear":
            # OPQ is stored as a matrix like any other; before a product quantizer it is what it was
            new = {**new, "kind": "OPQ", "M": count} if count else {**new, "kind": "RR"}
        if new_out != old_out:
            self.remarks.append(f"{new['kind']}: output dimension {old_out} became {new_out} for vectors of {dim}")
        return new, old_out, new_out


def sub_quantizers(recipe: Recipe) -> int:
    """M of the product quantizer inside; 0 where there is none."""
    if recipe["kind"] == "PQ":
        return int(recipe["M"])
    inside = (recipe[name] for name in ("inner", "storage", "base", "code") if name in recipe)
    return max((sub_quantizers(inner) for inner in inside), default=0)


_ADAPT: Final[dict[str, Callable[[_Scaler, Recipe, int, int], _Adapted]]] = {
    **dict.fromkeys(("IDMap", "IDMap2", "HNSW", "NSG", "Refine"), _Scaler._inner),
    **dict.fromkeys(("RQ", "LSQ", "PRQ", "PLSQ"), _Scaler._additive),
    "PQ": _Scaler._product,
    "SQ": _Scaler._scalar,
    "LSH": _Scaler._lsh,
    "IVF": _Scaler._lists,
    "PreTransform": _Scaler._transforms,
}
