"""Switch: a new store under the name of the old one, once an audit has found it SAFE; and the ways back and on."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from migrate.steps.base import Step, argument, function, option

if TYPE_CHECKING:
    from migrate.steps.base import StoreLike
    from migrate.steps.switch.job import Dropped, Switched, Trade

_SWITCHED = argument("The store that was switched, or its path.", "store")


@dataclass(frozen=True, eq=False)
class Switch(Step["Switched"]):
    """Let the new store answer where the old one did; the old one is kept until `rollback` or `forget`.

    A switch of the same two that was killed is finished; one that is done stays.

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

    Examples
    --------
    >>> import migrate
    >>> _ = migrate.reembed("my-store", "tfidf:24", "new-store")
    >>> migrate.switch("my-store", "new-store").model
    'tfidf:24'
    >>> migrate.inspect("my-store")["dimension"]
    24
    >>> migrate.rollback("my-store").old_model
    'tfidf:32'
    """

    old: StoreLike = field(metadata=argument("The old store, or its path.", "store"))
    new: StoreLike = field(
        metadata=argument("The new store, of the same kind and with the same ids, or its path.", "store")
    )
    audit: object = field(  # an AuditReport, which this room does not know, or the path of one
        default=None,
        metadata=option(
            "JSON report of the audit that found NEW safe.  [default: the report.json that `run` left beside NEW]",
            "path",
            metavar="FILE.json",
        ),
    )
    _: KW_ONLY
    unproven: bool = field(default=False, metadata=option("Switch without a proof that NEW is SAFE."))

    def open(self) -> Trade[Switched]:
        """Compare the stores, and check the proof; raises as `run`, and writes nothing."""
        from migrate.steps.switch.job import plan_switch

        return plan_switch(self.old, self.new, proof=self.audit, unproven=self.unproven)

    def run(self) -> Switched:
        """Compare the stores, check the proof, and let them trade names."""
        return self.open().execute()


@dataclass(frozen=True, eq=False)
class Rollback(Step["Switched"]):
    """Undo a `switch`: the old store answers again, and the new one where it was before.

    Raises
    ------
    UsageError
        Nothing was switched there.
    InputError
        The stores are not those that were switched.
    OutputError, RemoteError
        The system or the server refused.
    """

    old: StoreLike = field(metadata=_SWITCHED)

    def open(self) -> Trade[Switched]:
        """Find the switch that is to be undone."""
        from migrate.steps.switch.job import plan_rollback

        return plan_rollback(self.old)

    def run(self) -> Switched:
        """Let them trade names again."""
        return self.open().execute()


@dataclass(frozen=True, eq=False)
class Forget(Step["Switched | Dropped"]):
    """Delete the old store after a `switch`, or a field of vectors that the location names by `?vector=`.

    Nothing else is deleted. A switch cannot be rolled back then. A field is one that `translate --into` has added, or
    one beside which it has added another.

    Raises
    ------
    UsageError
        Nothing was switched there, or not to the end; or the field is none of these, or something depends on it.
    InputError, OutputError, RemoteError
        As `rollback`.
    """

    old: StoreLike = field(
        metadata=argument("The store that was switched, or STORE?vector=FIELD for a field, or its path.", "store")
    )

    def open(self) -> Trade[Switched] | Trade[Dropped]:
        """Find the switch or the field that is to be forgotten."""
        from migrate.steps.switch.job import plan_forget

        return plan_forget(self.old)

    def run(self) -> Switched | Dropped:
        """Delete the old store and the record of the switch, or drop the field."""
        return self.open().execute()


switch, rollback, forget = function(Switch), function(Rollback), function(Forget)
