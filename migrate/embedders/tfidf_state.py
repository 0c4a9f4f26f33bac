"""What the TF-IDF embedder has learned, in memory and on disk. No pickle: JSON for words, safetensors for numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.errors import InputError
from migrate.files import canonical_json, is_endless
from migrate.vectors import Vectors

STATE_NAME = "embedder.json"
WEIGHTS_NAME = "embedder.safetensors"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class TfidfState:
    """What `TfidfEmbedder.fit` learned.

    `vocabulary` has w words, `idf` their weights, shape (w,), float64; `components` are the directions kept,
    (dim, w), float32; `fallback` is where a text without a known word goes, (dim,), float32.
    """

    vocabulary: tuple[str, ...]
    idf: NDArray[np.float64]
    components: Vectors
    fallback: Vectors

    def to_files(self) -> tuple[bytes, bytes]:
        """The contents of `STATE_NAME` and `WEIGHTS_NAME`; equal states give equal bytes."""
        from safetensors.numpy import save

        facts = {
            "format_version": FORMAT_VERSION,
            "kind": "tfidf",
            "dim": len(self.fallback),
            "vocabulary": list(self.vocabulary),
        }
        weights: dict[str, NDArray[Any]] = {"components": self.components, "fallback": self.fallback, "idf": self.idf}
        return canonical_json(facts).encode() + b"\n", save(weights)


def read_state(folder: Path, *, dim: int) -> TfidfState:
    """Read what `TfidfState.to_files` gave.

    Raises
    ------
    InputError
        The files are missing, damaged, of another dimension or of another format version.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if any(is_endless(folder / name) for name in (STATE_NAME, WEIGHTS_NAME)):
        raise InputError(f"{folder}: expected the saved state of tfidf:{dim} in files, found a pipe or a device")
    try:
        facts = json.loads((folder / STATE_NAME).read_bytes())
        weights = load((folder / WEIGHTS_NAME).read_bytes())
    except OSError as error:
        raise InputError(
            f"{folder}: expected the words that tfidf:{dim} learned, in {STATE_NAME} and {WEIGHTS_NAME}, found none; "
            "only a store that lead-migrate embedded has them: name another model"
        ) from error
    except (ValueError, SafetensorError) as error:
        raise InputError(f"{folder}: the saved state of tfidf:{dim} is damaged ({error}); fit it again") from error
    _check_facts(facts, folder, dim)
    state = _build(facts, weights, folder, dim)
    if not all(np.isfinite(array).all() for array in (state.idf, state.components, state.fallback)):
        raise InputError(f"{folder}: the saved state of tfidf:{dim} holds NaN or Inf; fit it again")
    return state


def _check_facts(facts: Any, folder: Path, dim: int) -> None:
    if not isinstance(facts, dict) or facts.get("kind") != "tfidf":
        raise InputError(f"{folder}: expected the saved state of a tfidf embedder, found something else")
    if facts.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{folder}: expected a state of format version {FORMAT_VERSION}, found {facts.get('format_version')!r}"
        )
    if facts.get("dim") != dim:
        raise InputError(
            f"{folder}: expected the saved state of tfidf:{dim}, found that of tfidf:{facts.get('dim')}; name that"
        )


def _build(facts: dict[str, Any], weights: dict[str, NDArray[Any]], folder: Path, dim: int) -> TfidfState:
    words = facts.get("vocabulary")
    expected = {"components": (dim, len(words or ())), "fallback": (dim,), "idf": (len(words or ()),)}
    found = {name: array.shape for name, array in weights.items()}
    if not isinstance(words, list) or found != expected or len(set(map(str, words))) != len(words):
        raise InputError(f"{folder}: the parts of the saved state of tfidf:{dim} do not fit together; fit it again")
    return TfidfState(
        vocabulary=tuple(map(str, words)),
        idf=weights["idf"].astype(np.float64),
        components=weights["components"].astype(np.float32),
        fallback=weights["fallback"].astype(np.float32),
    )
