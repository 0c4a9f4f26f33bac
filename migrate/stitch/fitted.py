"""A fitted stitch, ready to use and to save: the map, the norm of its output, and the true vectors of the sample.

A stitch that reads texts carries a `Fallback`, the best map of the old vectors alone, for stores without texts.

A stitch maps in one of two directions: documents of the old store into the new space, or new queries into the old
space. In both directions the manifest names the models of the migration, not those of the map: `model` is the one you
migrate to, `source_model` the one the store was built with. So a stitch for documents maps from `source_model` to
`model`, and a stitch for queries from `model` to `source_model`; the fingerprint is that of the old store in both.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import save

from migrate.digests import hash_bytes, hash_file
from migrate.display import notebook_html, percent
from migrate.errors import StitchError
from migrate.files import atomic_folder, sha256_json, write_bytes, write_json
from migrate.locations import place_of
from migrate.manifest import MANIFEST_NAME, Manifest, StitchFacts
from migrate.stitch.base import Arrays, Pairing, Prediction, Stitch, saved_arrays
from migrate.stitch.registry import new_stitch
from migrate.stitch.scores import Sphere
from migrate.stitch.select import Selection, select_stitch
from migrate.stitch.text_features import TextRows
from migrate.stitch.text_reader import TextReader
from migrate.vectors import Batch, Vectors, as_vectors, check_vectors, summarize_norms
from migrate.work.remote import upload

Direction: TypeAlias = Literal["document", "query"]

DOCUMENT: Direction = "document"
QUERY: Direction = "query"
DIRECTIONS = (DOCUMENT, QUERY)


WEIGHTS_NAME = "weights.safetensors"
SAMPLE_NAME = "sample.json"


@dataclass(frozen=True)
class Fallback:
    """A fitted stitch that reads no texts, and its scores on the pairs of the stitch that it replaces."""

    stitch: Stitch
    selection: Selection


@dataclass(frozen=True, slots=True)
class FallbackUse:
    """Records that `fallback` replaced `stitch`, with the overlap@10 of both on held-out pairs, None of too few."""

    stitch: str
    fallback: str
    overlap_at_10: float | None
    fallback_overlap_at_10: float | None

    @property
    def sentence(self) -> str:
        """The facts as a sentence."""
        sentence = (
            f"the store has no texts, which {self.stitch} reads: {self.fallback} was used, which reads the old vectors "
            "alone"
        )
        if self.overlap_at_10 is None or self.fallback_overlap_at_10 is None:
            return sentence
        return (
            f"{sentence}. Of the 10 true neighbours of held-out documents of the sample it finds "
            f"{percent(self.fallback_overlap_at_10)}, {self.stitch} {percent(self.overlap_at_10)}"
        )


def fit_fallback(pairs: Pairing, selection: Selection) -> Fallback:
    """Fit the best stitch of the old vectors alone: of the candidates of `selection`, or of all where it has none."""
    best = selection.best_of_vectors
    specs: Sequence[str] = ()
    if best is not None:
        specs = (best.stitch,)
    bare = replace(pairs, texts=None)
    # `selection` has tuned it for the same pairs already
    judged = select_stitch(bare, specs=specs, tuned=selection.tuned)
    return Fallback(bare.fit(judged.stitch or new_stitch(judged.chosen)), judged)


def direction_of(manifest: Manifest, *, source: str = "stitch") -> Direction:
    """The direction of the stitch with this manifest; `source` names it in errors.

    Raises StitchError: the manifest names another direction.
    """
    direction = cast("Direction", manifest.stitch.direction or DOCUMENT)
    if direction not in DIRECTIONS:
        raise StitchError(
            f"{source}: {direction!r} is not a direction, which is one of {', '.join(DIRECTIONS)}; fit it again"
        )
    return direction


def require_direction(manifest: Manifest, required: Direction, *, source: str) -> None:
    """Make sure that the stitch with this manifest has the required direction; `source` is what it is applied to.

    Raises StitchError: it goes the other way.
    """
    direction = direction_of(manifest)
    if direction != required:
        maps = {
            DOCUMENT: "maps the store's documents into the new space",
            QUERY: "maps new queries into the old space",
        }
        raise StitchError(
            f"{source}: the stitch {maps[direction]}, and one is needed that {maps[required]}; "
            f"fit it with --direction {required}"
        )


def input_dim(manifest: Manifest, *, source: str = "stitch") -> int:
    """Dimension of the vectors that the stitch with this manifest takes; `source` is where it was read.

    Raises StitchError: a stitch for queries does not say whose.
    """
    if direction_of(manifest, source=source) == DOCUMENT:
        return int(manifest.stitch.fitted_on["dim"])
    if manifest.model is None:
        raise StitchError(
            f"{source}: the manifest does not name the model whose queries the stitch takes; fit it again"
        )
    return manifest.model.dim


@dataclass(frozen=True)
class TrueVectors:
    """Documents that were embedded by the target model: `vectors[i]`, (n, q), belongs to `ids[i]`.

    `copies` has the ids of other documents with the text of one of these, and its row. All vectors lie on the `sphere`.
    """

    ids: Sequence[str]
    vectors: Vectors
    copies: Mapping[str, int] = field(default_factory=dict)
    row_of: Mapping[str, int] = field(init=False, repr=False, compare=False)
    sphere: Sphere = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sampled = {doc_id: row for row, doc_id in enumerate(self.ids)}
        # Both are needed for every batch of a translation
        object.__setattr__(self, "row_of", {**self.copies, **sampled})
        object.__setattr__(self, "sphere", Sphere.fit(self.vectors))

    def positions(self, ids: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Look up `ids` in the sample: return positions in `ids`, and the rows of `vectors` that belong there."""
        is_sampled = np.fromiter(map(self.row_of.__contains__, ids), bool, len(ids))
        positions = np.flatnonzero(is_sampled)
        rows = np.array([self.row_of[ids[position]] for position in positions.tolist()], np.int64)
        return positions, rows


