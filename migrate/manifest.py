"""Provenance: what an artefact was made from, by which models, with which seed. One JSON file per artefact."""

from __future__ import annotations

import hashlib
import json
import os
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, Self, get_args, get_type_hints

from migrate.digests import present_names
from migrate.errors import ManifestError, OutputError, StitchError, UsageError
from migrate.files import beside, describe_os_error, write_json
from migrate.reading import MalformedError, expect, parse_json, read_json, typed
from migrate.version import __version__

MANIFEST_NAME = "lead-migrate.json"

FORMAT_VERSION = 1

Kind = Literal["store", "stitch", "report", "keyring", "ciphertext"]

_OWN_HASH = "manifest_sha256"
_DIMENSIONS: Final = "requested dimensions"
"""In `details`, by `model` and `source_model`: versions that know no `dimensions` read the manifest all the same."""
_REQUIRED: Final = dict.fromkeys(("inputs", "counts", "details", "model", "source_model"), Any)


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """An embedding model as an artefact remembers it; two equal identities give equal vectors.

    `normalized` says whether its document vectors are of unit length. `revision` tells apart states of one
    name: a hash of local weights or of a fitted vocabulary; None where the model is known by name alone.
    `dimensions` is how long the vectors were that a model outside the registry was asked for; None for its own length.
    """

    spec: str
    dim: int
    normalized: bool
    document_prefix: str = ""
    query_prefix: str = ""
    revision: str | None = None
    dimensions: int | None = field(default=None, compare=False, metadata={"in_documents": False})


def creation_date() -> str:
    """Return the time now in UTC as ISO 8601, or SOURCE_DATE_EPOCH where it is set, for reproducible bytes."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        if epoch:
            moment = datetime.fromtimestamp(int(epoch), UTC)
        else:
            moment = datetime.now(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"SOURCE_DATE_EPOCH is {epoch!r}, not seconds since 1970; unset it") from error
    return moment.isoformat(timespec="seconds")


def today() -> date:
    """Return the day of `creation_date`."""
    return date.fromisoformat(creation_date()[:10])


def _recorded(key: str, default: Any = None, *, nullable: bool = False) -> Any:
    """Return a field that `details` has under `key`; there is none where it is `default`."""
    return field(default=default, metadata={"key": key, "nullable": nullable})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """The facts of a kind of artefact in `details`; those that are not known here stay in `details` alone."""

    @classmethod
    @cache
    def _shape(cls) -> dict[str, tuple[str, Any]]:
        """Return name and type of each field by its name in `details`; null is no value unless it says something."""
        hints = get_type_hints(cls)
        shape = {}
        for entry in fields(cls):
            hint = hints[entry.name]
            if NoneType in get_args(hint) and not entry.metadata["nullable"]:
                (hint,) = (kind for kind in get_args(hint) if kind is not NoneType)
            shape[entry.metadata["key"]] = entry.name, hint
        return shape

    @classmethod
    def parse(cls, details: Mapping[str, Any], source: str) -> Self:
        """Return the facts in `details`; ManifestError where one is of another type, with the manifest as `source`."""
        shape = {key: hint for key, (_, hint) in cls._shape().items() if key in details}
        try:
            expect(details, shape)
        except MalformedError as error:
            raise ManifestError(
                f"{source}: in its details {error}; the file is damaged, copy or make it again"
            ) from error
        values = {cls._shape()[key][0]: details[key] for key in shape}
        # JSON has no tuples, and facts that are equal have to compare as equal.
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})

    @classmethod
    def unknown(cls, details: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rest of `details`, which only another version of the tool knows."""
        return {key: value for key, value in details.items() if key not in cls._shape()}

    def as_details(self) -> dict[str, Any]:
        """Return the facts that there are, as `Manifest.details` holds them."""
        values = {key: getattr(self, name) for key, (name, _) in self._shape().items()}
        present = {key: value for key, value in values.items() if value is not None and value != ()}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in present.items()}


