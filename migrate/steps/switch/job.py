"""The work of a switch: the comparison of the stores, the proof that the new one is SAFE, the trade of their names."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from migrate.audit_report import read_audit
from migrate.audit_report.names import TRANSLATED
from migrate.audit_report.report import AuditReport
from migrate.embedders import special_options
from migrate.embedders.kinds import with_settings
from migrate.errors import InputError, StoreError, UsageError
from migrate.files import describe_os_error
from migrate.locations import hide_secrets
from migrate.progress import note_progress
from migrate.reading import MalformedError
from migrate.steps.sync.changes import find_changes
from migrate.stores import open_store
from migrate.stores.all_true import is_as_made, is_full_reembed
from migrate.stores.base import Store
from migrate.stores.content import content_as_noted, content_difference, content_of, is_content
from migrate.stores.fields import NamedField
from migrate.stores.registry import absolute_location, find_exchange, path_in
from migrate.stores.switching import Exchange, Record, SwitchableStore, moved

if TYPE_CHECKING:
    from migrate.steps.base import StoreLike

Done = TypeVar("Done", bound="Switched | Dropped")

REPORT: Final = "report.json"
"""The file that `run` leaves beside the store that it makes."""

# No more than nine digits: no store is searched deeper, and `int` refuses thousands of them
_TWO_STAGES: Final = re.compile(r"two-stage ([1-9][0-9]{0,8})")
_AUDIT_AGAIN: Final = "audit it again with --source and --report FILE, or switch anyway with `unproven=True`"


@dataclass(frozen=True, slots=True)
class Switched:
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
        True if the new store is known to be SAFE: by a report, or as every vector in it is a true one.
    all_true
        True if it is for the latter.
    already
        True if an earlier call had begun it.
    two_stage
        How many of the first documents have to be ranked again by true vectors, as the report is SAFE only so; None
        where the store is by itself.
    margin
        The share of retention that the report holds the new store to; None without one, or where it does not say.
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
    margin: float | None = None

    @classmethod
    def of(cls, record: Record, *, already: bool = False) -> Switched:
        """Return the switch of a record."""
        values = {name: record[name] for name in cls.__slots__ if name in record}  # not all are in older records
        return replace(cls(**values), already=already)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A field of vectors that was dropped from the records of a store; `field` is the location that opened it."""

    field: str


@dataclass(frozen=True, slots=True)
class _Proof:
    """The facts of a report that says SAFE: the depth of two stages, and the margin."""

    two_stage: int | None = None
    margin: float | None = None


@dataclass(frozen=True, eq=False)
class Trade(Generic[Done]):
    """A switch, or its undoing or forgetting, that may be done: what will have been `done`, and the `act`."""

    done: Done
    act: Callable[[], object]

    def execute(self) -> Done:
        """Do it."""
        self.act()
        return self.done


def plan_switch(
    old_store: StoreLike, new_store: StoreLike, *, proof: object = None, unproven: bool = False
) -> Trade[Switched]:
    """Compare two stores, and make sure that the new one is SAFE, as `compare_stores` does; nothing is written."""
    old = location_of(old_store)
    new = location_of(new_store)
    earlier = _switched_at(old)
    if earlier is not None:
        earlier_exchange, record = earlier
        if record["new"] != new:
            word = shlex.quote(old)
            raise UsageError(
                f"{old}: {record['new']} was switched here before; run `rollback {word}` or `forget {word}` first"
            )
        # The same switch again finishes one that was killed half way
        return Trade(Switched.of(record, already=True), partial(earlier_exchange.switch, record))
    elsewhere = _switched_at(new)
    if elsewhere is not None:
        _, other_record = elsewhere
        raise moved(new, other_record["old"])
    stores = (open_store(old, verify=True), open_store(new, verify=True))
    exchange = _exchange(*stores)
    done = compare_stores(*stores, proof=proof, unproven=unproven)
    # Asked again at the last moment: the comparison reads both stores whole, and somebody may write meanwhile
    exchange.check = partial(_refuse_changed, *stores)
    return Trade(done, partial(exchange.switch, asdict(done)))


def plan_rollback(store: StoreLike) -> Trade[Switched]:
    """Find the switch that is to be undone."""
    exchange, record = exchange_of(store)
    return Trade(Switched.of(record), exchange.rollback)


def plan_forget(store: StoreLike) -> Trade[Switched] | Trade[Dropped]:
    """Find what is to be forgotten: a field that the location names, else the old store of a switch."""
    if (field := _field_of(store)) is not None:
        # A forget that was killed has left a column that is gone for readers, and still has its data
        field.discard_dropped()
        field.refuse_drop()
        return Trade(Dropped(field.location), field.drop)
    exchange, record = exchange_of(store)
    return Trade(Switched.of(record), exchange.forget)


