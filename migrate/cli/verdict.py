"""The model of a store, as commands load it, and how they end: by a verdict, or as there is nothing to move."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from migrate.audit.bounds import FEWEST_QUERIES
from migrate.audit.verdict import FEWEST_DOCUMENTS
from migrate.check.already import is_embedded_by, is_recorded_of
from migrate.check.facts import check_revision
from migrate.cli.inputs import load_model
from migrate.cli.next_step import OLD, advise_switch, command_line, file_of, is_out_of_sight
from migrate.cli.outputs import summary_text, write_reports
from migrate.cli.terminal import PROGRAM, advise, show, show_json
from migrate.display import counted
from migrate.embedders import is_spec_of
from migrate.embedders.base import BUILT_WITH
from migrate.embedders.kinds import kind_of, runs_code, split_spec, takes_dimensions, with_settings
from migrate.errors import InputError, RemoteError, UsageError
from migrate.report.audit_sections import audit_sections
from migrate.report.page import report_page
from migrate.report.suite import audit_suite
from migrate.report.terminal import report_text

if TYPE_CHECKING:
    from migrate.audit.query_set import QuerySet
    from migrate.audit_report.report import AuditReport
    from migrate.cli.options import ModelOptions, Outputs
    from migrate.cli.spending import Spending
    from migrate.embedders.base import Embedder
    from migrate.manifest import ModelIdentity
    from migrate.stores.base import Store

# 2 is what click ends with where a command is mistyped
EXIT_CODES = {"SAFE": 0, "NOT SAFE": 1, "INCONCLUSIVE": 3}


def load_model_of(store: Store, spec: Embedder | str | None, flag: str, options: ModelOptions) -> Embedder:
    """The model that was named, or the one in the store's manifest with the prefixes it was used with."""
    recorded = store.info.recorded_model
    if spec is None and recorded is None:
        raise UsageError(f"{store.info.location} does not say which model it was built with; name it with {flag} SPEC")
    if recorded is None or not is_spec_of(cast("str | None", spec), recorded):
        embedder = load_model(options, str(spec), state=store.folder)
        embedder.expect_dim(store.info.dim, store.info.location)
        return embedder
    if spec is None:
        refuse_recorded_code(recorded, store.info.location, flag)
    if is_out_of_sight(recorded):
        raise UsageError(
            f"{store.info.location}: its vectors come from {file_of(recorded)}, which is not in the current folder; "
            f"say where it is with {flag} file:PATH"
        )
    embedder = load_model(options, str(spec or recorded.spec), recorded=recorded, state=store.folder)
    embedder.expect_dim(store.info.dim, store.info.location, advice=_advice(spec or recorded.spec, recorded.dim, flag))
    try:
        identity = embedder.identity
    except (InputError, RemoteError) as error:
        raise type(error)(f"{error}; or name the model with {flag} SPEC") from error
    check_revision(store.info.location, recorded, identity)
    return embedder


def source_model_of(store: Store, spec: str | None, model: ModelOptions) -> Embedder | None:
    """The model that was named, or the one that the store says it was built with, where that can be had."""
    recorded = store.info.recorded_model
    # The arm `stay` is an extra: a file that only the maker of the store has must not stop a command for it
    if spec is None and (recorded is None or is_out_of_sight(recorded)):
        return None
    return load_model_of(store, spec, "--source-model", model.for_source())


def _advice(spec: Embedder | str, dim: int, flag: str) -> str:
    """Return what to do where a model gives other dimensions than it is recorded to: a server may give fewer."""
    kind = kind_of(str(spec))
    if kind is None or not kind.takes_dimensions:
        return BUILT_WITH
    return f"if that many were asked for then, name it with {flag} {with_settings(str(spec), {'dimensions': dim})}"


