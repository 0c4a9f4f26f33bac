"""The indexes whose reading is measured: one of each kind in tests/stores/faiss_support.py, for 384 dimensions.

Builds them; measures nothing, see `stores.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIM = 384
_CLUSTERS = 64


@dataclass(frozen=True)
class Kind:
    """What `faiss.index_factory` is asked for, and what keeps building it within minutes.

    `train` vectors are trained with; of `most` vectors or fewer it is built, because adding more takes too long.
    """

    factory: str
    train: int = 20_000
    most: int = 1 << 62


def _slow(*factories: str, train: int = 2_000, most: int = 1 << 62) -> list[Kind]:
    return [Kind(factory, train, most) for factory in factories]


KINDS = (
    *map(Kind, ("Flat", "IVF256,Flat", "IVF256_HNSW32,Flat", "HNSW16,Flat", "IDMap,Flat", "IDMap2,IVF256,Flat")),
    *_slow("NSG16,Flat", most=20_000),
    *map(Kind, ("PQ48,RFlat", "IVF256,PQ48,RFlat", "Pad512,Flat", "IMI2x4,Flat", "SQfp16", "SQbf16", "SQ8", "SQ6")),
    *map(Kind, ("SQ4", "IVF256,SQ8", "HNSW16,SQ8", "PQ48", "IVF256,PQ48", "HNSW16,PQ48", "IVF256_HNSW32,PQ48")),
    *map(Kind, ("IMI2x4,PQ48", "PQ96x4fs", "IVF256,PQ96x4fs", "IVF256,PQ96x4fsr_64")),
    *_slow("RQ8x4", "IVF256,RQ8x4", "RQ8x4fs_32_Nrq2x4"),
    *_slow("LSQ8x4", "PLSQ2x4x4", "PRQ2x4x4", "IVF256,LSQ8x4fs_32_Nlsq2x4", most=20_000),
    *map(Kind, ("SQ4,Refine(SQ8)", "RR384,Flat", "PCA128,Flat", "PCAW128,Flat")),
    *_slow("OPQ48_192,IVF256,PQ48", train=4_000),
    *map(Kind, ("L2norm,Flat", "LSH", "LSHrt", "RaBitQ", "IVF256,RaBitQ", "HNSW16,RaBitQ", "SQ8_direct")),
)


def kind_of(factory: str) -> Kind:
    """The kind with that factory string, or one that is built like most."""
    return next((kind for kind in KINDS if kind.factory == factory), Kind(factory))


def draw(rows: int) -> NDArray[np.float32]:
    """Random unit vectors, (rows, 384), with a few directions more frequent than others."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((rows, DIM), dtype=np.float32)
    vectors += rng.standard_normal((_CLUSTERS, DIM), dtype=np.float32)[rng.integers(_CLUSTERS, size=rows)]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def skip_annealing(index: Any) -> None:
    """Train product quantizers without the order of codes that polysemous search needs; it takes a minute each."""
    import faiss

    if hasattr(index, "do_polysemous_training"):
        index.do_polysemous_training = False
    for name in ("storage", "base_index"):
        if getattr(index, name, None) is not None:
            skip_annealing(faiss.downcast_index(getattr(index, name)))


def build(kind: Kind, rows: int, path: Path) -> int:
    """Write an index of as many rows, or of the most that the kind takes; returns how many."""
    import faiss

    rows = min(rows, kind.most)
    vectors = draw(rows)
    if kind.factory == "SQ8_direct":
        # it keeps whole numbers, and unit vectors are refused
        vectors = np.rint(vectors * 300 + 128).clip(0, 255).astype(np.float32)
    index = faiss.index_factory(DIM, kind.factory)
    skip_annealing(index)
    index.train(vectors[: min(rows, kind.train)])
    index.add_with_ids(vectors, np.arange(rows) * 3) if kind.factory.startswith("IDMap") else index.add(vectors)
    faiss.write_index(index, str(path))
    return rows
