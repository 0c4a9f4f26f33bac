"""The record of a finished run: the same command says its verdict again, another audit takes over its store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from migrate.audit_report import read_audit
from migrate.audit_report.report import AuditReport, load_report
from migrate.digests import BLAKE3, function_of, hash_file, present_names
from migrate.errors import InputError, LeadMigrateError, OutputError, UsageError
from migrate.files import atomic_file, describe_os_error, sha256_file, write_json
from migrate.manifest import MANIFEST_NAME, artefact_kind
from migrate.reading import MalformedError, expect, read_json
from migrate.stores import open_store
from migrate.stores.base import Store, snapshot_as
from migrate.stores.content import content_of, is_content
from migrate.stores.file_store import as_files
from migrate.stores.switching import BESIDE
from migrate.work.jobs import Configuration, changed_names
from migrate.work.outputs import RunState

RECORD = "run.json"
_VERSION = 4
_OF_MANIFESTS = 2
_OLDER = 3
"""Earlier versions, whose outputs serve another audit, and whose verdict is not said again: the first has the hash of
each output's manifest alone, and the report of either lacks some of what is shown."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The outputs of a finished run that another audit takes over; `changed` names its other inputs."""

    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    changed: Sequence[str] = ()


def note_finished(
    folder: Path,
    made_from: Configuration,
    outputs: Mapping[str, Mapping[str, Any]],
    *,
    force: bool,
) -> None:
    """Leave `RECORD` in the folder of a run: what it was made from, and the hashes of what it wrote.

    `outputs` are files and folders with a manifest, by their names in the folder, with facts
    that JSON can hold. A database may rewrite its files: of its folder there is what the store in it holds.
    """
    details: dict[str, Any] = {
        "version": _VERSION,
        "configuration": made_from.as_json(),
        "audit": dict(made_from.audit),
        "outputs": {
            name: {"files": _hashes(folder / name), "content": _content_of_database(folder / name), "facts": details}
            for name, details in outputs.items()
        },
    }
    with atomic_file(folder / RECORD, force=force) as temporary:
        write_json(temporary, {**details, "sha256": _hash_of(details)})


def find_finished(folder: Path, report: Path, made_from: Configuration, store: Store) -> AuditReport | None:
    """Return what a finished run said; None where there is none, an older tool left it, or its audit was another.

    Raises a UsageError where it is of another store or has other options, an InputError where its record is damaged or
    an output is not as it left it.
    """
    record = _read(folder, made_from, store)
    # Unfinished work means that another audit has begun since, which may have replaced what the record is of.
    if record is None or record["version"] != _VERSION or RunState.read(folder) is not None:
        return None
    if changed_names(record["audit"], made_from.audit):
        return None
    for name, output in record["outputs"].items():
        if _is_of_later_audit(folder / name):
            return None
        _refuse_changed(folder, name, output)
    return load_report(report)


def find_kept(folder: Path, made_from: Configuration, needed: Sequence[str], store: Store) -> Kept:
    """Return what of a finished run serves another audit; nothing without the `needed`. Raises as `find_finished`."""
    record = _read(folder, made_from, store)
    if record is None:
        return Kept()
    present = {name: output for name, output in record["outputs"].items() if (folder / name).exists()}
    if not set(needed) <= present.keys():
        return Kept()
    for name, output in present.items():
        # The audit that is made now replaces it
        if _is_of_later_audit(folder / name):
            continue
        try:
            _refuse_changed(folder, name, output)
        except InputError:
            if RunState.read(folder) is None:
                raise
            return Kept()  # another audit broke off here: its journal says what is there
    outputs = {name: output["facts"] for name, output in present.items()}
    return Kept({**outputs, RECORD: {}}, changed_names(record["audit"], made_from.audit))