MADE_BY_STAMP: Final = "stamp"
"""What a manifest says that was not written with its store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts(_Facts):
    """The facts in the manifest of a store.

    `index` is the name of the file of vectors, `documents_hashes` has the hash of each file that documents are read
    from, by its path, `beside_hashes` that of each file of numbers, one a document, by its name. The others are of a
    store that was translated (`stitch` is the spec, `confidence_lowest` and `confidence_spearman` are of its stitch,
    `fallback` says what took the place of one that reads texts), filled in from the cache, or stamped (`checked`).
    `chosen_by` has digests of the queries that chose documents. `source_state` is of all that the source had but its
    vectors (`migrate.stores.file_store.state_of`), `written_as` is how a store of another kind than the source
    was asked for (`kind`, or the options of a table), `synced` has the date and the counts of the last `sync`.
    `fields` are those of a file beside the index that were named as `text` and `id`. `added_beside` is the field of the
    old vectors, of a field that was added to the same records. `content` is what a store of
    nothing but true vectors holds (`migrate.stores.content.content_of`), where no hash of a file says it.
    """

    made_by: str | None = _recorded("made by")
    index: str | None = _recorded("index")
    index_hash: str | None = _recorded("index_hash")
    documents_hashes: Mapping[str, str] | None = _recorded("documents_hashes")
    beside_hashes: Mapping[str, str] | None = _recorded("beside_hashes")
    stitch: str | None = _recorded("stitch")
    confidence_lowest: float | None = _recorded("confidence_lowest")
    confidence_spearman: float | None = _recorded("confidence_spearman")
    fallback: Mapping[str, Any] | None = _recorded("fallback")
    filled_in: str | None = _recorded("filled in")
    checked: Mapping[str, Any] | None = _recorded("checked", nullable=True)
    chosen_by: tuple[str, ...] = _recorded("chosen by queries", ())
    source_state: str | None = _recorded("source state")
    written_as: Mapping[str, str] | None = _recorded("written as")
    synced: Mapping[str, Any] | None = _recorded("synced")
    fields: Mapping[str, str] | None = _recorded("fields")
    added_beside: str | None = _recorded("added beside")
    content: Mapping[str, Any] | None = _recorded("content")


@dataclass(frozen=True, slots=True, kw_only=True)
class StitchFacts(_Facts):
    """The facts in the manifest of a stitch.

    `fingerprint` is of the store that it was fitted on, `sample` says how its documents were drawn, `texts` whether the
    store had any. What is noted when it is saved: `stitch` (the spec), `norm`, `kind_facts`, `selection` and that of
    the `fallback`, the names of its `arrays`, and the hash of each of its `files`. `reembedding` is the budget that it
    was fitted again with. `chosen_by` has digests of the queries that chose documents. `prior` is the digest of the
    stitch that the fit might lean on, `request` the SHA-256 of all that was read and asked for
    (`migrate.steps.fit.job.request_of`).
    """

    fingerprint: Mapping[str, Any] | None = _recorded("fingerprint")
    direction: str | None = _recorded("direction")
    sample: Mapping[str, Any] | None = _recorded("sample")
    texts: bool | None = _recorded("texts")
    stitch: str | None = _recorded("stitch")
    norm: float | None = _recorded("norm")
    kind_facts: Mapping[str, Any] | None = _recorded("facts")
    selection: Mapping[str, Any] | None = _recorded("selection")
    fallback: Mapping[str, Any] | None = _recorded("fallback")
    arrays: tuple[str, ...] = _recorded("arrays", ())
    files: Mapping[str, str] | None = _recorded("files")
    reembedding: Mapping[str, Any] | None = _recorded("re-embedding")
    chosen_by: tuple[str, ...] = _recorded("chosen by queries", ())
    prior: str | None = _recorded("prior")
    request: str | None = _recorded("request")

    @property
    def fitted_on(self) -> Mapping[str, Any]:
        """The fingerprint, which every stitch has; StitchError if this one has none, or none with a dimension."""
        if self.fingerprint is None or type(self.fingerprint.get("dim")) is not int:
            raise StitchError("the manifest of the stitch does not say which store it is for; fit it again")
        return self.fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFacts(_Facts):
    """The facts in the manifest of a report: the judged queries, and the resamples of its bootstrap."""

    dataset: str | None = _recorded("dataset")
    resamples: int | None = _recorded("resamples")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyringFacts(_Facts):
    """The facts in the manifest of a keyring: the random name of its keys, and the hash of each of its `files`."""

    key: str | None = _recorded("key")
    files: Mapping[str, str] | None = _recorded("files")


@dataclass(frozen=True, slots=True, kw_only=True)
class CiphertextFacts(_Facts):
    """The facts in the manifest of encrypted vectors.

    `key` names the keys, `store` is a keyed hash of the store that only the holder of the secret key can compute,
    `norm_bound` a power of 2 that no vector's norm is above. Translated ones have the `norm` to bring the decrypted
    vectors to, the `mean` about which that is done, if it is (see `migrate.stitch.scores`), and the spec of the
    `stitch`. `files` have their hashes.
    """

    key: str | None = _recorded("key")
    store: str | None = _recorded("store")
    norm_bound: float | None = _recorded("norm bound")
    norm: float | None = _recorded("norm")
    mean: Sequence[float] | None = _recorded("mean")
    stitch: str | None = _recorded("stitch")
    files: Mapping[str, str] | None = _recorded("files")


_FACTS: Final[Mapping[Kind, type[_Facts]]] = {
    "store": StoreFacts,
    "stitch": StitchFacts,
    "report": ReportFacts,
    "keyring": KeyringFacts,
    "ciphertext": CiphertextFacts,
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """The provenance of an artefact.

    `model` is the model whose space the vectors are in, `source_model` the one they came from. Of a stitch, whichever
    way it maps, `model` is the one that is moved to and `source_model` that of the store. `inputs` maps the name of
    what was read to a SHA-256; `counts` and `details` belong to the kind. `details` is what the file holds, facts that
    this version does not know included; `store`, `stitch` and `report` are what it means.
    """

    kind: Kind
    model: ModelIdentity | None = None
    source_model: ModelIdentity | None = None
    seed: int | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    created: str = field(default_factory=creation_date)
    tool_version: str = __version__
    format_version: int = FORMAT_VERSION

    @property
    def store(self) -> StoreFacts:
        """The details of a store, typed."""
        return StoreFacts.parse(self.details, self._name)

    @property
    def stitch(self) -> StitchFacts:
        """The details of a stitch, typed."""
        return StitchFacts.parse(self.details, self._name)

    @property
    def report(self) -> ReportFacts:
        """The details of a report, typed."""
        return ReportFacts.parse(self.details, self._name)

    @property
    def keyring(self) -> KeyringFacts:
        """The details of a keyring, typed."""
        return KeyringFacts.parse(self.details, self._name)

    @property
    def ciphertext(self) -> CiphertextFacts:
        """The details of encrypted vectors, typed."""
        return CiphertextFacts.parse(self.details, self._name)

    @property
    def chosen_by(self) -> tuple[str, ...]:
        """Digests of the queries that chose documents for a stitch or a store."""
        if self.kind == "stitch":
            return self.stitch.chosen_by
        return self.store.chosen_by

    @property
    def _name(self) -> str:
        return f"the manifest of the {self.kind}"

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file, with a SHA-256 of all other fields, by which damage is noticed."""
        content = asdict(self)
        models = {name: content[name] for name in ("model", "source_model") if content[name] is not None}
        requested = {name: dimensions for name, model in models.items() if (dimensions := model.pop("dimensions"))}
        if requested:
            content["details"] = {**content["details"], _DIMENSIONS: requested}
        return {**content, _OWN_HASH: _content_hash(content)}

    def write(self, folder: Path) -> None:
        """Write `MANIFEST_NAME` into `folder`, or beside what is there."""
        write_json(beside(folder) / MANIFEST_NAME, self.as_json())