@dataclass(frozen=True, slots=True)
class TranslatedBatch(Batch):
    """Vectors of the target space with the cosine to expect between each and the true one, (n,); 1 for true ones."""

    confidence: Vectors


@dataclass(frozen=True)
class FittedStitch:
    """A stitch ready to translate a store, or to map queries: see `direction`.

    `norm` is the length of every mapped vector: the mean norm of the true vectors in the target space of the map, 1 for
    models that normalise. `sample` is empty in a stitch for queries, because every document has an old vector.
    `state` holds the files that a target model fitted on the corpus needs to embed queries the same way later; they
    travel with the stitch and with every store it translates. `reader` turns texts into views; `fallback` is used where
    there are no texts.
    """

    stitch: Stitch
    norm: float
    sample: TrueVectors
    selection: Selection
    manifest: Manifest
    state: Mapping[str, bytes] = field(default_factory=dict)
    reader: TextReader | None = None
    fallback: Fallback | None = None

    def __repr__(self) -> str:
        models = (self.manifest.source_model, self.manifest.model)
        names = [model.spec if model else "a model that is not named" for model in models]
        if self.direction == QUERY:
            names.reverse()
        n_pairs = self.manifest.counts.get("pairs", len(self.sample.ids))
        summary = f"{input_dim(self.manifest)} -> {self.dim} dimensions, {n_pairs:,} pairs"
        overlap = "held-out overlap@10 not known"
        if self.selection.is_told:
            overlap = f"held-out overlap@10 {self.selection.best.scores.overlap_at_10:.3f}"
        return f"<FittedStitch {self.stitch.spec}: {' -> '.join(names)}, {summary}, {overlap}>"

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    @property
    def reads_texts(self) -> bool:
        """True if `translate` needs the texts."""
        return self.stitch.reads_texts

    @property
    def dim(self) -> int:
        """Dimension of the space that it maps to."""
        return int(self.sample.vectors.shape[1])

    @cached_property  # of every batch of a translation
    def direction(self) -> Direction:
        """The direction: of documents or of queries."""
        return direction_of(self.manifest)

    def without_texts(self, *, source: str = "stitch") -> FittedStitch:
        """The stitch for a store without texts, `source`: the fallback in the place of one that reads them.

        Raises StitchError: the stitch reads texts, and has no fallback: it was fitted before stitches had one.
        """
        if not self.reads_texts:
            return self
        if self.fallback is None:
            raise StitchError(
                f"{source}: the {self.stitch.spec} stitch reads texts, but the store has none; fit it again, "
                "which adds a fallback of vectors only, or fit one such as --kind ridge"
            )
        return replace(self, stitch=self.fallback.stitch, selection=self.fallback.selection, reader=None, fallback=None)

    def fallback_use(self) -> FallbackUse | None:
        """Compare the fallback with the stitch; None where there is none."""
        if self.fallback is None:
            return None
        best = self.selection.best
        fallback = self.fallback.selection.best
        if self.selection.is_too_small:
            return FallbackUse(best.stitch, fallback.stitch, None, None)
        return FallbackUse(best.stitch, fallback.stitch, best.scores.overlap_at_10, fallback.scores.overlap_at_10)

    def translate(
        self, batch: Batch, texts: Sequence[str] | None = None, *, source: str, patch: bool = True
    ) -> TranslatedBatch:
        """Map a batch to the target space; documents of the sample, and copies of them, get their true vectors.

        Raises StitchError: the stitch is one for queries, or reads texts and there are none. VectorError: a vector that
        is zero or not finite, going in or coming out; `source` is named.
        """
        if self.direction != DOCUMENT:
            require_direction(self.manifest, DOCUMENT, source=source)
        views = None
        if self.reader is not None and self.reads_texts and texts is not None:
            views = self.reader.read(texts)
        prediction, squares = _predict(self.stitch, batch.ids, batch.vectors, views, source=source, noun="document")
        if self.selection.confidence is None:
            confidence = np.full(len(batch), np.nan, dtype=np.float32)
        else:
            confidence = self.selection.confidence.of(prediction, squares)
        sphere = self.sample.sphere
        if sphere.radius is None:
            out = _scaled(prediction.vectors, self.norm, squares, batch.vectors)
        else:
            # Scaling alone would make hubs of unsure predictions, which lie near the mean
            out = sphere.of(prediction.vectors, norm=self.norm, squares=squares)
        if patch:
            # True vectors were paid for, and are better than any prediction
            positions, rows = self.sample.positions(batch.ids)
            out[positions] = self.sample.vectors[rows]
            confidence[positions] = 1
        return TranslatedBatch(batch.ids, out, confidence)

    def map_queries(self, vectors: ArrayLike, *, source: str = "queries") -> Vectors:
        """Map vectors of the new model, (n, p), into the old space: (n, q), float32, of the old vectors' length.

        Raises StitchError: the stitch is one for documents. VectorError: the vectors are of another dimension than the
        new model's; or one is zero or not finite, going in or coming out.
        """
        require_direction(self.manifest, QUERY, source=source)
        rows = as_vectors(vectors, dim=input_dim(self.manifest), source=source)
        prediction, squares = _predict(self.stitch, range(len(rows)), rows, None, source=source, noun="row")
        return _scaled(prediction.vectors, self.norm, squares, rows)

    def digest(self) -> str:
        """Hash of everything a translation depends on; for a store without texts use that of `without_texts`."""
        # Without the manifest: it has the date, which changes no vector
        hashes = {name: hash_bytes(array.tobytes()) for name, array in _arrays_of(self).items()}
        hashes |= {name: hash_bytes(payload) for name, payload in _payloads_of(self).items()}
        return sha256_json([self.stitch.spec, self.norm, list(self.sample.ids), dict(self.sample.copies), hashes])

    def save(self, location: str | Path, *, force: bool = False) -> None:
        """Write the stitch into a new folder, atomically. Only the date in the manifest differs between equal fits.

        At a URL where fsspec can write, such as `s3://bucket/stitch`, its manifest comes last: without one there is no
        stitch. No file is put where another one is, unless `force` replaces what is there.

        Raises UsageError: something is there, and `force` is not given; or nothing is known of such places.
        LockedError, OutputError: another process is writing it, or the place cannot be written to.
        """
        target = place_of(location)
        if isinstance(target, Path):
            _write(self, target, force=force)
            return
        with tempfile.TemporaryDirectory(prefix="lead-migrate-") as temporary:
            _write(self, Path(temporary) / "stitch", force=False)
            # Object stores have no rename: what is read in the meantime lacks its manifest, and is refused
            upload(Path(temporary) / "stitch", target, last=MANIFEST_NAME, force=force)


