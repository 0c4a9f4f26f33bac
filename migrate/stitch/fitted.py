"""A fitted stitch as it is used and saved: the map, the norm of its output, and the sample that was paid for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import safe_open
from safetensors.numpy import save

from migrate.errors import StitchError
from migrate.files import atomic_folder, canonical_json, sha256_file, write_bytes, write_json
from migrate.manifest import Manifest
from migrate.stitch.base import Prediction, Stitch
from migrate.stitch.direction import DOCUMENT, QUERY, Direction, direction_of, input_dim, require_direction
from migrate.stitch.fallback import Fallback, FallbackUse
from migrate.stitch.select import Selection
from migrate.stitch.text_reader import TextReader
from migrate.stitch.text_rows import TextRows
from migrate.vectors import Batch, Vectors, as_vectors, check_vectors, summarize_norms

WEIGHTS_NAME = "weights.safetensors"
SAMPLE_NAME = "sample.json"
PREFIX, READER_PREFIX, FALLBACK_PREFIX = "stitch.", "reader.", "fallback."
SAMPLE_KEY = "sample.vectors"
ARRAYS = "arrays"
"""Detail of the manifest: the names of all arrays in the file of weights."""
FALLBACK = "fallback"
"""Detail of the manifest: how the fallback was judged; absent where there is none."""


@dataclass(frozen=True)
class TrueVectors:
    """Documents that were embedded by the target model: `vectors[i]`, (n, q), belongs to `ids[i]`.

    `copies` has the ids of other documents with the text of one of these, and its row.
    """

    ids: Sequence[str]
    vectors: Vectors
    copies: Mapping[str, int] = field(default_factory=dict)
    row_of: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        own = {doc_id: row for row, doc_id in enumerate(self.ids)}
        object.__setattr__(self, "row_of", {**self.copies, **own})

    def positions(self, ids: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where `ids` and the sample meet: positions in `ids`, and the rows of `vectors` that belong there."""
        known = self.row_of
        hits = [(position, known[doc_id]) for position, doc_id in enumerate(ids) if doc_id in known]
        table = np.array(hits, dtype=np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]


@dataclass(frozen=True, slots=True)
class TranslatedBatch(Batch):
    """Vectors of the target space with the cosine to expect between each and the true one, (n,); 1 for true ones."""

    confidence: Vectors


