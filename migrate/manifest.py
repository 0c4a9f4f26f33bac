"""Provenance: what an artefact was made from, by which models, with which seed. One JSON file per artefact."""

from __future__ import annotations

import hashlib
import json
import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Self

from migrate import __version__
from migrate.errors import ManifestError, OutputError, StitchError, UsageError
from migrate.files import describe_os_error, write_json
from migrate.reading import MalformedError, expect, read_json, typed

MANIFEST_NAME = "lead-migrate.json"
FORMAT_VERSION = 1

Kind = Literal["store", "stitch", "report", "keyring", "ciphertext"]

_OWN_HASH = "manifest_sha256"
_REQUIRED: Final = dict.fromkeys(("inputs", "counts", "details", "model", "source_model"), Any)


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """An embedding model as an artefact remembers it; two equal identities give equal vectors.

    `normalized` says whether its document vectors are of unit length. `revision` tells apart states of one
    name: a hash of local weights or of a fitted vocabulary; None where the model is known by name alone.
    """

    spec: str
    dim: int
    normalized: bool
    document_prefix: str = ""
    query_prefix: str = ""
    revision: str | None = None


def creation_date() -> str:
    """Now in UTC as ISO 8601, or SOURCE_DATE_EPOCH where it is set, for reproducible bytes."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        moment = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"SOURCE_DATE_EPOCH is {epoch!r}, not seconds since 1970; unset it") from error
    return moment.isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class _Type:
    """What a fact in `details` must be: in words, and the test of it."""

    words: str
    test: Callable[[Any], bool]


_TEXT: Final = _Type("a text", lambda value: isinstance(value, str))
_FLAG: Final = _Type("true or false", lambda value: isinstance(value, bool))
_WHOLE: Final = _Type("a whole number", lambda value: type(value) is int and abs(value) < 1 << 64)
_NUMBER: Final = _Type("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool))
_TABLE: Final = _Type("a table", lambda value: isinstance(value, Mapping))
_TABLE_OR_NULL: Final = _Type("a table or null", lambda value: value is None or isinstance(value, Mapping))
_HASHES: Final = _Type(
    "a table of texts",
    lambda value: isinstance(value, Mapping) and all(isinstance(part, str) for pair in value.items() for part in pair),
)
_TEXTS: Final = _Type(
    "a list of texts", lambda value: isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)
)

_NUMBERS: Final = _Type(
    "a list of numbers",
    lambda value: isinstance(value, list | tuple) and all(isinstance(number, int | float) for number in value),
)


def _fact(key: str, kind: _Type, default: Any = None) -> Any:
    """A field that `details` has under `key`; there is none where it is `default`."""
    return field(default=default, metadata={"key": key, "type": kind})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What `details` says of a kind of artefact; facts that it knows nothing of stay in `details` alone."""

    @classmethod
    def parse(cls, details: Mapping[str, Any], source: str) -> Self:
        """The facts in `details`; `source` names the manifest in errors.

        Raises
        ------
        ManifestError
            A fact is of another type.
        """
        facts = {}
        for fact in fields(cls):
            key, kind = fact.metadata["key"], fact.metadata["type"]
            if key not in details:
                continue
            value = details[key]
            if not kind.test(value):
                raise ManifestError(
                    f"{source}: {key!r} in its details must be {kind.words}, and is {reprlib.repr(value)}; the file is "
                    "damaged, copy or make it again"
                )
            facts[fact.name] = tuple(value) if isinstance(value, list) else value
        return cls(**facts)

    @classmethod
    def unknown(cls, details: Mapping[str, Any]) -> dict[str, Any]:
        """The rest of `details`, which only another version of the tool knows."""
        own = {fact.metadata["key"] for fact in fields(cls)}
        return {key: value for key, value in details.items() if key not in own}

    def as_details(self) -> dict[str, Any]:
        """The facts that there are, as `Manifest.details` holds them."""
        values = {fact.metadata["key"]: getattr(self, fact.name) for fact in fields(self)}
        present = {key: value for key, value in values.items() if value is not None and value != ()}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in present.items()}


