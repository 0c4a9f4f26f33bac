"""Check: the model of a store, held against its vectors. Stamp: its record beside the store."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING

from migrate.errors import UsageError
from migrate.progress import Progress, no_progress
from migrate.steps.base import GENERAL, PROGRESS, SEED, Step, argument, function, option

if TYPE_CHECKING:
    from migrate.check import Compatibility, Stamped
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.stores.base import Store

_STORE = argument("A store, or its path.", "store")
_SAMPLE = option(
    "Documents to embed again, whatever a manifest says.  [default: 32, where no manifest answers]",
    "sample",
    metavar="N|all",
)


def sample_size(sample: int | str | None, store: Store) -> int:
    """Return how many documents of a store are embedded again."""
    if isinstance(sample, str) and sample != "all":
        raise UsageError(f"`sample={sample}` is neither a number of documents nor `all`; give one of these")
    return 32 if sample is None else store.info.count if isinstance(sample, str) else sample


@dataclass(frozen=True, eq=False)
class Check(Step["Compatibility"]):
    """Tell whether the vectors of a store are those that a model gives to its texts, or why not.

    A manifest whose hash is that of the index answers at once, unless a `sample` or `full` asks for more.

    Raises
    ------
    VectorError
        A vector that was looked at is zero or not finite.
    StoreError
        The store has texts, but none that is not blank.
    RemoteError, InputError
        The model cannot be loaded, or asked.

    Examples
    --------
    >>> import migrate
    >>> migrate.check("my-store", "tfidf:24")
    <Compatibility not compatible with tfidf:24: the store has 32 dimensions, the model gives 24>
    """

    store: StoreLike = field(metadata=_STORE)
    model: ModelLike = field(metadata=option("Model that the store should come from.", "text", metavar="SPEC"))
    _: KW_ONLY
    sample: int | str | None = field(default=None, metadata=_SAMPLE)
    full: bool = field(default=False, metadata=option("Embed the sample even where a manifest answers."))
    seed: int = field(default=0, metadata=SEED)
    progress: Progress = field(default=no_progress, repr=False, metadata=PROGRESS)

    def execute(self) -> Compatibility:
        """Ask the manifest, or embed a sample and compare."""
        from migrate.check import check_store
        from migrate.embedders import facts_of
        from migrate.manifest import today
        from migrate.steps.opening import model_at, store_of

        store = store_of(self.store)
        result = check_store(
            store,
            model_at(self.model),
            sample=sample_size(self.sample, store),
            manifest="compare" if self.full or self.sample is not None else "trust",
            seed=self.seed,
            progress=self.progress,
        )
        entry = facts_of(result.model.spec, result.model.revision)
        going_away = "" if entry is None else entry.going_away(today())
        return replace(result, notes=(*result.notes, going_away)) if going_away else result


@dataclass(frozen=True, eq=False)
class Stamp(Step["Stamped"]):
    """Record beside a store which model it is of, after checking that it is; nothing is written where it is not.

    Raises
    ------
    UsageError
        There is a manifest, and `force` is not given; no model is named; or no check has found one.
    StoreError
        The store changed during the check; or as `check`.
    OutputError
        The folder cannot be written to, or the cache folder cannot be read.
    VectorError, RemoteError, InputError
        As `check`.

    Examples
    --------
    >>> import migrate
    >>> migrate.stamp("my-store", "tfidf:32", force=True).checked
    <Compatibility compatible with tfidf:32: the model gives the stored vectors for all 32 sampled documents>
    """

    store: StoreLike = field(metadata=_STORE)
    model: ModelLike | None = field(
        default=None, metadata=option("Model that the store comes from.", "text", metavar="SPEC")
    )
    _: KW_ONLY
    as_found: bool = field(
        default=False, metadata=option("Take the model that the last check of the store has found; embed nothing.")
    )
    sample: int | str | None = field(default=None, metadata=_SAMPLE)
    trust: bool = field(default=False, metadata=option("Write the manifest on your word, without embedding a sample."))
    seed: int = field(default=0, metadata=SEED)
    force: bool = field(default=False, metadata=option("Replace the manifest that is there.", section=GENERAL))
    progress: Progress = field(default=no_progress, repr=False, metadata=PROGRESS)

    def check(self) -> None:
        """Make sure that a model is named, or that of the last check is taken."""
        if self.as_found and (self.model is not None or self.sample is not None or self.trust):
            raise UsageError("--as-found takes what the last check has found; leave --model, --sample and --trust out")
        if self.model is None and not self.as_found:
            raise UsageError(
                "the store's model is not named; name it with --model, or take the one that was found with --as-found"
            )

    def execute(self) -> Stamped:
        """Check the store, and write the manifest."""
        from migrate.check.stamp import stamp_as_found, stamp_store
        from migrate.steps.opening import model_at, store_of

        store = store_of(self.store)
        if self.model is None:
            return stamp_as_found(store, force=self.force)
        return stamp_store(
            store,
            model_at(self.model, store.folder),
            sample=sample_size(self.sample, store),
            trust=self.trust,
            force=self.force,
            seed=self.seed,
            progress=self.progress,
        )


check, stamp = function(Check), function(Stamp)