def _predict(
    stitch: Stitch, ids: Sequence[object], vectors: Vectors, texts: TextRows | None, *, source: str, noun: str
) -> tuple[Prediction, Vectors]:
    """Return the prediction, checked, and the squared norms of its vectors."""
    check_vectors(ids, vectors, source=source, noun=noun)
    prediction = stitch.predict(vectors, texts)
    description = f"{source} after the {stitch.spec} stitch"
    return prediction, check_vectors(ids, prediction.vectors, source=description, noun=noun)


def _scaled(predicted: Vectors, norm: float, squares: Vectors, inputs: Vectors) -> Vectors:
    """Return the predicted rows scaled to `norm`; `inputs` is not changed."""
    scale = np.float32(norm) / np.sqrt(squares)
    if predicted is inputs:  # `identity` returns the rows of the store themselves
        return np.multiply(predicted, scale[:, None])
    return np.multiply(predicted, scale[:, None], out=predicted)


def _arrays_of(fitted: FittedStitch) -> dict[str, NDArray[Any]]:
    """Return all arrays but those of the fallback, by the names that they are saved under."""
    groups: dict[str, Arrays] = {"stitch": saved_arrays(fitted.stitch)}
    if fitted.reader is not None:
        groups["reader"] = fitted.reader.arrays()
    groups["sample"] = {"vectors": fitted.sample.vectors}
    return {f"{group}.{name}": array for group, arrays in groups.items() for name, array in arrays.items()}