MADE_BY_STAMP: Final = "stamp"
"""What a manifest says that was not written with its store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts(_Facts):
    """What the manifest of a store says of it.

    `index` is the name of the file of vectors, `documents_sha256` has the hash of each file that documents are read
    from, by its path, `beside_sha256` that of each file of numbers, one a document, by its name. The others are of a
    store that was translated (`stitch` is the spec, `confidence_lowest` and `confidence_spearman` are of its stitch,
    `fallback` says what took the place of one that reads texts), filled in from the cache, or stamped (`checked`).
    `chosen_by` has digests of the queries that chose documents. `first_tokens` is how many tokens of each text the
    target embedded for the stitch to lean on. `source_state` is of all that the source had but its vectors
    (`migrate.stores.file_store.state_of`), `written_as` is how a store of another kind than the source was asked for
    (`kind`, or the options of a table), `synced` has the date and the counts of the last `sync`. `fields` are those of
    a file beside the index that were named as `text` and `id`. `content` is what a store of nothing but true vectors
    holds (`migrate.stores.content.content_of`), where no hash of a file says it.
    """

    made_by: str | None = _fact("made by", _TEXT)
    index: str | None = _fact("index", _TEXT)
    index_sha256: str | None = _fact("index_sha256", _TEXT)
    documents_sha256: Mapping[str, str] | None = _fact("documents_sha256", _HASHES)
    beside_sha256: Mapping[str, str] | None = _fact("beside_sha256", _HASHES)
    stitch: str | None = _fact("stitch", _TEXT)
    confidence_lowest: float | None = _fact("confidence_lowest", _NUMBER)
    confidence_spearman: float | None = _fact("confidence_spearman", _NUMBER)
    fallback: Mapping[str, Any] | None = _fact("fallback", _TABLE)
    filled_in: str | None = _fact("filled in", _TEXT)
    checked: Mapping[str, Any] | None = _fact("checked", _TABLE_OR_NULL)
    chosen_by: tuple[str, ...] = _fact("chosen by queries", _TEXTS, ())
    first_tokens: int | None = _fact("first tokens", _WHOLE)
    source_state: str | None = _fact("source state", _TEXT)
    written_as: Mapping[str, str] | None = _fact("written as", _HASHES)
    synced: Mapping[str, Any] | None = _fact("synced", _TABLE)
    fields: Mapping[str, str] | None = _fact("fields", _HASHES)
    content: Mapping[str, Any] | None = _fact("content", _TABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StitchFacts(_Facts):
    """What the manifest of a stitch says of it.

    `fingerprint` is of the store that it was fitted on, `sample` says how its documents were drawn, `texts` whether the
    store had any. What is noted when it is saved: `stitch` (the spec), `norm`, `kind_facts`, `selection` and that of
    the `fallback`, the names of its `arrays`, and the SHA-256 of its `files`. `reembedding` is the budget that it was
    fitted again with. `chosen_by` has digests of the queries that chose documents. `prior` is the SHA-256 of the stitch
    that the fit might lean on, `first_tokens` how many tokens of each text it leans on.
    """

    fingerprint: Mapping[str, Any] | None = _fact("fingerprint", _TABLE)
    direction: str | None = _fact("direction", _TEXT)
    sample: Mapping[str, Any] | None = _fact("sample", _TABLE)
    texts: bool | None = _fact("texts", _FLAG)
    stitch: str | None = _fact("stitch", _TEXT)
    norm: float | None = _fact("norm", _NUMBER)
    kind_facts: Mapping[str, Any] | None = _fact("facts", _TABLE)
    selection: Mapping[str, Any] | None = _fact("selection", _TABLE)
    fallback: Mapping[str, Any] | None = _fact("fallback", _TABLE)
    arrays: tuple[str, ...] = _fact("arrays", _TEXTS, ())
    files: Mapping[str, str] | None = _fact("files", _HASHES)
    reembedding: Mapping[str, Any] | None = _fact("re-embedding", _TABLE)
    chosen_by: tuple[str, ...] = _fact("chosen by queries", _TEXTS, ())
    prior: str | None = _fact("prior", _TEXT)
    first_tokens: int | None = _fact("first tokens", _WHOLE)

    @property
    def fitted_on(self) -> Mapping[str, Any]:
        """The fingerprint, which every stitch has.

        Raises
        ------
        StitchError
            This one has none, or it does not say the dimension.
        """
        if self.fingerprint is None or not _WHOLE.test(self.fingerprint.get("dim")):
            raise StitchError("the manifest of the stitch does not say which store it is for; fit it again")
        return self.fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFacts(_Facts):
    """What the manifest of an audit's report says: the judged queries, and the resamples of its bootstrap."""

    dataset: str | None = _fact("dataset", _TEXT)
    resamples: int | None = _fact("resamples", _WHOLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyringFacts(_Facts):
    """What the manifest of a keyring says of it: the random name of its keys, and the SHA-256 of its `files`."""

    key: str | None = _fact("key", _TEXT)
    files: Mapping[str, str] | None = _fact("files", _HASHES)


@dataclass(frozen=True, slots=True, kw_only=True)
class CiphertextFacts(_Facts):
    """What the manifest of encrypted vectors says of them.

    `key` names the keys, `store` is a keyed hash of the store that only the holder of the secret key can compute,
    `norm_bound` a power of 2 that no vector's norm is above. Translated ones have the `norm` to bring the decrypted
    vectors to, the `mean` about which that is done, if it is (see `migrate.stitch.scores`), and the spec of the
    `stitch`. `files` have their SHA-256.
    """

    key: str | None = _fact("key", _TEXT)
    store: str | None = _fact("store", _TEXT)
    norm_bound: float | None = _fact("norm bound", _NUMBER)
    norm: float | None = _fact("norm", _NUMBER)
    mean: Sequence[float] | None = _fact("mean", _NUMBERS)
    stitch: str | None = _fact("stitch", _TEXT)
    files: Mapping[str, str] | None = _fact("files", _HASHES)


_FACTS: Final[Mapping[Kind, type[_Facts]]] = {
    "store": StoreFacts,
    "stitch": StitchFacts,
    "report": ReportFacts,
    "keyring": KeyringFacts,
    "ciphertext": CiphertextFacts,
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an artefact was made from.

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
        return self.stitch.chosen_by if self.kind == "stitch" else self.store.chosen_by

    @property
    def _name(self) -> str:
        return f"the manifest of the {self.kind}"

    def as_json(self) -> dict[str, Any]:
        """The content of the file, with a SHA-256 of all other fields, by which `read_manifest` detects damage."""
        facts = asdict(self)
        return {**facts, _OWN_HASH: _content_hash(facts)}

    def write(self, folder: Path) -> None:
        """Write `MANIFEST_NAME` into `folder`."""
        write_json(folder / MANIFEST_NAME, self.as_json())


def _content_hash(facts: Mapping[str, Any]) -> str:
    """SHA-256 of facts as they are read back from JSON, independent of spaces and order in the file."""
    read_back = json.loads(json.dumps(facts))
    return hashlib.sha256(json.dumps(read_back, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def artefact_kind(folder: Path) -> str | None:
    """What the manifest of a folder says that it is; None where there is none that can be read."""
    try:
        facts = read_json(folder / MANIFEST_NAME)
    except (OSError, MalformedError):
        return None
    kind = facts.get("kind") if isinstance(facts, dict) else None
    return kind if isinstance(kind, str) else None


def read_manifest(folder: Path, kind: Kind) -> Manifest:
    """Read the manifest of a folder.

    Raises
    ------
    ManifestError
        There is none, it is not JSON, it is of another kind, or of a newer format version; a fact in it is of another
        type; or its content does not match the hash in it.
    OutputError
        The operating system refused.
    """
    path = folder / MANIFEST_NAME
    try:
        facts = read_json(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ManifestError(
            f"{folder}: no {kind} here, for there is no {MANIFEST_NAME} in it; check the path"
        ) from error
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the permissions") from error
    except MalformedError as error:
        raise ManifestError(f"{path}: not valid JSON ({error}); the file is damaged, copy or make it again") from error
    if not isinstance(facts, dict) or facts.get("kind") != kind:
        named = facts.get("kind") if isinstance(facts, dict) else None
        actual = f"a {named}" if isinstance(named, str) else "something else"
        raise ManifestError(f"{folder}: expected a {kind}, found {actual}; give the folder of a {kind}")
    if facts.get("format_version") != FORMAT_VERSION:
        raise ManifestError(
            f"{path}: has format version {reprlib.repr(facts.get('format_version'))}, but this version reads "
            f"{FORMAT_VERSION}; it was written by lead-migrate {facts.get('tool_version', '?')!s:.20}, install "
            "that version or a newer one"
        )
    _check_content(path, facts, kind)
    try:
        manifest = typed(Manifest, expect(facts, _REQUIRED))
        _check_counts(manifest.counts)
    except MalformedError as error:
        raise ManifestError(
            f"{path}: not the fields of a {kind} manifest ({error}); the file is damaged, copy or make it again"
        ) from error
    _FACTS[kind].parse(manifest.details, str(path))
    return manifest


def _check_counts(counts: Mapping[str, int]) -> None:
    negative = next((name for name, count in counts.items() if count < 0), None)
    if negative is not None:
        raise MalformedError(f"'counts.{negative}' must be a count, and is {counts[negative]}")


def _check_content(path: Path, facts: dict[str, Any], kind: Kind) -> None:
    """Check the facts against their own hash, and remove it; older manifests have none."""
    expected = facts.pop(_OWN_HASH, None)
    if expected is not None and expected != (actual := _content_hash(facts)):
        raise ManifestError(
            f"{path}: the content does not match its own SHA-256 ({str(expected)[:12]}..., now "
            f"{actual[:12]}...); it was damaged or edited: copy it again, or make the {kind} again"
        )


def find_manifest(folder: Path, kind: Kind) -> Manifest | None:
    """The manifest of a folder, or None where there is none.

    Raises
    ------
    ManifestError
        As `read_manifest`, except where there is none.
    """
    return read_manifest(folder, kind) if (folder / MANIFEST_NAME).exists() else None
