"""Lets a new store answer under the name of the old one, once an audit has found it SAFE; and back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from migrate.errors import InputError, StoreError, UsageError
from migrate.files import describe_os_error
from migrate.locations import hide_secrets
from migrate.reading import MalformedError, expect, read_table
from migrate.steps.sync.changes import find_changes
from migrate.stores import open_store
from migrate.stores.all_true import is_all_true, is_as_made
from migrate.stores.base import Store
from migrate.stores.content import content_of, is_content
from migrate.stores.registry import exchange_left, path_in
from migrate.stores.switching import Exchange, Folders, Record, moved
from migrate.vectors import no_progress

REPORT: Final = "report.json"
"""What `run` leaves beside the store that it makes."""

_SAFE: Final = "SAFE"
_ABSENT: Final = {"stores": None, "downstream": None, "provisional": False, "outcome": _SAFE, "plan": None}
"""What a report says that does not have one of these."""
_ALONE: Final = "translated"
_TWO_STAGE: Final = "two-stage "
_NO_PLAN: Final = {"name": _ALONE, "outcome": _SAFE}
_AUDIT_AGAIN: Final = "audit it again with --source and --report FILE, or switch anyway with `unproven=True`"


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch that was done.

    Attributes
    ----------
    old, new
        The locations, as they were given: what was `new` answers under `old` now.
    aside
        Where the old store answers until it is rolled back or forgotten.
    model, old_model
        What queries are to be embedded with now, and were; None where the stores do not say.
    proven
        Whether the new store is known to be SAFE: by a report, or as every vector in it is a true one.
    all_true
        Whether it is for the latter.
    already
        Whether an earlier call had begun it.
    two_stage
        How many of the first documents have to be ranked again by true vectors, as the report is SAFE only so; None
        where the store is by itself.
    """

    old: str
    new: str
    aside: str
    model: str | None
    old_model: str | None
    proven: bool
    all_true: bool = False
    already: bool = False
    two_stage: int | None = None

    @classmethod
    def of(cls, record: Record, *, already: bool = False) -> Switch:
        """What a record says."""
        said = {name: record.get(name) for name in cls.__slots__ if name not in ("already", "all_true")}
        return cls(**said, all_true=bool(record.get("all_true")), already=already)  # type: ignore[arg-type]


def switch_store(
    old: str, new: str, *, report: Path | Mapping[str, Any] | None = None, unproven: bool = False
) -> Switch:
    """Let the store at `new` answer at `old`, and the old one step aside.

    A switch of the same two that was killed is finished; one that is done stays.

    Parameters
    ----------
    old, new
        Locations of stores of one kind, with the same ids.
    report
        The JSON report of an audit that found the new one SAFE, or what stands in it; without, the one that `run` has
        left beside it. A store of nothing but true vectors needs none.
    unproven
        Do without.

    Raises
    ------
    UsageError
        The kind cannot, or not these two; or something else was switched here and is not forgotten yet.
    InputError
        There is no report where one is needed, or it is not SAFE, or provisional, or not of these stores; or these have
        not the same ids, or, of a proven one, texts and metadata.
    StoreError
        Somebody wrote to one of them meanwhile.
    OutputError, RemoteError
        The system or the server refused.
    """
    old, new = hide_secrets(old), hide_secrets(new)
    before = find_exchange(old)
    record = None if before is None else before.record()
    if before is not None and record is not None:
        if record["new"] != new:
            raise UsageError(f"{old}: {record['new']} was switched here before; run rollback or forget of {old} first")
        before.switch(record)
        return Switch.of(record, already=True)
    behind = find_exchange(new)
    if behind is not None and (other := behind.record()) is not None:
        raise moved(new, other["old"])
    old_store, new_store = open_store(old, verify=True), open_store(new, verify=True)
    exchange = _exchange(old_store, new_store)
    contents = content_of(old_store), content_of(new_store)
    if what := _differ(old_store, new_store, contents):
        counts = " and ".join(f"{content['count']:,}" for content in contents)
        raise InputError(
            f"{new}: expected the same {what} as in {old}, found others ({counts} vectors); bring it up to "
            "date with `sync`, or translate again"
        )
    if _is_made_from(old_store, contents[1]):
        raise UsageError(
            f"{old}: expected the old store, found the one that was made from {new}; is the order right? the old store "
            "comes first"
        )
    all_true = report is None and not unproven and _is_full_reembed(old_store, new_store, contents)
    two_stage = None
    if not unproven:
        if not all_true:
            two_stage = _check_report(old_store, new_store, contents, report)
        _refuse_other_documents(old_store, new_store)
    record = {
        "old": old,
        "new": new,
        "aside": new,
        "model": _model(new_store),
        "old_model": _model(old_store),
        "proven": not unproven,
        "all_true": all_true,
        "two_stage": two_stage,
    }
    exchange.check = partial(_refuse_changed, old_store, new_store)
    exchange.switch(record)
    return Switch.of(record)


