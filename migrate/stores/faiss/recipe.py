"""Recipes of indexes: after what one was built. Nothing here needs FAISS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

EXACT: Final = ("Flat", "IDMap,Flat", "IDMap2,Flat")
"""Indexes, by their factory strings, whose search is exact."""

FLAT: Final = "Flat"

_NOT_SHOWN: Final = ("by_residual", "is_similarity", "quantizer_")


@dataclass(frozen=True)
class Recipe:
    """The string for `faiss.index_factory`, empty where there is none, and settings by the names of FAISS's attributes.

    Settings of what finds the lists of an IVF index begin with `quantizer_`; truth is 1.
    """

    factory: str
    settings: Mapping[str, float] = field(default_factory=dict)

    @property
    def id_map(self) -> str:
        """IDMap or IDMap2, where the index lies in one; else nothing."""
        outermost, comma, _ = self.factory.partition(",")
        if comma and outermost in ("IDMap", "IDMap2"):
            return outermost
        return ""

    @property
    def inner_factory(self) -> str:
        """The string without an id map."""
        if self.id_map:
            return self.factory.removeprefix(f"{self.id_map},")
        return self.factory

    @property
    def shown(self) -> dict[str, int]:
        """The numbers a person may want to see."""
        return {name: int(number) for name, number in self.settings.items() if not name.startswith(_NOT_SHOWN)}


def recipe_of(index: str) -> Recipe | None:
    """Return the recipe of a new index, from a factory string such as `IVF1024,Flat` or `HNSW32`; None if of no other.

    As many lists are searched as the root of their number, where FAISS alone would search one.
    """
    if match := re.fullmatch(r"IVF([1-9]\d{0,6}),(Flat|SQ8|SQfp16)", index):
        n_lists = int(match[1])
        return Recipe(index, {"nlist": n_lists, "nprobe": round(n_lists**0.5)})
    if match := re.fullmatch(r"(HNSW(?:[2-9]|[1-9]\d{1,2}))(?:,Flat)?", index):
        # 40 is FAISS's own. It would look at 16 candidates in a search: 64 is arbitrary, and finds more in more time.
        return Recipe(f"{match[1]},Flat", {"efConstruction": 40, "efSearch": 64})
    return None
