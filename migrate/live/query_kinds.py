"""The kinds of queries where they come one after the other: which of them is the first of its kind.

Queries are alike as `migrate.audit.query_groups` has it, by what is usual among those that came so far.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from migrate.audit.query_groups import centred, usual_cosine
from migrate.vectors import Vectors, unit_rows


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of queries that came so far, where they come one after the other.

    `firsts` are vectors of the first query of each kind, which is all it takes to know another one of it; `sample` are
    those of some of all different queries that came, whatever their order: they say what is usual. Each is in `dim`
    signed bytes, without its length.
    """

    dim: int = 0
    firsts: bytes = b""
    sample: bytes = b""

    def with_usual(self, vectors: Vectors) -> Kinds:
        """Return the kinds after some queries, (n, dim), that only say what is usual."""
        dim = vectors.shape[1]
        different = {*_split(self.sample, dim), *_packed(vectors)}
        # A draw that depends neither on the order in which queries came nor on how often each did
        drawn = sorted(different, key=lambda packed: hashlib.sha256(packed).digest())[:300]
        return replace(self, dim=dim, sample=b"".join(drawn))

    def with_new(self, vectors: Vectors) -> tuple[Kinds, NDArray[np.bool_]]:
        """Return the kinds after some queries, (n, dim), and which of them are the first of a kind, (n,)."""
        kinds = self.with_usual(vectors)
        packed = _packed(vectors)
        sample, firsts, rows = (
            _rows(packed_rows, kinds.dim) for packed_rows in (kinds.sample, kinds.firsts, b"".join(packed))
        )
        mean = sample.mean(axis=0)
        threshold = usual_cosine(centred(sample, mean), in_runs=True)
        rows = centred(rows, mean)
        known_rows = {*_split(kinds.firsts, kinds.dim)}
        is_first: NDArray[np.bool_] = np.all(rows @ centred(firsts, mean).T <= threshold, axis=1)
        near = rows @ rows.T > threshold
        for position, packed_row in enumerate(packed):
            # More kinds are not told apart: no verdict needs them, and each is a vector to keep
            is_new = packed_row not in known_rows and len(known_rows) < 2_000
            is_first[position] &= is_new and not near[position, :position][is_first[:position]].any()
            if is_first[position]:
                known_rows.add(packed_row)
        new = b"".join(packed_row for packed_row, first in zip(packed, is_first.tolist(), strict=True) if first)
        return replace(kinds, firsts=kinds.firsts + new), is_first

    def as_json(self) -> dict[str, Any]:
        """Return what `of_json` makes it from again."""
        encoded = {name: base64.b64encode(getattr(self, name)).decode() for name in ("firsts", "sample")}
        return {"dim": self.dim, **encoded}

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the kinds of `as_json`."""
        return cls(stored["dim"], *(base64.b64decode(stored[name]) for name in ("firsts", "sample")))


def _packed(vectors: Vectors) -> list[bytes]:
    most = np.abs(vectors).max(axis=1, keepdims=True)
    codes = np.rint(vectors / np.where(most > 0, most, 1) * 127).astype(np.int8)
    return [code.tobytes() for code in codes]


def _split(packed: bytes, dim: int) -> list[bytes]:
    return [packed[start : start + dim] for start in range(0, len(packed), dim)]


def _rows(packed: bytes, dim: int) -> Vectors:
    return unit_rows(np.frombuffer(packed, dtype=np.int8).reshape(-1, dim).astype(np.float32))