def _field_of(store: StoreLike) -> NamedField | None:
    """Return the field that is to be dropped; None where the store is part of a switch, or no field is named."""
    location = location_of(store)
    if _switched_at(location) is not None:
        return None
    return NamedField.at(location)


def compare_stores(old: Store, new: Store, *, proof: object = None, unproven: bool = False) -> Switched:
    """Make sure that a new store may take the place of an old one, and return what will have been done then.

    `proof` is the report that says SAFE, or its path; without it, that beside the new store. Nothing is written.

    Raises InputError: they have not the same documents, or the report is not SAFE or of others. UsageError: the old
    one was made from the new one.
    """
    old_location = location_of(old)
    new_location = location_of(new)
    contents = (content_of(old), content_of(new))
    if difference := _differ(old, new, contents):
        counts = " and ".join(f"{content['count']:,}" for content in contents)
        raise InputError(
            f"{new_location}: this has other {difference} than {old_location} ({counts} vectors); bring it up to date "
            "with `sync`, or translate again"
        )
    if _is_made_from(old, contents[1]):
        raise UsageError(
            f"{old_location}: this was made from {new_location}, and so is the new store of the two; name the old one "
            "first"
        )
    all_true = False
    checked = _Proof()
    if not unproven:
        # A report that is named has to say SAFE, also where none would be needed
        all_true = proof is None and _is_full_reembed(old, new, contents)
        if not all_true:
            checked = _check_report(old, new, contents, proof)
        _refuse_other_documents(old, new)
    return Switched(
        old=old_location,
        new=new_location,
        # They trade places, so that the old one lies where the new one did
        aside=new_location,
        model=_model(new),
        old_model=_model(old),
        proven=not unproven,
        all_true=all_true,
        two_stage=checked.two_stage,
        margin=checked.margin,
    )


def location_of(store: StoreLike) -> str:
    """Return the location of a store in full, as a switch may be undone from another folder; without a password."""
    location = store.info.location if isinstance(store, Store) else store
    return hide_secrets(absolute_location(location))


def exchange_of(store: StoreLike) -> tuple[Exchange, Record]:
    """Return the exchange at a store, with its record; UsageError where nothing was switched."""
    old = location_of(store)
    switched = _switched_at(old)
    if switched is None:
        # A store that is not there has an error of its own
        open_store(old)
        raise UsageError(f"{old}: nothing was switched here, or it is rolled back or forgotten already")
    return switched


def _switched_at(location: str) -> tuple[Exchange, Record] | None:
    """Return the exchange at a location, with its record; None where nothing was switched."""
    exchange = find_exchange(location)
    if exchange is None:
        return None
    record = exchange.record()
    if record is None:
        return None
    return exchange, record


def _exchange(old: Store, new: Store) -> Exchange:
    if old.info.kind != new.info.kind:
        raise UsageError(
            f"{new.info.location}: this is a store of the kind {new.info.kind}, and the old one of {old.info.kind}; "
            "let your programs open the new one instead"
        )
    if old.info.location == new.info.location:
        raise UsageError(f"{new.info.location}: this is the old store itself; name the new one")
    if not isinstance(old, SwitchableStore):
        raise UsageError(f"{old.info.location}: stores of the kind {old.info.kind} cannot be switched; name another")
    return old.exchange(new)


def _differ(old: Store, new: Store, contents: tuple[Mapping[str, Any], Mapping[str, Any]]) -> str | None:
    """Return what the stores have not in common; None where they have the same ids, in whatever order."""
    if contents[0]["count"] != contents[1]["count"]:
        return "vectors"
    # The hash is of the ids in their order; only where that differs is each id read
    if contents[0]["ids_hash"] == contents[1]["ids_hash"] or _sum_of_ids(old) == _sum_of_ids(new):
        return None
    return "ids"


def _sum_of_ids(store: Store) -> int:
    """Sum the hashes of all ids: the same for the same ids, in whatever order an index with lists has them."""
    ids = (doc_id.encode(errors="surrogatepass") for batch in store.scan() for doc_id in batch.ids)
    # A sum: by XOR an id that occurs twice would be as good as any other that does
    return sum(int.from_bytes(hashlib.sha256(doc_id).digest()) for doc_id in ids)


def _model(store: Store) -> str | None:
    """Return the SPEC by which queries are embedded for a store, with its dimensions and prefixes."""
    model = store.info.recorded_model
    if model is None:
        return None
    return with_settings(model.spec, special_options(model))


