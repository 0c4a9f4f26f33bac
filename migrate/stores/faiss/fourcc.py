"""The four-character codes that FAISS files begin with, and the classes and metrics they stand for. Reads nothing."""

from __future__ import annotations

from typing import Final

from migrate.stores.base import Metric

FLAT: Final = {"IxF2": "IndexFlatL2", "IxFI": "IndexFlatIP", "IxFl": "IndexFlat"}
ID_MAPS: Final = {"IxMp": "IndexIDMap", "IxM2": "IndexIDMap2"}
HNSW: Final = "IHNf"
IVF: Final = "IwFl"
NULL: Final = "null"
PANORAMA: Final = frozenset({"IxFP", "IwP2"})

CLASS_NAMES: Final[dict[str, str]] = {
    **FLAT,
    **ID_MAPS,
    HNSW: "IndexHNSWFlat",
    IVF: "IndexIVFFlat",
    NULL: "no index at all",
    "IHNp": "IndexHNSWPQ",
    "IHNs": "IndexHNSWSQ",
    "IHN2": "IndexHNSW2Level",
    "IHc2": "IndexHNSWCagra",
    "IHNc": "IndexHNSWCagra",
    "IHfP": "IndexHNSWFlatPanorama",
    "INSf": "IndexNSGFlat",
    "INSp": "IndexNSGPQ",
    "INSs": "IndexNSGSQ",
    "INNf": "IndexNNDescentFlat",
    "IPfs": "IndexPQFastScan",
    "IwPf": "IndexIVFPQFastScan",
    "IwPQ": "IndexIVFPQ",
    "IwQR": "IndexIVFPQR",
    "IwSq": "IndexIVFScalarQuantizer",
    "IwFd": "IndexIVFFlatDedup",
    "IwSh": "IndexIVFSpectralHash",
    "IwIQ": "IndexIVFIndependentQuantizer",
    "IwLS": "IndexIVFLocalSearchQuantizer",
    "IwRQ": "IndexIVFResidualQuantizer",
    "IwPL": "IndexIVFProductLocalSearchQuantizer",
    "IwPR": "IndexIVFProductResidualQuantizer",
    "Iwrq": "IndexIVFRaBitQ",
    "Iwrf": "IndexIVFRaBitQFastScan",
    "IVLf": "IndexIVFLocalSearchQuantizerFastScan",
    "IVRf": "IndexIVFResidualQuantizerFastScan",
    "IvFl": "IndexIVFFlat in the layout of 2017",
    "IvPQ": "IndexIVFPQ in the layout of 2017",
    "IvSQ": "IndexIVFScalarQuantizer in the layout of 2017",
    "ILfs": "IndexLocalSearchQuantizerFastScan",
    "IRfs": "IndexResidualQuantizerFastScan",
    "IRMf": "IndexRowwiseMinMax",
    "IRMh": "IndexRowwiseMinMaxFP16",
    "ImRQ": "ResidualCoarseQuantizer",
    "Imiq": "MultiIndexQuantizer",
    "IxSQ": "IndexScalarQuantizer",
    "IxPq": "IndexPQ",
    "IxPo": "IndexPQ",
    "IxPQ": "IndexPQ",
    "IxHe": "IndexLSH",
    "IxPT": "IndexPreTransform",
    "IxRF": "IndexRefine",
    "IxRq": "IndexResidualQuantizer",
    "IxRQ": "IndexResidualQuantizer",
    "IxLS": "IndexLocalSearchQuantizer",
    "IxPR": "IndexProductResidualQuantizer",
    "IxPL": "IndexProductLocalSearchQuantizer",
    "Ix2L": "Index2Layer",
    "IxLa": "IndexLattice",
    "Ixrq": "IndexRaBitQ",
    "Ixrr": "IndexRaBitQ",
    "Iwrr": "IndexIVFRaBitQ",
    "Irfn": "IndexRaBitQFastScan",
    "Iwrn": "IndexIVFRaBitQFastScan",
    "IHNr": "IndexHNSWRaBitQ",
    "IxFP": "IndexFlatL2Panorama",
    "IwP2": "IndexIVFFlatPanorama",
    "IxEe": "IndexEDEN",
    "IwEe": "IndexIVFEDEN",
}

BINARY_CLASS_NAMES: Final[dict[str, str]] = {
    "IBxF": "IndexBinaryFlat",
    "IBwF": "IndexBinaryIVF",
    "IBFf": "IndexBinaryFromFloat",
    "IBHf": "IndexBinaryHNSW",
    "IBHc": "IndexBinaryHNSWCagra",
    "IBMp": "IndexBinaryIDMap",
    "IBM2": "IndexBinaryIDMap2",
    "IBHh": "IndexBinaryHash",
    "IBHm": "IndexBinaryMultiHash",
}

METRICS: Final[dict[int, Metric]] = {0: "ip", 1: "l2"}
METRIC_NUMBERS: Final[dict[Metric, int]] = {name: number for number, name in METRICS.items()}

OTHER_METRICS: Final[dict[int, str]] = {
    2: "L1",
    3: "Linf",
    4: "Lp",
    20: "Canberra",
    21: "BrayCurtis",
    22: "JensenShannon",
    23: "Jaccard",
    24: "NaNEuclidean",
    25: "Gower",
}


def is_known(code: str) -> bool:
    """Whether a FAISS file can begin with these four characters."""
    return code in CLASS_NAMES or code in BINARY_CLASS_NAMES
