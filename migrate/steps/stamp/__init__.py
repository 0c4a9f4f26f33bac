"""Stamp: the model of a store, held against its vectors and recorded beside it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from migrate.errors import UsageError
from migrate.progress import Progress, no_progress
from migrate.steps.base import GENERAL, SEED, Step, argument, function, option

if TYPE_CHECKING:
    from migrate.check import Stamped
    from migrate.steps.base import ModelLike, StoreLike

STORE = argument("A store, or its path.", "store")
CHECKED_SAMPLE = option(
    "Documents to embed again, even if there is a manifest.  [default: 32, or none if a manifest answers]",
    "sample",
    metavar="N|all",
)


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

    store: StoreLike = field(metadata=STORE)
    model: ModelLike | None = field(
        default=None, metadata=option("Model that the store comes from.", "text", metavar="SPEC")
    )
    _: KW_ONLY
    as_found: bool = field(
        default=False, metadata=option("Take the model that the last check of the store found; embed nothing.")
    )
    sample: int | str | None = field(default=None, metadata=CHECKED_SAMPLE)
    trust: bool = field(default=False, metadata=option("Write the manifest on your word, without embedding a sample."))
    seed: int = field(default=0, metadata=SEED)
    force: bool = field(default=False, metadata=option("Replace the manifest that is there.", section=GENERAL))

    def check(self) -> None:
        """Make sure that a model is named, or that of the last check is taken."""
        if self.as_found and (self.model is not None or self.sample is not None or self.trust):
            raise UsageError("--as-found takes what the last check has found; leave --model, --sample and --trust out")
        if self.model is None and not self.as_found:
            raise UsageError(
                "the store's model is not named; name it with --model, or take the one that was found with --as-found"
            )

    def run(self, *, progress: Progress = no_progress) -> Stamped:
        """Check the store, and write the manifest.

        Parameters
        ----------
        progress
            Called with a step, how much of it is done, and how much there is.
        """
        from migrate.steps.stamp.job import stamp_named

        self.check()
        return stamp_named(
            self.store,
            self.model,
            sample=self.sample,
            trust=self.trust,
            force=self.force,
            seed=self.seed,
            progress=progress,
        )


stamp = function(Stamp)