@dataclass(frozen=True)
class FittedStitch:
    """A stitch ready to translate a store, or to map queries: see `direction`.

    `norm` is the length every mapped vector gets: the mean norm of the vectors that were true where it maps to, which
    is 1 for the models that normalise. `sample` is empty in a stitch for queries: nothing is put into the old space
    that is not there. `state` holds the files that a target model fitted on the corpus needs to embed
    queries the same way later; they travel with the stitch and with every store it translates. `reader` turns texts
    into what a stitch that reads texts wants of them; `fallback` takes over where there are none.
    """

    stitch: Stitch
    norm: float
    sample: TrueVectors
    selection: Selection
    manifest: Manifest
    state: Mapping[str, bytes] = field(default_factory=dict)
    reader: TextReader | None = None
    fallback: Fallback | None = None

    @property
    def reads_texts(self) -> bool:
        """Whether `translate` needs the texts."""
        return self.stitch.reads_texts

    @property
    def dim(self) -> int:
        """Dimension of the space that it maps to."""
        return int(self.sample.vectors.shape[1])

    @property
    def direction(self) -> Direction:
        """Whether it maps documents forth or queries back."""
        return direction_of(self.manifest)

    def without_texts(self, *, source: str = "stitch") -> FittedStitch:
        """The stitch for a store without texts, `source`: the fallback in the place of one that reads them.

        Raises
        ------
        StitchError
            The stitch reads texts, and has no fallback: it was fitted before stitches had one.
        """
        if not self.reads_texts:
            return self
        if self.fallback is None:
            raise StitchError(
                f"{source}: the {self.stitch.spec} stitch reads texts, found a store without; fit it again, which "
                "keeps one of vectors only beside it, or fit one such as --stitch ridge"
            )
        used, judged = self.fallback.stitch, self.fallback.selection
        return replace(self, stitch=used, selection=judged, reader=None, fallback=None)

    def fallback_use(self) -> FallbackUse | None:
        """What using the fallback costs, None where there is none."""
        if self.fallback is None:
            return None
        best, other = self.selection.best, self.fallback.selection.best
        return FallbackUse(best.stitch, other.stitch, best.scores.overlap_at_10, other.scores.overlap_at_10)

    def translate(
        self, batch: Batch, texts: Sequence[str] | None = None, *, source: str, patch: bool = True
    ) -> TranslatedBatch:
        """Map a batch to the target space; documents of the sample, and copies of them, get their true vectors.

        Raises
        ------
        StitchError
            The stitch is one for queries, or reads texts and there are none.
        VectorError
            A vector that is zero or not finite, going in or coming out; `source` is named.
        """
        require_direction(self.manifest, DOCUMENT, source=source)
        read = self.reader.read(texts) if self.reader is not None and self.reads_texts and texts is not None else None
        prediction, squares = self._predict(batch.ids, batch.vectors, read, source=source, noun="document")
        known = self.selection.confidence
        confidence = np.full(len(batch), np.nan, dtype=np.float32) if known is None else known.of(prediction, squares)
        out = self._of_norm(prediction.vectors, squares, batch.vectors)
        if patch:
            positions, rows = self.sample.positions(batch.ids)
            out[positions] = self.sample.vectors[rows]
            confidence[positions] = 1
        return TranslatedBatch(batch.ids, out, confidence)

    def map_queries(self, vectors: ArrayLike, *, source: str = "queries") -> Vectors:
        """Map vectors of the new model, (n, p), into the old space: (n, q), float32, of the old vectors' length.

        Raises
        ------
        StitchError
            The stitch is one for documents.
        VectorError
            The vectors are of another dimension than the new model's; or one is zero or not finite, going in or
            coming out.
        """
        require_direction(self.manifest, QUERY, source=source)
        rows = as_vectors(vectors, dim=input_dim(self.manifest), source=source)
        found, squares = self._predict(range(len(rows)), rows, None, source=source, noun="row")
        return self._of_norm(found.vectors, squares, rows)

    def _predict(
        self, ids: Sequence[object], vectors: Vectors, texts: TextRows | None, *, source: str, noun: str
    ) -> tuple[Prediction, Vectors]:
        """The prediction and the squared norms of its vectors."""
        check_vectors(ids, vectors, source=source, noun=noun)
        found = self.stitch.predict(vectors, texts)
        after = f"{source} after the {self.stitch.spec} stitch"
        return found, check_vectors(ids, found.vectors, source=after, noun=noun)

    def _of_norm(self, found: Vectors, squares: Vectors, given: Vectors) -> Vectors:
        """Predicted rows, of the norm that they are to have; what was given is left as it is."""
        scale = np.float32(self.norm) / np.sqrt(squares)
        return np.multiply(found, scale[:, None], out=found if found is not given else None)

    def digest(self) -> str:
        """SHA-256 of all that a translation depends on; one without texts depends on `without_texts` instead."""
        parts = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in self._arrays().items()}
        parts |= {name: hashlib.sha256(payload).hexdigest() for name, payload in self._payloads().items()}
        whole = canonical_json([self.stitch.spec, self.norm, list(self.sample.ids), dict(self.sample.copies), parts])
        return hashlib.sha256(whole.encode()).hexdigest()

    def _arrays(self) -> dict[str, NDArray[Any]]:
        reader = self.reader.arrays() if self.reader is not None else {}
        arrays = {PREFIX + name: array for name, array in self.stitch.saved().items()}
        return {**arrays, **{READER_PREFIX + n: a for n, a in reader.items()}, SAMPLE_KEY: self.sample.vectors}

    def _payloads(self) -> dict[str, bytes]:
        return {**self.state, **(self.reader.state() if self.reader is not None else {})}

    def save(self, folder: Path, *, force: bool = False) -> None:
        """Write the stitch into a new folder, atomically. Same fit, same bytes, but for the date in the manifest."""
        spare = {} if self.fallback is None else self.fallback.stitch.saved()
        arrays = {**self._arrays(), **{FALLBACK_PREFIX + name: array for name, array in spare.items()}}
        tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        with atomic_folder(folder, force=force) as aside:
            write_bytes(aside / WEIGHTS_NAME, save(tensors))
            write_json(aside / SAMPLE_NAME, {"ids": list(self.sample.ids), "copies": dict(self.sample.copies)})
            for name, payload in self._payloads().items():
                write_bytes(aside / name, payload)
            self.manifest_with_files(aside).write(aside)

    def manifest_with_files(self, folder: Path) -> Manifest:
        """The manifest with the facts of the fit and the hashes of the files in `folder`."""
        known = {name: fact for name, fact in self.manifest.details.items() if name != FALLBACK}
        spare = {} if self.fallback is None else {FALLBACK: _selection_facts(self.fallback.selection)}
        details = {
            **known,
            **spare,
            "stitch": self.stitch.spec,
            "norm": self.norm,
            "facts": self.stitch.facts() or known.get("facts", {}),
            "selection": _selection_facts(self.selection),
            ARRAYS: _array_names(folder / WEIGHTS_NAME),
            "files": {name: sha256_file(folder / name) for name in (WEIGHTS_NAME, SAMPLE_NAME, *self._payloads())},
        }
        return Manifest(**{**_fields(self.manifest), "details": details})


def _array_names(path: Path) -> list[str]:
    """Of what is in a file of weights."""
    with safe_open(path, framework="numpy") as file:
        return sorted(file.keys())


def _fields(manifest: Manifest) -> dict[str, Any]:
    return {name: getattr(manifest, name) for name in Manifest.__dataclass_fields__}


def fit_norm(target: Vectors) -> float:
    """The norm to give to translated vectors: 1 where the target model normalises, else its vectors' mean norm."""
    norms = summarize_norms(target)
    return 1.0 if norms.is_unit else norms.mean


def _selection_facts(selection: Selection) -> dict[str, Any]:
    """The selection without the seconds it took, which differ from run to run."""
    facts = asdict(replace(selection, stitch=None))
    del facts["stitch"]
    for row in facts["candidates"]:
        del row["fit_s"]
    return facts