def roll_back(old: str) -> Switch:
    """Let the old store answer at `old` again; the new one is where it was.

    Raises
    ------
    UsageError
        Nothing was switched there.
    InputError
        The stores are not those that were switched.
    OutputError, RemoteError
        The system or the server refused.
    """
    exchange, record = _noted(old)
    exchange.rollback()
    return Switch.of(record)


def forget_switch(old: str) -> Switch:
    """Delete the old store that stepped aside for the one at `old`, and what is noted of the switch.

    Raises
    ------
    UsageError
        Nothing was switched there, or not to the end.
    InputError, OutputError, RemoteError
        As `roll_back`.
    """
    exchange, record = _noted(old)
    exchange.forget()
    return Switch.of(record)


def find_switch(old: str) -> Switch:
    """The switch that is noted of a location.

    Raises
    ------
    UsageError
        There is none.
    """
    return Switch.of(_noted(old)[1])


def find_exchange(location: str) -> Exchange | None:
    """The exchange by which the store at a location came there; the store itself may be between two places."""
    exchange = Folders.exchange_at(location) or exchange_left(location)
    if exchange is not None:
        return exchange
    return open_store(location).exchanged()


def _noted(old: str) -> tuple[Exchange, Record]:
    old = hide_secrets(old)
    exchange = find_exchange(old)
    record = None if exchange is None else exchange.record()
    if exchange is None or record is None:
        raise UsageError(f"{old}: nothing was switched here, or it is rolled back or forgotten already")
    return exchange, record


def _exchange(old: Store, new: Store) -> Exchange:
    kinds = old.info.kind, new.info.kind
    if kinds[0] != kinds[1]:
        raise UsageError(
            f"{new.info.location}: expected a store of the kind {kinds[0]}, as the old one, found {kinds[1]}; let your "
            "programs open the new one instead"
        )
    if old.info.location == new.info.location:
        raise UsageError(f"{new.info.location}: this is the old store itself; name the new one")
    return old.exchange(new)


def _differ(old: Store, new: Store, contents: tuple[Mapping[str, Any], Mapping[str, Any]]) -> str | None:
    """What the stores have not in common, None where they have the same ids, in whatever order."""
    if contents[0]["count"] != contents[1]["count"]:
        return "vectors"
    if contents[0]["ids_sha256"] == contents[1]["ids_sha256"] or _sum_of_ids(old) == _sum_of_ids(new):
        return None
    return "ids"


def _sum_of_ids(store: Store) -> int:
    """The sum of the hashes of all ids: the same for the same ids, in whatever order an index with lists has them."""
    ids = (doc_id.encode(errors="surrogatepass") for batch in store.scan() for doc_id in batch.ids)
    return sum(int.from_bytes(hashlib.sha256(doc_id).digest()) for doc_id in ids)


def _model(store: Store) -> str | None:
    manifest = store.info.manifest
    return None if manifest is None or manifest.model is None else manifest.model.spec


def _is_full_reembed(old: Store, new: Store, contents: tuple[Mapping[str, Any], Mapping[str, Any]]) -> bool:
    """Whether every vector of the new store is its model's own, so that no audit could find anything better."""
    is_from = old.info.has_texts or _is_made_from(new, contents[0])  # texts are compared in any case
    return is_from and is_all_true(new) and is_as_made(new, contents[1])


