"""`lead-migrate status`: where the migration of a file of settings stands, by what its commands have written."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from migrate.audit_report import read_audit
from migrate.audit_report.names import TRANSLATED
from migrate.cli.configuration import read_migration
from migrate.cli.next_step import next_line
from migrate.cli.progress import progress_bar
from migrate.cli.project.settings import CONFIGURATION, FILE, MigrationSettings
from migrate.cli.terminal import PROGRAM, advise, show, show_json
from migrate.embedders.kinds import parse_spec, split_settings, split_spec
from migrate.embedders.weights import ModelSource, weights_revision
from migrate.errors import LeadMigrateError, UsageError
from migrate.facts import document
from migrate.files import sha256_file
from migrate.finished import RECORD
from migrate.manifest import MADE_BY_STAMP, Manifest, ModelIdentity, artefact_kind, read_manifest
from migrate.outcome import Outcome
from migrate.progress import Progress
from migrate.reading import MalformedError
from migrate.report.terminal import facts_text
from migrate.steps.sync.changes import find_changes
from migrate.stores import open_store
from migrate.stores.all_true import TRUE, is_all_true, is_made_from_another
from migrate.stores.base import Store, difference_from
from migrate.stores.content import content_of, is_content
from migrate.stores.registry import absolute_location, find_exchange
from migrate.stores.switching import Record, why_no_switch
from migrate.work.outputs import RunState


@dataclass(frozen=True, slots=True)
class Status:
    """The artefacts of a migration, None where one is not there, what is stale about them, and the next command.

    `next_command` are the words after the program's name, None where a person has to decide; `hint` says what.
    """

    store: Mapping[str, Any]
    stitch: Mapping[str, Any] | None = None
    new: Mapping[str, Any] | None = None
    verdict: Mapping[str, Any] | None = None
    switched: Mapping[str, Any] | None = None
    stale: Sequence[str] = ()
    next_command: Sequence[str] | None = None
    hint: str = ""


@dataclass(slots=True)
class _Findings:
    """Artefacts that are out of step with what they were made from, and the next command, which mends the first."""

    stale: list[str] = field(default_factory=list)
    next_command: Sequence[str] | None = None
    hint: str = ""
    is_settled: bool = False

    def add(self, sentence: str, *next_command: str) -> None:
        """Note a sentence, and the command that mends what it says; none where only the file can be corrected."""
        self.stale.append(sentence)
        self.lead_to(next_command or None)

    def lead_to(self, next_command: Sequence[str] | None, hint: str = "") -> None:
        """Let this be the next command, unless something before it was out of step."""
        if not self.is_settled:
            self.next_command = next_command
            self.hint = hint
        self.is_settled = True


def command(as_json: bool) -> None:
    """Say where the migration stands."""
    path = click.get_current_context().meta.get(CONFIGURATION)
    if path is None:
        raise UsageError(
            f"no {FILE} and no pyproject.toml with [tool.lead-migrate] here or in a folder above; write one: "
            f"{PROGRAM} init STORE"
        )
    migration = read_migration(path)
    if migration.store is None or migration.new is None:
        lacking = "store" if migration.store is None else "output"
        raise UsageError(f"{path}: there is no {lacking} in it; add the key, or write a file by {PROGRAM} init STORE")
    with progress_bar() as progress:
        status = examine(migration, migration.store, migration.new, progress)
    if as_json:
        next_command = None
        if status.next_command is not None:
            next_command = next_line(status.next_command).removeprefix("next: ")
        facts = {name: getattr(status, name) for name in ("store", "stitch", "new", "verdict", "switched", "stale")}
        show_json(document("status", {"file": os.path.relpath(path), **facts, "next": next_command}))
        return
    show(facts_text([("file", os.path.relpath(path)), *_rows(status)]))
    if status.hint:
        advise(status.hint)
    if status.next_command is not None:
        advise(next_line(status.next_command))


def examine(migration: MigrationSettings, store: str, new: str, progress: Progress) -> Status:
    """Read what the commands of a migration have left, and compare each with what it was made from.

    `store` and `new` are the locations of the old and of the new store. Reads both stores whole where both are there.
    """
    with suppress(LeadMigrateError):
        exchange = find_exchange(absolute_location(store))
        if exchange is not None and (record := exchange.record()) is not None:
            return _switched(migration, store, new, record)
    try:
        old = open_store(store)
    except LeadMigrateError as error:
        return Status({"location": store, "problem": str(error)}, hint="correct `store` in the file, or restore it")
    facts = {"location": store, **_store_facts(old)}
    if is_made_from_another(old) and same_model(migration.target, old.info.recorded_model):
        return Status(facts, hint="the store is of the target model already: the migration is done")
    if _has_nothing_to_migrate(migration, old) and not Path(new).exists():
        return Status(facts, hint="the store is of the target model already: there is nothing to migrate")
    findings = _Findings()
    stitch, manifest = _stitch(migration, old, findings)
    again = _made_again(migration, stitch, findings)
    try:
        opened = open_store(new)
    except LeadMigrateError as error:
        if Path(new).exists():
            findings.add(f"{new}: {error}", *again)
        else:
            findings.lead_to(*_before_translation(migration, stitch))
        return Status(facts, stitch, stale=findings.stale, next_command=findings.next_command, hint=findings.hint)
    # What is there needs its stitch no more, unless it is itself out of step
    findings.is_settled = False
    _compare_new(migration, old, opened, manifest, findings, again, progress)
    verdict = None
    if is_all_true(opened):
        _lead_to_switch(old, opened, findings)
    else:
        verdict = _verdict(migration, old, opened, findings)
    new_facts = {"location": new, **_store_facts(opened)}
    return Status(facts, stitch, new_facts, verdict, None, findings.stale, findings.next_command, findings.hint)


def _has_nothing_to_migrate(migration: MigrationSettings, old: Store) -> bool:
    """Return whether a store is of the target, as `run` takes its manifest: a stamp counts once it was checked."""
    manifest = old.info.manifest
    if manifest is None or manifest.model is None or other_model(migration.target, manifest.model):
        return False
    return manifest.store.made_by != MADE_BY_STAMP or bool(manifest.store.checked)


def _switched(migration: MigrationSettings, store: str, new: str, record: Record) -> Status:
    """Return the status after a switch, whose record says everything."""
    facts = {name: record.get(name) for name in ("old", "new", "aside", "model", "old_model", "two_stage")}
    findings = _Findings()
    if record["new"] != absolute_location(new):
        findings.add(f"{record['new']} was switched, and the file names {new}")
    model = record["model"]
    is_target = model is not None and _same_spec(migration.target, model)
    if model is not None and migration.target is not None and not is_target:
        findings.add(f"the store answers by {model} now, and the file names {migration.target}")
    hint = f"`{PROGRAM} rollback {shlex.quote(store)}` undoes the switch, `forget` deletes the old store"
    words: Sequence[str] | None = None
    if not findings.stale and record.get("two_stage") is not None:
        words = ("live", "run", store)
    elif not findings.stale and migration.target is not None:
        # As the file names it: an artefact keeps the bare name of a file
        words = ("check", store, "--model", migration.target)
    return Status({"location": store}, switched=facts, stale=findings.stale, next_command=words, hint=hint)


def _store_facts(store: Store) -> dict[str, Any]:
    info = store.info
    facts: dict[str, Any] = {"format": info.kind, "vectors": info.count, "dimension": info.dim}
    facts["model"] = None if info.recorded_model is None else info.recorded_model.spec
    if is_made_from_another(store) and info.manifest is not None:
        facts["true"] = info.manifest.counts.get(TRUE)
        facts["created"] = info.manifest.created
    return facts


def _stitch(
    migration: MigrationSettings, old: Store, findings: _Findings
) -> tuple[dict[str, Any] | None, Manifest | None]:
    """Return the facts of the stitch and its manifest; one on object storage is not looked at."""
    if migration.stitch is None or artefact_kind(Path(migration.stitch)) != "stitch":
        return None, None
    place = migration.stitch
    again = ("fit", "--force")
    try:
        manifest = read_manifest(Path(place), "stitch")
    except LeadMigrateError as error:
        findings.add(str(error), *again)
        return {"location": place, "problem": str(error)}, None
    if manifest.model is not None and (why := other_model(migration.target, manifest.model)):
        findings.add(f"{place} was fitted for {manifest.model.spec}, and {why}", *again)
    difference = difference_from(old, manifest.stitch.fitted_on, old.snapshot())
    if difference is not None:
        findings.add(f"{place} was fitted on another state of the store ({difference})", *again)
    facts = {
        "location": place,
        "spec": manifest.stitch.stitch,
        "model": None if manifest.model is None else manifest.model.spec,
        "pairs": manifest.counts.get("pairs"),
        "created": manifest.created,
    }
    return facts, manifest


def _before_translation(
    migration: MigrationSettings, stitch: Mapping[str, Any] | None
) -> tuple[Sequence[str] | None, str]:
    """Return the command that leads to a new store where there is none, and what is to be known of it."""
    if migration.target is None:
        return None, 'the file names no target; add target = "SPEC", the model to move to'
    if _run_is_unfinished(migration):
        return ("run",), "a run is unfinished; the same command resumes it"
    # `run` leaves its store in its folder, and this one is to be elsewhere
    is_elsewhere = migration.new_place is not None or migration.stitch_place is not None
    if _has_run(migration) and not is_elsewhere:
        # Without it, `run` would not replace what is left of it
        return ("run", "--force"), ""
    if stitch is not None:
        return ("translate",), ""
    if is_elsewhere:
        return ("fit",), ""
    return ("run",), ""


def _has_run(migration: MigrationSettings) -> bool:
    """Return whether a run has come to its end in the folder of the file."""
    return migration.output is not None and (Path(migration.output) / RECORD).exists()


def _run_is_unfinished(migration: MigrationSettings) -> bool:
    """Return whether a run has broken off in the folder of the file, and can be resumed."""
    return migration.output is not None and RunState.read(Path(migration.output)) is not None


def _made_again(migration: MigrationSettings, stitch: Mapping[str, Any] | None, findings: _Findings) -> Sequence[str]:
    """Return the command that makes the new store anew in its place, or what that needs first."""
    if migration.new == migration.full:
        return ("reembed", "--force")
    if migration.new_place is None and _has_run(migration):
        return ("run", "--force")
    if stitch is None:
        return ("fit",)
    return findings.next_command or ("translate", "--force")


def _compare_new(
    migration: MigrationSettings,
    old: Store,
    new: Store,
    stitch: Manifest | None,
    findings: _Findings,
    again: Sequence[str],
    progress: Progress,
) -> None:
    """Note whether the new store is of the target, of the stitch and of the old store as it is."""
    place = str(migration.new)
    manifest = new.info.manifest
    if manifest is None or not is_made_from_another(new):
        findings.add(f"{place} was not translated or embedded by {PROGRAM}; name another place in the file")
        return
    if manifest.model is not None and (why := other_model(migration.target, manifest.model)):
        findings.add(f"{place} is of {manifest.model.spec}, and {why}", *again)
    files = {} if stitch is None else dict(stitch.stitch.files or {})
    used = {name: value for name, value in manifest.inputs.items() if name in files}
    if stitch is not None and used and used != files and stitch.created >= manifest.created:
        findings.add(f"{migration.stitch} was fitted again since {place} was translated", "translate", "--force")
    try:
        counts = find_changes(old, new, all_true=is_all_true(new), progress=progress).counts
    except LeadMigrateError as error:
        findings.add(str(error), *again)
        return
    changes = {
        "added": counts.added,
        "changed": counts.changed,
        "deleted": counts.deleted,
        "with other metadata": counts.metadata or 0,
    }
    if any(changes.values()):
        listed = ", ".join(f"{count:,} {what}" for what, count in changes.items() if count)
        findings.add(f"the store has changed since {place} was made: {listed}", "sync")


def _lead_to_switch(old: Store, new: Store, findings: _Findings) -> None:
    why = why_no_switch(old, new)
    if why is None:
        findings.lead_to(("switch",))
    else:
        findings.lead_to(None, f"no switch: {why}; let your programs open {new.info.location} and ask by its model")


def _verdict(migration: MigrationSettings, old: Store, new: Store, findings: _Findings) -> dict[str, Any] | None:
    """Return what the report says, and note whether it is of these stores and of what the file asks for."""
    place = str(migration.report)
    if migration.report is None or not Path(place).exists():
        findings.lead_to(("run",) if _run_is_unfinished(migration) else ("audit",))
        return None
    # A finished run takes another margin, plan or set of queries by itself, and keeps its stores
    has_run = _has_run(migration)
    try:
        report = read_audit(place)
    except (OSError, MalformedError, LeadMigrateError) as error:
        findings.add(f"{place}: {error}", "audit", "--force")
        return {"report": place, "problem": str(error)}
    again = ("audit",)
    stores = report["stores"]
    is_of_new = is_content(stores.get("translated"), content_of(new), new)
    is_of_old = stores.get("source") is None or is_content(stores["source"], content_of(old), old)
    if not is_of_new:
        findings.add(f"{place} is of another store than {migration.new}, or that changed since", *again)
    if not is_of_old:
        findings.add(f"{place} compares with another state of {migration.store}", *again)
    asked = {"plan": migration.plan or TRANSLATED, "margin": migration.margin, "judged": migration.judged}
    plan = report["plan"]
    figures = report["verdict"]
    found = {"plan": plan["name"], "margin": figures["margin"], "judged": report["dataset"].get("name")}
    for name in _differing(asked, found):
        repeated = ("run",) if has_run and is_of_new and is_of_old else again
        findings.add(f"{place} is for {name} {found[name]}, and the file names {asked[name]}", *repeated)
    bounds = figures[figures["measured"]]
    if plan["name"] != TRANSLATED:
        bounds = report["family"][plan["name"]]
    manifest = report.get("manifest") or {}
    _lead_from(migration, report, old, new, findings)
    return {
        "report": place,
        "outcome": plan["outcome"],
        "plan": plan["name"],
        "provisional": figures["provisional"],
        "measured": figures["measured"],
        "lower": bounds["lower"],
        "margin": figures["margin"],
        "created": manifest.get("created"),
    }


def _differing(asked: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return the names of what a file asks for and a report is not for; what the file leaves out is not asked."""
    differing = []
    for name, value in asked.items():
        if value is None:
            continue
        if name == "judged":
            # A report has the name of the folder, perhaps with the split
            if Path(str(value).partition(":")[0]).name != Path(str(found[name]).partition(":")[0]).name:
                differing.append(name)
        elif name == "plan":
            if str(value).replace("-", " ") != str(found[name]).replace("-", " "):
                differing.append(name)
        elif value != found[name]:
            differing.append(name)
    return differing


