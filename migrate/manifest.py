"""Provenance: what an artefact was made from, by which models, with which seed. One JSON file per artefact."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from migrate import __version__
from migrate.errors import ManifestError, OutputError, UsageError
from migrate.files import describe_os_error, is_endless, write_json

MANIFEST_NAME = "lead-migrate.json"
FORMAT_VERSION = 1

Kind = Literal["store", "stitch", "report"]

_OWN_HASH = "manifest_sha256"


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
class Manifest:
    """What an artefact was made from.

    `model` is the model whose space the vectors are in, `source_model` the one they came from. Of a stitch, whichever
    way it maps, `model` is the one that is moved to and `source_model` that of the store. `inputs` maps the name of
    what was read to a SHA-256; `counts` and `details` belong to the kind.
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


def read_manifest(folder: Path, kind: Kind) -> Manifest:
    """Read the manifest of a folder.

    Raises
    ------
    ManifestError
        There is none, it is not JSON, it is of another kind, or of a newer format version; or its
        content does not match the hash in it.
    OutputError
        The operating system refused.
    """
    path = folder / MANIFEST_NAME
    if is_endless(path):
        raise ManifestError(f"{path}: this is a pipe or a device, not a file; make it again")
    try:
        facts = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ManifestError(
            f"{folder}: no {kind} here, for there is no {MANIFEST_NAME} in it; check the path"
        ) from error
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the permissions") from error
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{path}: not valid JSON; the file is damaged, copy or make it again") from error
    if not isinstance(facts, dict) or facts.get("kind") != kind:
        actual = f"a {facts['kind']}" if isinstance(facts, dict) and "kind" in facts else "something else"
        raise ManifestError(f"{folder}: expected a {kind}, found {actual}; give the folder of a {kind}")
    if facts.get("format_version") != FORMAT_VERSION:
        raise ManifestError(
            f"{path}: has format version {facts.get('format_version')!r}, but this version reads "
            f"{FORMAT_VERSION}; it was written by lead-migrate {facts.get('tool_version', '?')}, install "
            "that version or a newer one"
        )
    _check_content(path, facts, kind)
    try:
        for name in ("inputs", "counts", "details"):
            facts[name] = dict(facts[name])
        for name in ("model", "source_model"):
            facts[name] = ModelIdentity(**facts[name]) if facts[name] is not None else None
        return Manifest(**facts)
    except (KeyError, TypeError, ValueError) as error:
        raise ManifestError(
            f"{path}: not the fields of a {kind} manifest ({error}); the file is damaged, copy or make it again"
        ) from error


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