def _payloads_of(fitted: FittedStitch) -> dict[str, bytes]:
    """Return the files that are saved as they are, by their names."""
    if fitted.reader is None:
        return dict(fitted.state)
    return {**fitted.state, **fitted.reader.state()}


def _write(fitted: FittedStitch, folder: Path, *, force: bool) -> None:
    arrays = _arrays_of(fitted)
    fallback_facts = None
    if fitted.fallback is not None:
        spare = saved_arrays(fitted.fallback.stitch)
        arrays |= {f"fallback.{name}": array for name, array in spare.items()}
        fallback_facts = _selection_facts(fitted.fallback.selection)
    payloads = _payloads_of(fitted)
    with atomic_folder(folder, force=force) as temporary:
        # safetensors writes the memory of an array as it lies, so a transposed one would come back another
        rows = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        write_bytes(temporary / WEIGHTS_NAME, save(rows))
        write_json(temporary / SAMPLE_NAME, {"ids": list(fitted.sample.ids), "copies": dict(fitted.sample.copies)})
        for name, payload in payloads.items():
            write_bytes(temporary / name, payload)
        details = replace(
            fitted.manifest.stitch,
            fallback=fallback_facts,
            stitch=fitted.stitch.spec,
            norm=fitted.norm,
            kind_facts=fitted.stitch.kind_facts() or fitted.manifest.stitch.kind_facts or {},
            selection=_selection_facts(fitted.selection),
            arrays=tuple(sorted(arrays)),
            files={name: hash_file(temporary / name) for name in (WEIGHTS_NAME, SAMPLE_NAME, *payloads)},
        )
        # Facts of a later version are kept as they are
        unknown = StitchFacts.unknown(fitted.manifest.details)
        replace(fitted.manifest, details={**unknown, **details.as_details()}).write(temporary)


def fit_norm(target: Vectors) -> float:
    """The norm to give to translated vectors: 1 where the target model normalises, else its vectors' mean norm."""
    norms = summarize_norms(target)
    if norms.is_unit:
        # Exactly: the mean of norms that float32 rounds is not, and a store of it would not look normalised
        return 1.0
    return norms.mean


def _selection_facts(selection: Selection) -> dict[str, Any]:
    """The selection without its timings, which differ from run to run."""
    details = selection.as_details()
    for row in details["candidates"]:
        del row["fit_s"]
    if details["tried"] is not None:
        del details["tried"]["minutes"]
    return details
