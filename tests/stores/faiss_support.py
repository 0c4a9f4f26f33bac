"""Which FAISS indexes are read, and how exactly. A test builds each of them and compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Reading = Literal["exact", "approximate", "refused"]


@dataclass(frozen=True, slots=True)
class Support:
    """How one kind of index is read.

    `factory` is an example for `faiss.index_factory`; `cosine` is the least mean cosine between the vectors read back
    and random normal ones of 32 dimensions, the hardest there are; `remark` says what is lost, or why it is refused.
    """

    factory: str
    reading: Reading
    remark: str
    cosine: float = 1.0


def _exact(remark: str, *factories: str) -> list[Support]:
    return [Support(factory, "exact", remark) for factory in factories]


def _approximate(remark: str, **cosines: float) -> list[Support]:
    return [Support(name, "approximate", remark, cosine) for name, cosine in cosines.items()]


def _refused(remark: str, *factories: str) -> list[Support]:
    return [Support(factory, "refused", remark) for factory in factories]


_CODES = "decoded by FAISS from the codes"
_PROJECTED = "what the projection dropped is lost"
_BITS = "one bit a dimension: directions only, far from the originals"

SUPPORT: Final[tuple[Support, ...]] = (
    *_exact("read where they lie", "Flat", "IVF16,Flat", "IVF16_HNSW8,Flat", "HNSW8,Flat"),
    *_exact("the ids of the map", "IDMap,Flat", "IDMap2,IVF16,Flat"),
    *_exact("vectors beside the graph", "NSG16,Flat"),
    *_exact("the vectors kept for the second look", "PQ8,RFlat", "IVF16,PQ8,RFlat"),
    *_exact("zeros are cut off again", "Pad48,Flat"),
    *_exact("many lists", "IMI2x3,Flat"),
    *_exact("put in order again; a new index is the plain kind", "FlatL2Panorama4", "IVF16,FlatPanorama4"),
    *_approximate("half floats", SQfp16=0.9999, SQbf16=0.9999),
    *_approximate(_CODES, **{"SQ8": 0.999, "SQ6": 0.99, "SQ4": 0.96, "IVF16,SQ8": 0.999, "HNSW8,SQ8": 0.999}),
    *_approximate(
        _CODES, **{"PQ8": 0.7, "IVF16,PQ8": 0.7, "HNSW8,PQ8": 0.7, "IVF16_HNSW8,PQ8": 0.7, "IMI2x3,PQ8": 0.7}
    ),
    *_approximate("fast-scan codes in blocks of 32", PQ8x4fs=0.5, RQ4x4fs_32_Nrq2x4=0.4, RaBitQfs=0.7),
    *_approximate(_CODES, **{"RQ4x4": 0.4, "LSQ4x4": 0.4, "PRQ2x2x4": 0.4, "PLSQ2x2x4": 0.4, "IVF16,RQ4x4": 0.4}),
    *_approximate("two quantizers in one", **{"HNSW8_4+PQ4": 0.4}),
    *_approximate("the vectors kept for the second look", **{"SQ4,Refine(SQ8)": 0.999}),
    *_approximate("rotation undone, up to the rounding of float32", **{"RR32,Flat": 0.9999}),
    *_approximate(_PROJECTED, **{"PCA16,Flat": 0.6, "OPQ8_16,IVF16,PQ8": 0.5}),
    *_approximate("lengths are lost, directions are not", **{"L2norm,Flat": 0.9999}),
    *_approximate(_BITS, **{"LSH": 0.7, "LSHrt": 0.7, "RaBitQ": 0.7, "IVF16,RaBitQ": 0.7, "HNSW8,RaBitQ": 0.7}),
    *_approximate("exact for whole numbers; refused where fractions were cut to nothing", SQ8_direct=0.0),
    *_refused("scales each vector by a length that is not kept", "ITQ16,LSH"),
    *_refused("no code can be decoded", "IVF16,ITQ16,SH"),
    *_refused("equal vectors are kept once, without a record of where", "IVF16,FlatDedup"),
    *_refused("FAISS loses how to decode fast-scan codes in lists", "IVF16,PQ8x4fs", "IVF16,RaBitQfs"),
    *_refused("FAISS decodes other fast-scan codes than it wrote", "PQ8x4fs_64"),
    *_refused("FAISS undoes whitening as if it were a rotation", "PCAW16,Flat"),
)
"""One example of each kind. Any may stand in an IDMap or IDMap2, and have its inverted lists in a second file."""

REFUSED_ALWAYS: Final[dict[str, str]] = {
    "binary indexes (`IndexBinary...`)": "vectors of bits, which no map between embedding spaces applies to",
    "metrics other than L2 and inner product": "the audit compares by these two",
}


def render_table() -> str:
    """The table as Markdown; kinds that are alike share a line."""
    grouped: dict[tuple[Reading, str], list[str]] = {}
    for row in SUPPORT:
        grouped.setdefault((row.reading, row.remark), []).append(f"`{row.factory}`")
    lines = [f"| {', '.join(names)} | {reading} | {remark} |" for (reading, remark), names in grouped.items()]
    lines += [f"| {what} | refused | {remark} |" for what, remark in REFUSED_ALWAYS.items()]
    return "\n".join(["| index, as `faiss.index_factory` names it | read | remark |", "|---|---|---|", *lines])