def _is_full_reembed(old: Store, new: Store, contents: tuple[Mapping[str, Any], Mapping[str, Any]]) -> bool:
    """Return whether every vector of the new store is its model's own, so that no audit could find anything better."""
    # Texts are compared in any case, and show of which store the new one is
    is_from_old = old.info.has_texts or _is_made_from(new, contents[0])
    # A cut store is true to its model, and may find less than the old one all the same
    return is_from_old and is_full_reembed(new) and is_as_made(new, contents[1])


def _check_report(
    old: Store,
    new: Store,
    contents: tuple[Mapping[str, Any], Mapping[str, Any]],
    proof: object,
) -> _Proof:
    """Make sure that a report says SAFE of exactly these two stores; return what else it says.

    Without a report, it is the one that `run` left beside the new store.
    """
    source: object = "the report"
    if proof is None:
        source = proof = _report_beside(new)
    elif isinstance(proof, str | Path):
        source = proof
    document = proof.document if isinstance(proof, AuditReport) else None
    report = _read(source, document)
    plan = report["plan"]
    translated = report["stores"].get("translated")
    source_content = report["stores"].get("source")
    in_two_stages = _TWO_STAGES.fullmatch(plan["name"])
    if plan["name"] != TRANSLATED and in_two_stages is None:
        raise InputError(
            f"{source}: this report is on {plan['name']}; audit the new store alone, or with a plan of two stages"
        )
    if plan["outcome"] != "SAFE":
        raise InputError(
            f"{source}: this report says {plan['outcome']}; see what it advises, or switch anyway with `unproven=True`"
        )
    if report["verdict"]["provisional"]:
        raise InputError(
            f"{source}: this report says SAFE (provisional), which proves nothing, as no query is judged; audit with "
            "judgements (--judged), or switch anyway with `unproven=True`"
        )
    if not is_content(translated, contents[1], new):
        reason = _why_other("store", translated, contents[1], new)
        raise InputError(f"{source}: this report {reason}, and has to be of {new.info.location}; {_AUDIT_AGAIN}")
    # An audit without --source: the new store itself may say what it was made from
    if source_content is None:
        is_of_source = _is_made_from(new, contents[0])
    else:
        is_of_source = is_content(source_content, contents[0], old)
    if not is_of_source:
        reason = _why_other("source", source_content, contents[0], old)
        raise InputError(f"{source}: this report {reason}, and has to compare with {old.info.location}; {_AUDIT_AGAIN}")
    two_stage = None
    if in_two_stages is not None:
        two_stage = int(in_two_stages[1])
    return _Proof(two_stage=two_stage, margin=float(report["verdict"]["margin"]))


def _why_other(noun: str, recorded: object, content: Mapping[str, Any], store: Store) -> str:
    """Say that a report is not of the store with this content, and what tells them apart."""
    if not isinstance(recorded, Mapping) or not recorded:
        return f"says of no {noun} what it holds"
    difference = content_difference(recorded, content_as_noted(recorded, content, store))
    return f"is of another {noun}, or it changed since ({difference})"


def _report_beside(new: Store) -> Path:
    folder = path_in(new.info.location)
    report = None
    if folder is not None:
        report = folder.absolute().with_name(REPORT)
    if report is None or not report.is_file():
        why = ""
        # A full re-embed needs no report, unless it was written to since
        if is_full_reembed(new):
            why = ", and it is not what it was when all of it was embedded"
        raise InputError(
            f"{new.info.location}: there is no report of an audit beside it{why}; name one with --audit FILE, or "
            f"{_AUDIT_AGAIN}"
        )
    return report


def _read(source: object, document: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a report, from the file that is its `source` where there is no document."""
    try:
        return read_audit(source, document)
    except OSError as error:
        raise InputError(f"{source}: the report cannot be read ({describe_os_error(error)}); check the path") from error
    except MalformedError as error:
        raise InputError(
            f"{source}: this is not the JSON report of an audit ({error}); name another by --audit"
        ) from error


def _refuse_other_documents(old: Store, new: Store) -> None:
    """Make sure that the texts and metadata of the stores are the same, and the old vectors where they matter."""
    counts = find_changes(old, new, all_true=False, progress=note_progress).counts
    if counts.changed or counts.metadata:
        raise InputError(
            f"{old.info.location}: since {new.info.location} was made, {counts.changed:,} documents got another text "
            f"or vector and {counts.metadata or 0:,} other metadata; bring the new store up to date with `sync`, then "
            "audit it again"
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
    """Return whether the manifest of a store says that it was made from one with the content of `source`."""
    manifest = store.info.manifest
    if manifest is None:
        return False
    rows = manifest.inputs.get("source rows")
    return rows is not None and rows == source["rows_sha256"]
