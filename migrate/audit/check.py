"""Check: the model of a store, held against its vectors, and what a difference costs in retrieval."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.progress import Progress, no_progress
from migrate.steps.base import COST, JUDGED, SEED, Step, function, option, parameter
from migrate.steps.stamp import CHECKED_SAMPLE, STORE

if TYPE_CHECKING:
    from migrate.audit.query_set import QuerySet
    from migrate.check import Compatibility
    from migrate.check.check import ManifestUse
    from migrate.steps.base import ModelLike, StoreLike


@dataclass(frozen=True, eq=False)
class Check(Step["Compatibility"]):
    """Tell whether the vectors of a store are those that a model gives to its texts, or why not.

    A manifest whose hash is that of the index answers at once, unless a `sample`, `full` or `judged` asks for more.
    Where the vectors are near the model's but not the same, the result says what that costs in retrieval.

    No more than `max_cost` is spent. With `rows` every text is embedded, whatever the `sample`, and the documents whose
    vectors are not the model's are written to a file, which `reembed` takes; no part of the texts would do, as any
    vector may be of another model.

    Raises
    ------
    VectorError
        A vector that was looked at is zero or not finite; or a model behind an API gives others than are in the cache.
    StoreError
        The store has texts, but none that is not blank.
    UsageError, SpendingError
        The file of `rows` exists; or what is to be embedded costs more than `max_cost`.
    DatasetError
        The judged queries cannot be read.
    RemoteError, InputError
        The model cannot be loaded, or asked.

    Examples
    --------
    >>> import migrate
    >>> migrate.check("my-store", "tfidf:24")
    <Compatibility not compatible with tfidf:24: the store has 32 dimensions, the model gives 24>
    """

    store: StoreLike = field(metadata=STORE)
    model: ModelLike = field(metadata=option("Model that the store should come from.", "text", metavar="SPEC"))
    _: KW_ONLY
    sample: int | str | None = field(default=None, metadata=CHECKED_SAMPLE)
    full: bool = field(default=False, metadata=option("Embed the sample even where a manifest answers."))
    judged: QuerySet | str | Path | None = field(
        default=None,
        metadata={
            **JUDGED,
            "help": "Judged queries, as for `audit`, to measure what a difference costs; the sample is embedded "
            "even where a manifest answers.",
        },
    )
    rows: Path | str | None = field(
        default=None,
        metadata=option(
            "File for the documents whose vectors are not the model's, which `reembed --rows` embeds anew; every text "
            "is embedded to find them.",
            "path",
            metavar="FILE",
        ),
    )
    force: bool = field(default=False, metadata=parameter("Replace the file of `rows` if it exists."))
    max_cost: float | None = field(
        default=5.0,
        metadata=option(
            "The most dollars to spend without asking; spending stops there.",
            "usd",
            metavar="USD",
            section=COST,
        ),
    )
    seed: int = field(default=0, metadata=SEED)

    @property
    def manifest_use(self) -> ManifestUse:
        """Return whether a manifest may answer, or is held against what is found."""
        if self.full or self.sample is not None or self.judged is not None or self.rows is not None:
            return "compare"
        return "trust"

    def run(self, *, progress: Progress = no_progress) -> Compatibility:
        """Ask the manifest, or embed a sample and compare.

        Parameters
        ----------
        progress
            Called with a step, how much of it is done, and how much there is.
        """
        from migrate.audit.host import check_named

        self.check()
        return check_named(
            self.store,
            self.model,
            self.judged,
            sample=self.sample,
            manifest=self.manifest_use,
            seed=self.seed,
            rows=None if self.rows is None else Path(self.rows),
            max_cost=self.max_cost,
            force=self.force,
            progress=progress,
        )


check = function(Check)
