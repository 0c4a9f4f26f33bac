"""Decides which document a row of vectors has, where both the order of the documents and numbers could say so.

FAISS numbers vectors in the order in which they are added, and an array has no labels at all. Ids beside them that hold
the numbers of rows in another order may mean rows, or be of some other table; so may labels that somebody gave. Texts
that are alike have vectors that are alike, whatever the model, and so the texts tell which of two readings is right.
"""

from __future__ import annotations

import shlex
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.stores.binary_reader import RowFile
from migrate.stores.documents.base import DocumentSource
from migrate.stores.documents.matching import ID, LABEL, ORDER, ROWS_OPTION, differing_rows
from migrate.vectors import Vectors, unit_rows

_COMPARED: Final = 200
"""Rows that are compared, drawn at random from those whose document depends on the reading."""

_CLEAR: Final = 8.0
"""Standard errors by which one reading has to fit better: from two real models and SciFact and NFCorpus, 120 documents
gave 16 and more, 30 gave 3.6 and more; where both readings were wrong it was 4.7 at most in 900 draws."""

_CHARACTERS: Final = 1_000
"""Characters of a text that are looked at."""

_FEATURES: Final = 4_096
"""Buckets that sequences of three characters are hashed into."""

_FEWEST: Final = 30
"""Rows below which a difference is chance too often."""

_NUMBERS: Final = {ID: "by the numbers in their ids", LABEL: "by the labels of the index"}


def settle_rows(
    source: DocumentSource,
    file: RowFile,
    location: str,
    *,
    requested: str | None,
) -> Mapping[str, str]:
    """Give each row its document where order and numbers differ: as `requested`, else as the texts say.

    Returns the option of a location that says the same; none where there is nothing to decide.

    Raises
    ------
    StoreError
        The texts do not tell; or documents cannot be matched as requested.
    UsageError
        What is requested is no reading.
    """
    if requested is not None:
        _read_as_requested(source, location, requested)
        return {ROWS_OPTION: requested}
    if not differing_rows(source.readings).size:
        return {}
    reading = _fitting_reading(source, file)
    if source.info.file is None:
        name = location
    else:
        name = source.info.file.name
    numbers = _NUMBERS[source.readings[ID].by]
    if reading is None:
        raise StoreError(
            f"{location}: the documents in {name} may belong to vectors by their order or {numbers}, and the texts do "
            f"not tell; say {_example(location, ORDER)} for the order in which vectors were added, or "
            f"{_example(location, ID)} for the other; `check --model` tells whether that is right"
        )
    other_reading = ID if reading == ORDER else ORDER
    _read_as(source, reading)
    note = (
        f"the documents in {name} may belong to vectors by their order or {numbers}: they are taken "
        f"{'by their order' if reading == ORDER else numbers}, as alike texts have alike vectors so; "
        f"{_example(location, other_reading)} says otherwise"
    )
    source.info = replace(source.info, notes=(*source.info.notes, note))
    return {ROWS_OPTION: reading}


def _read_as_requested(source: DocumentSource, location: str, requested: str) -> None:
    if requested not in (ORDER, ID):
        raise UsageError(f"{location}: {ROWS_OPTION}={requested} is unknown; say {ORDER} or {ID}")
    if requested not in source.readings:
        kind = source.info.kind
        raise StoreError(
            f"{location}: ?{ROWS_OPTION}={requested} does not fit, as the documents are {kind}; leave it out"
        )
    if differing_rows(source.readings).size:
        _read_as(source, requested)


def _read_as(source: DocumentSource, reading: str) -> None:
    source.positions = source.readings[reading].positions
    source.info = replace(source.info, matched=source.readings[reading].by)


def _example(location: str, reading: str) -> str:
    mark = "&" if "#?" in location else "#?"
    return shlex.quote(f"{location}{mark}{ROWS_OPTION}={reading}")


def _fitting_reading(source: DocumentSource, file: RowFile) -> str | None:
    """Return the reading by which alike texts have alike vectors, None where that is not clear."""
    if not source.info.has_texts:
        return None
    # Always the same rows: a store must not be read in one way today and in the other tomorrow.
    rows = np.sort(np.random.default_rng(0).permutation(differing_rows(source.readings))[:_COMPARED])
    if len(rows) < _FEWEST:
        return None
    vectors = file.take(rows)
    fits = {}
    for reading in (ORDER, ID):
        _read_as(source, reading)
        fits[reading] = _fit_of_texts([document.text for document in source.documents(rows)], vectors)
    difference = fits[ORDER] - fits[ID]
    gain = float(difference.mean())
    is_clear = abs(gain) > _CLEAR * float(difference.std(ddof=1)) / np.sqrt(len(rows))
    if not is_clear or not gain:
        return None
    if gain > 0:
        return ORDER
    return ID


def _fit_of_texts(texts: list[str], vectors: Vectors) -> NDArray[np.float64]:
    """Return for each text the correlation of its likeness to the other texts with that of the vectors, (n,).

    The statistic of Mantel's test (Cancer Research 27, 1967, 209-220), a row at a time.
    """
    of_texts = _cosines(_trigrams(texts))
    of_vectors = _cosines(vectors - vectors.mean(axis=0, dtype=np.float64))
    correlations = np.zeros(len(texts))
    for row in range(len(texts)):
        is_other_row = np.arange(len(texts)) != row
        first = of_texts[row, is_other_row] - of_texts[row, is_other_row].mean()
        second = of_vectors[row, is_other_row] - of_vectors[row, is_other_row].mean()
        scale = np.sqrt((first @ first) * (second @ second))
        if scale > 0:
            correlations[row] = first @ second / scale
    return correlations


def _trigrams(texts: list[str]) -> NDArray[np.float64]:
    """Return how often each sequence of three characters comes in each text, damped, and weighted by its rarity."""
    counts = np.zeros((len(texts), _FEATURES))
    for row, text in enumerate(texts):
        plain = " ".join(text[:_CHARACTERS].lower().split())
        buckets = [_bucket(plain[at : at + 3]) for at in range(len(plain) - 2)]
        counts[row] = np.bincount(np.array(buckets, np.int64), minlength=_FEATURES)
    texts_with = np.maximum((counts > 0).sum(axis=0), 1)
    return np.asarray(np.log1p(counts) * np.log(len(texts) / texts_with))


@lru_cache(maxsize=1 << 16)
def _bucket(trigram: str) -> int:
    return zlib.crc32(trigram.encode()) % _FEATURES


def _cosines(rows: Any) -> NDArray[np.float64]:
    units = unit_rows(np.asarray(rows, np.float32)).astype(np.float64)
    return np.asarray(units @ units.T)
