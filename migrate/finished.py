"""What a finished run leaves of itself: the same command says its verdict again, another audit takes over its store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from migrate.audit.report import AuditReport
from migrate.checkpoint.folder import Configuration, look_at
from migrate.errors import InputError, UsageError
from migrate.files import atomic_file, sha256_file, write_json
from migrate.manifest import MANIFEST_NAME
from migrate.report.audit import audit_text
from migrate.report.suite import Case, State, Suite, audit_suite
from migrate.report.summary import audit_summary

RECORD = "run.json"
_VERSION = 2


@dataclass(frozen=True, slots=True)
class RunConfiguration:
    """What a run is made from: the `work` of its stitch and stores, and what the `audit` has besides, as JSON."""

    work: Configuration
    audit: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finished:
    """The verdict's name, the report as text and as CI takes it, and the JSON report as it stands in the folder."""

    outcome: str
    summary: str
    details: str
    suite: Suite
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kept:
    """What a run takes over from a finished one in its folder: facts of each output by its name.

    `changed` names what else the new run is audited with.
    """

    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    changed: Sequence[str] = ()


def note_finished(
    folder: Path,
    report: AuditReport,
    made_from: RunConfiguration,
    outputs: Mapping[str, Mapping[str, Any]],
    *,
    page: Path,
    force: bool,
) -> None:
    """Leave `RECORD` in the folder of a run: what it was made from, what it said, and the hashes of what it wrote.

    `page` shows the report. `outputs` are files and folders with a manifest, by their names in the folder, with facts
    that JSON can hold.
    """
    hashes = {name: _hash_of(folder / name) for name in outputs}
    facts = {
        "version": _VERSION,
        "configuration": made_from.work.as_json(),
        "audit": made_from.audit,
        "outputs": {name: {"sha256": hashes[name], "facts": facts} for name, facts in outputs.items()},
        "outcome": report.verdict.outcome.value,
        "summary": audit_summary(report, page=page),
        "details": audit_text(report),
        "suite": asdict(audit_suite(report)),
    }
    with atomic_file(folder / RECORD, force=force) as aside:
        write_json(aside, facts)


def find_finished(folder: Path, report: Path, made_from: RunConfiguration) -> Finished | None:
    """What a finished run said; None where there is none, what it wrote has changed, or its audit was another.

    Raises
    ------
    UsageError
        There is one, of another store or with other options.
    InputError
        Its record is damaged.
    """
    facts = _read(folder, made_from)
    if facts is None or look_at(folder) is not None:
        return None
    with _damaged(folder):
        if _changed(facts["audit"], made_from.audit):
            return None
        suite = facts["suite"]
        cases = [Case(**{**case, "state": State(case["state"])}) for case in suite["cases"]]
        return Finished(
            facts["outcome"],
            facts["summary"],
            facts["details"],
            Suite(**{**suite, "cases": cases}),
            json.loads(report.read_bytes()),
        )


def find_kept(folder: Path, made_from: RunConfiguration, needed: Sequence[str]) -> Kept:
    """What of a finished run serves another audit; nothing where one of the `needed` outputs is not as it left it.

    Raises as `find_finished`.
    """
    facts = _read(folder, made_from)
    if facts is None:
        return Kept()
    with _damaged(folder):
        outputs = {name: output["facts"] for name, output in facts["outputs"].items() if (folder / name).exists()}
        if not set(needed) <= outputs.keys():
            return Kept()
        return Kept({**outputs, RECORD: {}}, _changed(facts["audit"], made_from.audit))


def _read(folder: Path, made_from: RunConfiguration) -> dict[str, Any] | None:
    """The record of a finished run whose outputs are as it left them, or are gone."""
    path = folder / RECORD
    if not path.is_file():
        return None
    with _damaged(folder):
        facts: dict[str, Any] = json.loads(path.read_bytes())
        if facts["version"] != _VERSION:
            return None
        for name, output in facts["outputs"].items():
            if (folder / name).exists() and _hash_of(folder / name) != output["sha256"]:
                return None
        earlier, now = facts["configuration"], made_from.work.as_json()
        others = [
            *_changed(earlier["options"], now["options"]),
            *(["the store"] * (earlier["source"] != now["source"])),
        ]
    if others:
        raise UsageError(
            f"{folder}: expected a run of the same inputs and options, found a finished one with other values of "
            f"{', '.join(others)}; choose another folder, or replace it with `force=True`"
        )
    return facts


@contextmanager
def _damaged(folder: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{folder / RECORD}: expected the record of a finished run, found something else; remove it"
        ) from error


def _hash_of(path: Path) -> str:
    """Of a file, or of the manifest of a folder, which has those of the files in it."""
    if path.is_dir():
        path /= MANIFEST_NAME
    return sha256_file(path) if path.is_file() else ""


def _changed(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in earlier.keys() | now.keys() if earlier.get(name) != now.get(name))