def _lead_from(
    migration: MigrationSettings, report: Mapping[str, Any], old: Store, new: Store, findings: _Findings
) -> None:
    """Find the next command after a verdict that holds: the switch if it is allowed, else what the report advises."""
    plan = report["plan"]
    can_serve = plan["name"] == TRANSLATED or plan["name"].startswith("two-stage")
    if plan["outcome"] == Outcome.SAFE and can_serve and not report["verdict"]["provisional"]:
        _lead_to_switch(old, new, findings)
        return
    words = (report.get("recommendation") or {}).get("command")
    if not words:
        findings.lead_to(("report", str(migration.report)))
    elif words[0] == "reembed" and migration.full is not None and not any("--share" in word for word in words):
        # By the file it goes to the place where `switch` looks for it
        findings.lead_to(("reembed",))
    elif migration.folder.resolve() != Path.cwd():
        # The paths of what the report advises are as they were typed beside the file
        findings.lead_to(("report", str(migration.report)))
    else:
        findings.lead_to(tuple(map(str, words)))


def same_model(spec: str | None, model: ModelIdentity | None) -> bool:
    """Return whether a spec may name a model that an artefact records, as far as names tell; no model is loaded."""
    if spec is None or model is None:
        return spec is None and model is not None
    dimensions = split_settings(spec)[1].get("dimensions")
    if dimensions is not None and dimensions != model.dim:
        return False
    return _same_spec(spec, model.spec)