def _check_report(
    old: Store, new: Store, contents: tuple[Mapping[str, Any], Mapping[str, Any]], path: Path | Mapping[str, Any] | None
) -> int | None:
    """Make sure that a report says SAFE of exactly these two stores; the depth, where it says so of two stages."""
    report = _read_report(new, path)
    where = report["path"]
    plan = report.get("plan") or {"name": _ALONE, "outcome": report["verdict"]["outcome"]}
    depth = plan["name"].removeprefix(_TWO_STAGE)
    if plan["name"] != _ALONE and not depth.isdecimal():
        raise InputError(
            f"{where}: expected a report on the new store, found one on {plan['name']}; audit without --plan, or "
            "with one of two stages"
        )
    outcomes = {plan["outcome"], (report.get("downstream") or {}).get("outcome", _SAFE)}
    if outcomes != {_SAFE}:
        found = ", ".join(sorted(map(str, outcomes - {_SAFE})))
        raise InputError(
            f"{where}: expected a report that says SAFE, found {found}; see what it advises, or switch anyway with "
            "`unproven=True`"
        )
    if report["verdict"].get("provisional"):
        raise InputError(
            f"{where}: expected a report on judged queries, found SAFE (provisional), which is no proof: nothing is "
            "judged; audit with judgements (--beir), or switch anyway with `unproven=True`"
        )
    stores = report.get("stores") or {}
    if not is_content(stores.get("translated"), contents[1]):
        what = "found nothing" if not stores.get("translated") else "found another, or it changed since"
        raise InputError(f"{where}: expected a report of {new.info.location}, {what}; {_AUDIT_AGAIN}")
    source = stores.get("source")
    # an audit without --source: the new store itself may say what it was made from
    is_source = _is_made_from(new, contents[0]) if source is None else is_content(source, contents[0])
    if not is_source:
        raise InputError(
            f"{where}: expected a report that compares with {old.info.location}, found another source, or it changed "
            f"since; {_AUDIT_AGAIN}"
        )
    return None if plan["name"] == _ALONE else int(depth)


def _refuse_other_documents(old: Store, new: Store) -> None:
    """Make sure that the texts and metadata of the stores are the same, and the old vectors where they matter."""
    counts = find_changes(old, new, all_true=False, progress=no_progress).counts
    if counts.changed or counts.metadata:
        raise InputError(
            f"{old.info.location}: expected the documents that {new.info.location} was made from, found "
            f"{counts.changed:,} with another text or vector and {counts.metadata or 0:,} with other metadata; bring "
            "the new one up to date with sync, then audit it again"
        )


def _refuse_changed(*stores: Store) -> None:
    """Make sure, right before they trade names, that nobody has written to the stores since they were compared."""
    for store in stores:
        if not store.is_as_opened():
            raise StoreError(
                f"{store.info.location}: the store changed while it was compared; nothing was switched: sync the new "
                "one with the old, audit it, and switch again"
            )


def _is_made_from(store: Store, source: Mapping[str, Any]) -> bool:
    """Whether the manifest of a store says that it was made from one with the content of `source`."""
    manifest = store.info.manifest
    rows = None if manifest is None else manifest.inputs.get("source rows")
    return rows is not None and rows == source["rows_sha256"]


def _read_report(new: Store, path: Path | Mapping[str, Any] | None) -> dict[str, Any]:
    if isinstance(path, Mapping):
        return {**path, "path": "the report"}
    if path is None:
        location = new.info.location
        place = path_in(location)
        left = None if place is None else place.absolute().with_name(REPORT)
        if left is None or not left.is_file():
            why = ", as it is not what it was when all of it was embedded," if is_all_true(new) else ","
            raise InputError(
                f"{location}: expected the report of an audit{why} found none; name it with --report FILE, or "
                f"{_AUDIT_AGAIN}"
            )
        path = left
    try:
        report = read_table(path)
        expect(report, {"kind": Literal["audit"], "verdict": {"outcome": str}})
        expect({**_ABSENT, **report}, {"stores": Mapping[str, Any] | None, "downstream": Mapping[str, Any] | None})
        expect({**_ABSENT, **report["verdict"]}, {"provisional": bool})
        expect({**_ABSENT, **report}, {"plan": Mapping[str, Any] | None})
        expect({**_NO_PLAN, **(report.get("plan") or {})}, {"name": str, "outcome": str})
        expect({**_ABSENT, **(report.get("downstream") or {})}, {"outcome": str})
    except OSError as error:
        raise InputError(
            f"{path}: expected a report, cannot read it ({describe_os_error(error)}); check the path"
        ) from error
    except MalformedError as error:
        raise InputError(
            f"{path}: expected the JSON report of an audit, found something else ({error}); name the one of --report"
        ) from error
    return {**report, "path": path}
