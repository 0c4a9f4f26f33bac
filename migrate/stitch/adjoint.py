"""The stitch made for queries: the map of the documents, turned round.

Regressing old vectors on new ones, as Drift-Adapter does (EMNLP 2025), aims at the answers of the old model, and is
learned from documents though queries are unlike them. What is wanted are the answers of the new model. If a document
with the old vector s has about the new vector s M + b, a query with the new vector q scores it q·(s M + b), which is
(q Mᵀ)·s and a constant: asking the old store with q Mᵀ ranks its documents as asking the translated store with q does.
Queries take no part in the fit, so it does not matter that they are unlike documents.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from migrate.stitch.base import Arrays, Stitch
from migrate.stitch.linear import Affine, Procrustes, Ridge
from migrate.stitch.text_rows import TextRows
from migrate.vectors import Vectors, unit_rows

_BASES: dict[str, type[Affine]] = {kind.kind: kind for kind in (Ridge, Procrustes)}


class Adjoint(Stitch):
    """Transpose of a linear map from the old space to the new one, without its offset.

    A translated store gives all its vectors one length, which a query cannot do for it: documents whose new vectors
    are predicted short are found too rarely. So ridge is fitted twice, the second time to its own predictions brought
    to one length. Procrustes keeps lengths.

    The ranking is that of inner products, so it holds for stores that are searched by them, or hold unit vectors.

    Parameters
    ----------
    base
        The map of the documents, `ridge` or `procrustes`.
    """

    kind: ClassVar[str] = "adjoint"
    matrix_: Vectors

    def __init__(self, base: str = Ridge.kind) -> None:
        self.base = base

    @property
    def spec(self) -> str:
        """`adjoint`, or `adjoint:procrustes`."""
        return self.kind if self.base == Ridge.kind else f"{self.kind}:{self.base}"

    def fit(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """Learn from the new vectors, `source`, (n, p), and the old ones, `target`, (n, q)."""
        forward = _BASES[self.base]().fit(target, source)
        if self.base == Ridge.kind:
            forward = Ridge().fit(target, unit_rows(forward.transform(target)))
        self.matrix_ = np.ascontiguousarray(forward.matrix_.T)
        return self

    def transform(self, vectors: Vectors, texts: TextRows | None = None) -> Vectors:
        """One matrix product."""
        out: Vectors = np.matmul(vectors, self.matrix_)
        return out

    def arrays(self) -> Arrays:
        """The matrix, (p, q)."""
        return {"matrix": self.matrix_}

    def restore(self, arrays: Arrays) -> Self:
        """Take back the matrix."""
        self.matrix_ = arrays["matrix"]
        return self
