"""Adapts the recipe of an index to another dimension and count, and says what had to change and why."""

from __future__ import annotations

import re
from dataclasses import replace

from migrate.stores.faiss.recipe import Recipe


def rescale(recipe: Recipe, old_dim: int, dim: int, count: int) -> tuple[Recipe, tuple[str, ...]]:
    """Return the recipe of an index of the same kind for `count` vectors of another dimension, and what differs."""
    scaler = _Scaler(old_dim, dim, count)
    # what is looked at a second time has the dimension of the vectors, whatever lies before
    first, mark, second = recipe.factory.partition(",Refine(")
    factory = scaler.adapt(first)
    remarks = scaler.remarks
    if mark:
        scaler = _Scaler(old_dim, dim, count)
        factory += mark + scaler.adapt(second)
        remarks += scaler.remarks
    return replace(recipe, factory=factory), tuple(dict.fromkeys(remarks))


def nearest_divisor(dim: int, target: float) -> int:
    """Return the divisor of `dim` that is nearest to `target`, by ratio; the larger one of two.

    >>> nearest_divisor(384, 50)
    48
    """
    divisors = [number for number in range(1, dim + 1) if dim % number == 0]
    return max(divisors, key=lambda number: (min(number / target, target / number), number))


class _Scaler:
    """The dimensions, old and new, that an index gets from what stands before it in a factory string."""

    def __init__(self, old_dim: int, dim: int, count: int) -> None:
        self.old_dim = old_dim
        self.dim = dim
        self.count = count
        self.remarks: list[str] = []

    def adapt(self, factory: str) -> str:
        """Return the string for the new dimension."""
        adapted = ",".join(map(self._step, factory.split(",")))
        # OPQ rotates for as many sub-vectors as the product quantizer after it has
        sub_vectors = re.search(r",PQ(\d+)", adapted)
        if sub_vectors:
            return re.sub(r"OPQ\d+_", f"OPQ{sub_vectors[1]}_", adapted)
        return adapted

    def _step(self, step: str) -> str:
        if match := re.fullmatch(r"(PCAR?|OPQ\d+_|RR|Pad)(\d+)", step):
            return match[1] + str(self._transform(match[1], int(match[2])))
        if match := re.fullmatch(r"PQ(\d+)(?:\+(\d+))?(.*)", step):
            second = ""
            if match[2]:
                second = f"+{self._sub_vectors(int(match[2]))}"
            return f"PQ{self._told_sub_vectors(int(match[1]))}{second}{match[3]}"
        if match := re.fullmatch(r"IMI(\d+)(x\d+)", step):
            return f"IMI{nearest_divisor(self.dim, int(match[1]))}{match[2]}"
        if match := re.fullmatch(r"IVF(\d+)(.*)", step):
            return f"IVF{self._lists(int(match[1]))}{self._quantizer(match[2])}"
        if match := re.fullmatch(r"SQ8_direct(?:_signed)?(.*)", step):
            self.remarks.append(f"SQ: {step} became SQ8; translated vectors are fractions, not whole numbers")
            return f"SQ8{match[1]}"
        return step

    def _transform(self, name: str, old_out: int) -> int:
        """Return the new output dimension of a transform, which is what comes after it gets."""
        if name == "Pad":
            # the padding made the dimension a multiple of something: of the same, again
            unit = old_out & -old_out
            new_out = -(-self.dim // unit) * unit
        else:
            if old_out == self.old_dim:
                new_out = self.dim
            else:
                new_out = min(old_out, self.dim)
        if new_out != old_out:
            kind = re.sub(r"\d+_", "", name)
            self.remarks.append(f"{kind}: output dimension {old_out} became {new_out} for vectors of {self.dim}")
        self.old_dim = old_out
        self.dim = new_out
        return new_out

    def _sub_vectors(self, sub_vectors: int) -> int:
        """Return the number of sub-vectors, each about as long as it was."""
        if self.dim == self.old_dim and self.dim % sub_vectors == 0:
            return sub_vectors
        return nearest_divisor(self.dim, sub_vectors * self.dim / self.old_dim)

    def _told_sub_vectors(self, sub_vectors: int) -> int:
        new = self._sub_vectors(sub_vectors)
        if new != sub_vectors:
            self.remarks.append(
                f"PQ: M {sub_vectors} became {new}: a sub-vector has {self.dim // new} of {self.dim} dimensions where "
                f"it had {self.old_dim // sub_vectors} of {self.old_dim}"
            )
        return new

    def _lists(self, lists: int) -> int:
        if self.count:
            new = min(lists, self.count)
        else:
            new = lists
        if new != lists:
            self.remarks.append(f"IVF: nlist {lists} became {new}")
        return new

    def _quantizer(self, quantizer: str) -> str:
        if not quantizer.startswith("("):
            return quantizer
        self.remarks.append(f"IVF: the quantizer {quantizer[1:-1]} became a flat one, which finds the nearest list")
        return ""