def _content_hash(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of facts as they are read back from JSON, whatever their order in the file."""
    # JSON makes lists of tuples and texts of keys: what is written has to hash as what will be read.
    read_back = json.loads(json.dumps(content))
    return hashlib.sha256(json.dumps(read_back, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def artefact_kind(folder: Path) -> str | None:
    """Return what the manifest of a folder says that it is; None where there is none that can be read."""
    try:
        content = read_json(beside(folder) / MANIFEST_NAME)
    except (OSError, MalformedError):
        return None
    kind = content.get("kind") if isinstance(content, dict) else None
    if not isinstance(kind, str):
        return None
    return kind


def refuse_artefact(folder: Path) -> None:
    """Make sure that a folder for several outputs is not one itself, which they would lie in.

    Raises UsageError: it is a stitch or a store.
    """
    kind = artefact_kind(folder)
    if kind is not None:
        raise UsageError(f"{folder}: this is a {kind}, not a folder for several outputs; choose another output")


def read_manifest(folder: Path, kind: Kind, name: str = MANIFEST_NAME) -> Manifest:
    """Read the manifest of a folder, in the file of this name.

    Raises ManifestError: there is none, it is of another kind or format version, or damaged. OutputError: the operating
    system refused.
    """
    path = beside(folder) / name
    try:
        content = read_json(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ManifestError(f"{folder}: no {kind} here: there is no {name} in it; check the path") from error
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the permissions") from error
    except MalformedError as error:
        raise _not_json(path, error) from error
    return _checked(content, kind, path)


def parse_manifest(payload: bytes, kind: Kind, path: Path) -> Manifest:
    """Return the manifest that a database keeps as the content of a file; raises as `read_manifest`."""
    try:
        content = parse_json(payload)
    except MalformedError as error:
        raise _not_json(path, error) from error
    return _checked(content, kind, path)


def _not_json(path: Path, error: MalformedError) -> ManifestError:
    return ManifestError(f"{path}: not valid JSON ({error}); the file is damaged, copy or make it again")


def _checked(content: Any, kind: Kind, path: Path) -> Manifest:
    """Return the manifest of this content, which a file at `path` holds."""
    named = content.get("kind") if isinstance(content, dict) else None
    if named != kind:
        actual = "something else"
        if isinstance(named, str):
            actual = f"a {named}"
        raise ManifestError(f"{path.parent}: this is {actual}, not a {kind}; give the folder of a {kind}")
    # Before the hash is looked at: another version may take it of other fields, and that is no damage.
    if content.get("format_version") != FORMAT_VERSION:
        raise ManifestError(
            f"{path}: has format version {reprlib.repr(content.get('format_version'))}, but this version reads "
            f"{FORMAT_VERSION}; it was written by lead-migrate {content.get('tool_version', '?')!s:.20}, install "
            "that version or a newer one"
        )
    _check_content(path, content, kind)
    try:
        manifest = typed(Manifest, _with_dimensions(expect(content, _REQUIRED)))
        _check_counts(manifest.counts)
    except MalformedError as error:
        raise ManifestError(
            f"{path}: not the fields of a {kind} manifest ({error}); the file is damaged, copy or make it again"
        ) from error
    _FACTS[kind].parse(manifest.details, str(path))
    return manifest


def _with_dimensions(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a manifest with the requested dimensions where they belong, in its models."""
    details = _with_present_names(expect(content["details"], {}))
    requested = expect(details.pop(_DIMENSIONS, {}), {})
    models = {name: {**expect(content.get(name), {}), "dimensions": number} for name, number in requested.items()}
    return {**content, "details": details, **models}


def _with_present_names(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return details in which hashes have the names that they have now, those of a whole store too."""
    present = present_names(details)
    for name in ("fingerprint", "content"):
        if isinstance(present.get(name), dict):
            present[name] = present_names(present[name])
    return present


def _check_counts(counts: Mapping[str, int]) -> None:
    negative = next((name for name, count in counts.items() if count < 0), None)
    if negative is not None:
        raise MalformedError(f"'counts.{negative}' must be a count, and is {counts[negative]}")


def _check_content(path: Path, content: dict[str, Any], kind: Kind) -> None:
    """Check the facts against their own hash, and remove it; older manifests have none."""
    expected = content.pop(_OWN_HASH, None)
    if expected is not None and expected != (actual := _content_hash(content)):
        raise ManifestError(
            f"{path}: the content does not match its own SHA-256 ({str(expected)[:12]}..., now "
            f"{actual[:12]}...); it was damaged or edited: copy it again, or make the {kind} again"
        )


def find_manifest(folder: Path, kind: Kind, name: str = MANIFEST_NAME) -> Manifest | None:
    """Return the manifest of a folder, or None where there is none; raises as `read_manifest`."""
    if not (beside(folder) / name).exists():
        return None
    return read_manifest(folder, kind, name)