def _read(folder: Path, made_from: Configuration, store: Store) -> dict[str, Any] | None:
    """Return the record of a finished run of the same store and options, whatever became of its outputs."""
    path = folder / RECORD
    if not path.is_file():
        return None
    with _damaged(folder):
        record = expect(read_json(path), {"version": int})
        if record["version"] not in (_OF_MANIFESTS, _OLDER, _VERSION):
            return None
        shape = {
            "configuration": {"source": {"fingerprint": Mapping[str, Any]}, "options": Mapping[str, Any]},
            "audit": Mapping[str, Any],
            "outputs": Mapping[str, Mapping[str, Any]],
        }
        expect(record, shape)
        has_one_hash = record["version"] == _OF_MANIFESTS
        if not has_one_hash and record.pop("sha256", None) != _hash_of(record):
            raise MalformedError("one that does not match its own SHA-256")
        hashes: dict[str, Any] = {"sha256": str}
        if not has_one_hash:
            hashes = {"files": Mapping[str, str], "content": Mapping[str, Any] | None}
        for name, output in record["outputs"].items():
            # The name becomes a path: a record that was edited must not lead out of the folder.
            if name in ("", ".", "..") or "/" in name:
                raise MalformedError(f"an output {name!r}")
            expect(output, {"facts": Mapping[str, Any], **hashes})
    earlier = record["configuration"]
    earlier["options"].pop("journal", None)  # of earlier versions
    fingerprint = present_names(earlier["source"]["fingerprint"])
    earlier["source"] = {**earlier["source"], "fingerprint": fingerprint}
    snapshot = snapshot_as(store, fingerprint, store.snapshot())
    now = replace(made_from, source=snapshot.as_json()).as_json()
    differing = changed_names(
        {**earlier["options"], "the store": earlier["source"]}, {**now["options"], "the store": now["source"]}
    )
    if differing:
        raise UsageError(
            f"{folder}: a finished run with other values of {', '.join(differing)} is there; choose another folder, or "
            "replace it with `force=True`"
        )
    return record


@contextmanager
def _damaged(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot read {folder}: {describe_os_error(error)}; check the permissions") from error
    except MalformedError as error:
        raise InputError(
            f"{folder / RECORD}: the record of a finished run cannot be read ({error}), so its verdict is unknown: "
            "repeat the run with `force=True`"
        ) from error


def _hash_of(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _hashes(path: Path, earlier: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Hash of a file, under no name, or of all files in a folder by their paths in it; empty of what is no file.

    Each is by the function of the `earlier` one.
    """
    if not path.is_dir():
        files = [path]
    else:
        files = sorted(inside for inside in path.rglob("*") if not inside.is_dir())
    hashes = {}
    for file in files:
        name = ""
        if file != path:
            name = file.relative_to(path).as_posix()
        if name in earlier:
            function = function_of(earlier[name], f"{file}: {RECORD}")
        else:
            function = BLAKE3
        hashes[name] = ""
        if file.is_file():
            hashes[name] = hash_file(file, function)
    return hashes


def _content_of_database(path: Path) -> dict[str, Any] | None:
    """Return what the store in a folder holds, if it is one of a database; None for files of ours."""
    if not path.is_dir() or artefact_kind(path) != "store":
        return None
    store = open_store(path)
    # Its files have their hashes already.
    if as_files(store) is not None:
        return None
    return content_of(store)


def _is_of_later_audit(path: Path) -> bool:
    """Return whether an output is a report that `audit` has put in the place of the run's, which tells of a migration.

    One that was edited or damaged is none: its numbers do not bear what it says.
    """
    if path.suffix != ".json":
        return False
    with suppress(OSError, MalformedError, LeadMigrateError):
        return read_audit(path).get("migration") is None
    return False


def _refuse_changed(folder: Path, name: str, output: Mapping[str, Any]) -> None:
    """Make sure that each file of an output is the one that the run left, and that there is no other."""
    path = folder / name
    with _damaged(folder):
        if "sha256" in output:  # of an older tool
            manifest = path / MANIFEST_NAME if path.is_dir() else path
            expected = {"": output["sha256"]}
            if manifest.is_file():
                current = {"": sha256_file(manifest)}
            else:
                current = {}
        else:
            expected = output["files"]
            current = _hashes(path, expected) if path.exists() else {}
    different = changed_names(expected, current)
    if not different:
        return
    # a database may rewrite its own files when it is opened: then its records decide
    # What lies beside the store is ours: no database writes that.
    if output.get("content") is not None and not set(BESIDE) & set(different):
        with suppress(LeadMigrateError):
            store = open_store(path)
            if is_content(output["content"], content_of(store), store):
                return
    file = different[0]
    if file not in current:
        event = "is gone"
    elif file in expected:
        event = "was changed"
    else:
        event = "was added"
    more = ""
    if len(different) > 1:
        more = f", and {len(different) - 1:,} other differences"
    raise InputError(
        f"{path / file}: the file {event} since the run finished{more}; its verdict may no longer hold: restore what "
        "it wrote, run audit on what is there, or repeat the run with `force=True`"
    )
