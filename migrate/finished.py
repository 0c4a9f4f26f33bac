"""What a finished run leaves of itself, so that the same command says its verdict again and does nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from migrate.audit.report import AuditReport
from migrate.checkpoint.folder import Configuration, look_at
from migrate.errors import InputError, UsageError
from migrate.files import atomic_file, sha256_file, write_json
from migrate.report.audit import audit_text
from migrate.report.suite import Case, State, Suite, audit_suite

RECORD = "run.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Finished:
    """The verdict's name, the report as text and as CI takes it, and the JSON report as it stands in the folder."""

    outcome: str
    text: str
    suite: Suite
    document: dict[str, Any]


def note_finished(
    folder: Path, report: AuditReport, configuration: Configuration, outputs: Mapping[str, Path], *, force: bool
) -> None:
    """Leave `RECORD` in the folder of a run: what it was made from, what it said, and the hashes of what it wrote."""
    facts = {
        "version": _VERSION,
        "configuration": configuration.as_json(),
        "files": {name: sha256_file(path) for name, path in outputs.items()},
        "outcome": report.verdict.outcome.value,
        "text": audit_text(report),
        "suite": asdict(audit_suite(report)),
    }
    with atomic_file(folder / RECORD, force=force) as aside:
        write_json(aside, facts)


def find_finished(folder: Path, report: Path, configuration: Configuration) -> Finished | None:
    """What a finished run said; None where there is none, or where what it wrote is not what it was.

    Raises
    ------
    UsageError
        There is one, of other inputs or with other options.
    InputError
        Its record is damaged.
    """
    path = folder / RECORD
    if not path.is_file() or look_at(folder) is not None:
        return None
    try:
        facts = json.loads(path.read_bytes())
        if facts["version"] != _VERSION or _is_changed(folder, facts["files"]):
            return None
        _check(folder, facts["configuration"], configuration.as_json())
        suite = facts["suite"]
        cases = [Case(**{**case, "state": State(case["state"])}) for case in suite["cases"]]
        return Finished(
            facts["outcome"], facts["text"], Suite(**{**suite, "cases": cases}), json.loads(report.read_bytes())
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: expected the record of a finished run, found something else; remove it") from error


def _is_changed(folder: Path, files: Mapping[str, str]) -> bool:
    return any(not (folder / name).is_file() or sha256_file(folder / name) != digest for name, digest in files.items())


def _check(folder: Path, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    names = earlier["options"].keys() | now["options"].keys()
    others = sorted(name for name in names if earlier["options"].get(name) != now["options"].get(name))
    others += ["the store"] if earlier["source"] != now["source"] else []
    if others:
        raise UsageError(
            f"{folder}: expected a run of the same inputs and options, found a finished one with other values of "
            f"{', '.join(others)}; choose another folder, or replace it with --force"
        )