def refuse_recorded_code(model: ModelIdentity, path: Path | str, flag: str) -> None:
    """Make sure that what an artefact remembers of its model does not decide which code runs here."""
    if runs_code(model.spec):
        raise UsageError(
            f"{path}: its model is {model.spec}, whose code does not run just because a file names it; if you trust "
            f"it, add {flag} {model.spec}"
        )


def show_report(
    report: AuditReport, outputs: Outputs, *, page: Path | None, as_json: bool, verbose: bool, force: bool
) -> int:
    """Print the report, write it where it is wanted, and return its exit code; `page` is where it is shown."""
    sections = audit_sections(report)
    # First of all: a disk that is full must not keep the verdict from who waited for it.
    # And a terminal that is gone must not keep the files from him.
    try:
        if as_json:
            show_json(report.document)
        else:
            show(summary_text(report, page), verdict=True)
        if verbose and not as_json:
            show(f"\n{report_text(sections)}", verdict=True)
    finally:
        write_reports(outputs, report.document, lambda: report_page(sections), audit_suite(report), force=force)
    return EXIT_CODES[report.outcome.value]


def warn_of_few(store: Store, reembed: Sequence[str]) -> bool:
    """Say before anything is embedded where a store is too small for an audit to find a translation of it SAFE.

    `reembed` are the arguments of a full re-embed. Returns whether it is.
    """
    count = store.info.count
    if count >= FEWEST_DOCUMENTS:
        return False
    advise(
        f"{count:,} documents are too few for an audit to find a translation SAFE, which takes {FEWEST_DOCUMENTS}; a "
        "full re-embed needs no audit:",
    )
    advise(f"  {PROGRAM} {command_line(['reembed', *reembed])}")
    return True


def warn_of_few_queries(query_set: QuerySet) -> None:
    """Say before anything is embedded where there are too few queries for any verdict."""
    count = len(query_set.distinct)
    if count < FEWEST_QUERIES:
        advise(
            f"{counted(count, 'query', 'queries')} cannot settle a verdict, which needs at least {FEWEST_QUERIES}: "
            "what is embedded for it shows nothing; give more (--judged), or --queries synthetic"
        )


def stop_if_same(kind: str, store: Store, embedder: Embedder, *, paid: Spending | None = None, as_json: bool) -> None:
    """Say that there is nothing to migrate, and end with 0, where the manifest shows it.

    Once the costs are agreed to, `paid` is what is spent, and some texts that are embedded may show it too.
    """
    if paid is None:
        is_same = is_recorded_of(store, embedder)
    else:
        is_same = is_embedded_by(store, embedder)
    if not is_same:
        if paid is None:
            _advise_cut(store, embedder)
        return
    if paid is not None:
        paid.finish()
    spec = embedder.quick_identity().spec
    location = store.info.location
    sentence = f"{location} is of {spec} already: nothing to migrate"
    # An assessment writes nothing anyhow
    if kind != "assess":
        sentence += ", and nothing is written"
    if as_json:
        same = {"store": location, "model": spec, "nothing_to_migrate": sentence}
        show_json(same, kind=kind)
    else:
        show(sentence)
        advise_switch(OLD, None, location)
    raise click.exceptions.Exit


def _advise_cut(store: Store, embedder: Embedder) -> None:
    """Print the command that costs nothing where a store is of the same model with more dimensions."""
    recorded = store.info.recorded_model
    profile = embedder.profile
    if recorded is None or profile.dim is None or profile.dim >= recorded.dim or not takes_dimensions(recorded.spec):
        return
    names = [split_spec(spec)[1].rpartition("/")[2].lower() for spec in (recorded.spec, profile.spec)]
    if names[0] == names[1]:
        advise(
            f"the store is of this model with {recorded.dim:,} dimensions, and its vectors can be cut to "
            f"{profile.dim:,} without a cost:"
        )
        advise(
            f"  {PROGRAM} {command_line(['translate', store.info.location, '--dimensions', str(profile.dim)])} -o NEW"
        )
