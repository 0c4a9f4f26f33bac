"""The translated vectors beside the true ones: a map in two dimensions, who moved furthest, how variance is spread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.vectors import Vectors, squared_norms, unit_rows

_ON_THE_MAP = 600
_MOVERS = 10
_VALUES = 64
_DEGREES = 100


@dataclass(frozen=True, slots=True)
class Mover:
    """A document whose translated vector is far from the true one: their cosine, and where it stands on the map."""

    doc_id: str
    cosine: float
    true: tuple[float, float]
    translated: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Spaces:
    """True and translated vectors of `documents` sampled documents, unit length.

    The map has the two directions in which the true vectors vary most, `explained` (0-1) of their variance; `true` and
    `translated` are the places of some documents, in the same order. `movers` have the lowest cosines. `cosines` are
    quantiles, from the 0th to the 100th percentile, over the documents without a true vector in the translated store.
    `spectra` are the variances along the principal directions of each cloud, as shares of the true one's total.
    """

    documents: int
    explained: float
    true: tuple[tuple[float, float], ...]
    translated: tuple[tuple[float, float], ...]
    movers: tuple[Mover, ...]
    cosines: tuple[float, ...]
    spectra: tuple[tuple[float, ...], tuple[float, ...]]


def map_spaces(ids: tuple[str, ...], true: Vectors, translated: Vectors) -> Spaces:
    """The map of documents by their true and their translated vectors, (n, dim) each, n >= 2."""
    one, other = unit_rows(true).astype(np.float64), unit_rows(translated).astype(np.float64)
    cosines = np.einsum("nd,nd->n", one, other)
    centre = one.mean(axis=0)
    values, directions = _principal(one)
    plane = directions[:, :2]
    places = [((rows - centre) @ plane).round(4).tolist() for rows in (one, other)]
    is_moved = ~np.isclose(squared_norms((true - translated).astype(np.float32)), 0, atol=1e-12)
    furthest = [i for i in np.argsort(cosines, kind="stable")[:_MOVERS] if is_moved[i]]
    movers = (Mover(ids[i], float(cosines[i]), _at(places[0][i]), _at(places[1][i])) for i in furthest)
    moved = cosines[is_moved]
    total = values.sum() or 1.0
    shown = slice(0, _ON_THE_MAP)
    return Spaces(
        len(ids),
        float(values[:2].sum() / total),
        tuple(_at(place) for place in places[0][shown]),
        tuple(_at(place) for place in places[1][shown]),
        tuple(movers),
        tuple(np.quantile(moved, np.linspace(0, 1, _DEGREES + 1)).round(4).tolist()) if len(moved) else (),
        (_shares(values, total), _shares(_principal(other)[0], total)),
    )


def _at(place: list[float]) -> tuple[float, float]:
    return place[0], place[1] if len(place) > 1 else 0.0


def _principal(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Variances, descending, and the directions they lie along, as columns."""
    values, vectors = np.linalg.eigh(np.cov(rows, rowvar=False).reshape(rows.shape[1], -1))
    return np.maximum(values[::-1], 0), vectors[:, ::-1]


def _shares(values: NDArray[np.float64], total: float) -> tuple[float, ...]:
    return tuple((values[:_VALUES] / total).round(6).tolist())
