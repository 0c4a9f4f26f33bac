"""The next command after a check: a stamp, the check of another model, or what repairs the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrate.check import Cause, leave_finding
from migrate.check.stamp import takes_stamp
from migrate.cli.next_step import advise_next, advise_store, may_not_load, path_beside, place_of_full
from migrate.cli.terminal import advise
from migrate.embedders import special_options
from migrate.embedders.kinds import split_settings, takes_dimensions, with_settings
from migrate.errors import LeadMigrateError
from migrate.manifest import MANIFEST_NAME
from migrate.report.characters import printable
from migrate.stores.file_store import as_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migrate.check import Compatibility, Found
    from migrate.stores.base import Store


def lead_on(store: str, spec: str, opened: Store, result: Compatibility) -> None:
    """Print what a check of `spec` leads on to: a stamp of what was found, or a check of the model that it may be."""
    recorded = opened.info.recorded_model
    finding = result.found
    # A stamp would replace a manifest that says the same
    if result.compatible and recorded is not None:
        finding = None
    force = [] if recorded is None else ["--force"]
    is_kept = _keep_finding(opened, finding)
    if finding is not None and is_kept:
        advise_next("stamp", store, "--as-found", *force)
    elif finding is not None and (takes_stamp(opened) or not result.compatible):
        _advise_found(store, spec, opened, finding, force)
    elif result.cause is Cause.SHORTENED and takes_dimensions(result.model.spec):
        advise_next("check", store, f"--model={with_settings(spec, {'dimensions': opened.info.dim})}")
    elif result.cause is Cause.MANIFEST and recorded is not None and not may_not_load(recorded):
        spec = with_settings(recorded.spec, special_options(recorded))
        advise_next("check", store, f"--model={spec}")
    elif takes_stamp(opened) and result.suits_queries:
        advise("the model's queries are right for these vectors all the same, so the store may be stamped")
        advise_next("stamp", store, f"--model={spec}", "--trust", *force)
    elif result.compatible:
        advise_store(store, opened, spec)
    elif not opened.info.has_texts or result.cause is Cause.NOT_IN_FILE:
        advise_next("inspect", store)
    elif not _advise_repair(store, spec, opened, result):
        _advise_move(store, spec, opened, result)


def _advise_found(store: str, spec: str, opened: Store, finding: Found, force: Sequence[str]) -> None:
    """Print the stamp of a model that was found and not kept, or its check where a store takes no stamp."""
    _, typed_settings = split_settings(spec)
    # What was typed of these is what the check has refuted
    defaults = {"dimensions": None, "document_prefix": None, "query_prefix": None}
    spec = with_settings(finding.spec, {**typed_settings, **defaults, **finding.options})
    if takes_stamp(opened):
        advise_next("stamp", store, f"--model={spec}", *force)
    else:
        advise_next("check", store, f"--model={spec}")


def _advise_move(store: str, spec: str, opened: Store, result: Compatibility) -> None:
    """Print the command by which a store of other vectors comes to those of a model."""
    if result.cause in (Cause.MIXED, Cause.OUT_OF_STEP):
        # No stitch leads from two models at once, nor from vectors of other documents
        advise(f"to have all of its vectors from {spec}:")
        advise_next("reembed", store, "--target", spec, "-o", place_of_full(store, spec, opened))
    else:
        advise(f"the store is of another model; what it takes to move it to {spec}:")
        advise_next("assess", store, "--target", spec)


def _advise_repair(store: str, spec: str, opened: Store, result: Compatibility) -> bool:
    """Print the fit of a stitch that repairs a difference, or the check that tries one; whether there is either.

    A manifest that records the store's model would stop the fit.
    """
    cost = result.retrieval
    if cost is None:
        return False
    if cost.stitch is not None:
        advise("a stitch maps the stored vectors to those that the model gives now:")
        if any(finding.name == "manifest" and finding.ok for finding in result.findings):
            files = as_files(opened)
            manifest = "its manifest"
            if files is not None:
                manifest = printable(str(files.folder / MANIFEST_NAME))
            advise(f"first remove {manifest}, which says that the store is of {spec} already")
        advise_next("fit", store, "--target", spec, "--kind", cost.stitch, "-o", path_beside(opened, "stitch"))
        return True
    if cost.repair is None and cost.larger is not None and cost.larger.tries_stitch:
        advise("whether a stitch repairs it, a larger sample tells:")
        advise_next("check", store, f"--model={spec}", "--sample", str(cost.larger.documents), also=("judged",))
        return True
    return False


def _keep_finding(opened: Store, finding: Found | None) -> bool:
    """Keep what was found for a stamp, where there is a place for one; whether it was kept."""
    kept = finding
    if not takes_stamp(opened):
        kept = None
    try:
        # Without one too: a finding of an earlier check would be stamped otherwise
        leave_finding(opened, kept)
    except LeadMigrateError as error:
        if finding is not None:
            advise(f"what was found is not kept for a stamp: {error}")
        return False
    return kept is not None