def other_model(spec: str | None, model: ModelIdentity) -> str:
    """Return how the model of a file differs from one that an artefact records; empty where it is the same.

    A file of vectors and a folder are told by their content, as two may have one name; nothing is loaded.
    """
    if not same_model(spec, model):
        return f"the file names {spec}"
    revision = None
    if spec is not None and model.revision is not None:
        kind, name = split_spec(split_settings(spec)[0])
        path = Path(name).expanduser()
        if kind == "file" and path.is_file():
            revision = sha256_file(path)
        elif path.is_dir():
            revision = weights_revision(ModelSource(path.name, path))
    if revision in (None, model.revision):
        return ""
    return f"{spec} has other content now"


def _same_spec(spec: str | None, recorded: str) -> bool:
    if spec is None:
        return False
    names = []
    for text in (spec, recorded):
        bare = split_settings(text)[0]
        try:
            kind, name = parse_spec(bare)
        except UsageError:
            kind, name = split_spec(bare)
        # An artefact keeps the last part of the path of a model
        names.append((kind, Path(name).name))
    return names[0] == names[1]


def _rows(status: Status) -> list[tuple[str, str]]:
    rows = [("store", _store_text(status.store))]
    if status.stitch is not None:
        rows.append(("stitch", _stitch_text(status.stitch)))
    if status.new is not None:
        rows.append(("new store", _store_text(status.new)))
    if status.verdict is not None:
        rows.append(("verdict", _verdict_text(status.verdict)))
    if status.switched is not None:
        switched = status.switched
        rows.append(("switched", f"to {switched['model'] or 'another model'}; the old store is {switched['aside']}"))
    return [*rows, *(("stale", sentence) for sentence in status.stale)]


def _store_text(facts: Mapping[str, Any]) -> str:
    if "problem" in facts:
        return str(facts["problem"])
    if "vectors" not in facts:
        return str(facts["location"])
    text = f"{facts['location']}: {facts['format']}, {facts['vectors']:,} vectors of {facts['dimension']:,} dimensions"
    if facts["model"] is not None:
        text += f", {facts['model']}"
    if "created" in facts:
        text += f", {facts['true'] or 0:,} of them true ones, made {facts['created']}"
    return text


def _stitch_text(facts: Mapping[str, Any]) -> str:
    if "problem" in facts:
        return str(facts["problem"])
    pairs = "" if facts["pairs"] is None else f", {facts['pairs']:,} pairs"
    return f"{facts['location']}: {facts['spec']} to {facts['model']}{pairs}, made {facts['created']}"


def _verdict_text(facts: Mapping[str, Any]) -> str:
    if "problem" in facts:
        return str(facts["problem"])
    provisional = " (provisional)" if facts["provisional"] else ""
    measured = f"{facts['measured']} at least {facts['lower']:.1%}, margin {facts['margin']:.0%}"
    return f"{facts['outcome']}{provisional}: {facts['plan']}, {measured}, {facts['created']} ({facts['report']})"
