"""What the judging commands share: the questions, the model of a store, and how a verdict leaves the process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from migrate.cli.next_step import file_of, is_out_of_sight
from migrate.cli.options import SYNTHETIC
from migrate.cli.terminal import show, show_json

if TYPE_CHECKING:
    from migrate.audit.query_set import QuerySet
    from migrate.audit.report import AuditReport
    from migrate.cli.options import CI, ModelOptions, Outlets
    from migrate.embedders.base import Embedder
    from migrate.finished import Finished
    from migrate.manifest import ModelIdentity
    from migrate.stores.base import Store
    from migrate.vectors import Progress

_EXIT_CODES = {"SAFE": 0, "NOT SAFE": 1, "INCONCLUSIVE": 3}


def load_asked(
    beir: str | None, queries: str | None, store: Store, *, split: str, parent_field: str, seed: int, progress: Progress
) -> QuerySet:
    """The queries of --beir or of --queries.

    Raises
    ------
    DatasetError, RemoteError, OutputError, LockedError, InconclusiveError, StoreError
        As `load_questions`, `load_unjudged` and `synthetic_queries`.
    """
    from migrate.audit.query_set import load_questions, load_unjudged, synthetic_queries

    if queries is None:
        return load_questions(str(beir), split=split, progress=progress)
    if queries == SYNTHETIC:
        return synthetic_queries(store, parent_field=parent_field, seed=seed)
    return load_unjudged(Path(queries))


def asked_paths(beir: str | None, queries: str | None) -> list[Path]:
    """Where the queries lie that --beir or --queries names.

    Raises
    ------
    UsageError
        Neither is given, or both.
    """
    from migrate.errors import UsageError

    if beir is None and queries is None:
        raise UsageError(
            "expected queries, found none: name judged ones with --beir DIR, or give any with --queries FILE, or have "
            "them made with --queries synthetic"
        )
    if beir is not None and queries is not None:
        raise UsageError("--beir and --queries: expected one of them, found both; leave one out")
    return [Path(named) for named in (beir, queries) if named not in (None, SYNTHETIC)]


def load_model_of(store: Store, spec: str | None, flag: str, options: ModelOptions) -> Embedder:
    """The model that was named, or the one in the store's manifest with the prefixes it was used with.

    Raises
    ------
    UsageError
        Neither is there, or the store's own is a file that is not in the current folder.
    VectorError
        The model's vectors are of another dimension than the store's.
    InputError, RemoteError
        The store's own model cannot be loaded.
    StoreError
        The store's own model is not what it was: its weights or its vocabulary have changed.
    """
    from migrate.check.facts import check_revision
    from migrate.errors import InputError, RemoteError, UsageError
    from migrate.stores.file_store import folder_of

    known = store.info.manifest.model if store.info.manifest else None
    if spec is None and known is None:
        raise UsageError(f"{store.info.location} does not say which model it was built with; name it with {flag} SPEC")
    if known is None or spec not in (None, known.spec):
        embedder = options.load(str(spec), state=folder_of(store))
        embedder.expect_dim(store.info.dim, str(store.info.location))
        return embedder
    if spec is None:
        refuse_recorded_code(known, store.info.location, flag)
    if is_out_of_sight(known):
        raise UsageError(
            f"{store.info.location}: expected {file_of(known)}, the vectors that it is of, in the current folder, "
            f"found none; say where they are with {flag} file:PATH"
        )
    embedder = options.as_recorded(known).load(known.spec, state=folder_of(store))
    embedder.expect_dim(store.info.dim, str(store.info.location))
    try:
        identity = embedder.identity
    except (InputError, RemoteError) as error:
        raise type(error)(f"{error}; or name the model with {flag} SPEC") from error
    check_revision(store.info.location, known, identity)
    return embedder


def refuse_recorded_code(model: ModelIdentity, path: Path, flag: str) -> None:
    """Make sure that what an artefact remembers of its model does not decide which code runs here.

    Raises
    ------
    UsageError
        It is of a kind whose name says so, such as `langchain:`.
    """
    from migrate.embedders.kinds import runs_code
    from migrate.errors import UsageError

    if runs_code(model.spec):
        raise UsageError(
            f"{path}: its model is {model.spec}, whose code is not run on the word of a file; if you trust it, add "
            f"{flag} {model.spec}"
        )


def show_report(report: AuditReport, outlets: Outlets, *, force: bool, as_json: bool) -> int:
    """Print the report, write it where it is wanted, and return its exit code."""
    from migrate.files import atomic_file, write_bytes, write_json
    from migrate.report.audit import audit_text
    from migrate.report.document import audit_document
    from migrate.report.html import audit_page
    from migrate.report.suite import audit_suite

    document = audit_document(report)
    # First of all: a disk that is full must not keep the verdict from who waited for it.
    # And a terminal that is gone must not keep the files from him.
    try:
        if as_json:
            show_json(document)
        else:
            show(audit_text(report), verdict=True)
    finally:
        if outlets.report is not None:
            with atomic_file(outlets.report, force=force) as aside:
                write_json(aside, document)
        if outlets.html is not None:
            with atomic_file(outlets.html, force=force) as aside:
                write_bytes(aside, audit_page(report).encode())
        outlets.ci.leave(audit_suite(report), force=force)
    return _EXIT_CODES[report.verdict.outcome.value]


def show_finished(finished: Finished, ci: CI, *, force: bool, as_json: bool) -> int:
    """Print what a finished run said, write what CI reads, and return its exit code."""
    if as_json:
        show_json(finished.document)
    else:
        show(finished.text, verdict=True)
    ci.leave(finished.suite, force=force)
    return _EXIT_CODES[finished.outcome]
