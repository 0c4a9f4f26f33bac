"""Translate: a store through a stitch, with or without a budget of true vectors before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrate.errors import UsageError
from migrate.pace import LEAST
from migrate.progress import Progress, no_progress
from migrate.steps.base import Announce, JobStep, RunContext, function, new_cap
from migrate.steps.translate.options import TranslateOptions

if TYPE_CHECKING:
    from migrate.cost.meter import SpendingCap
    from migrate.steps.translate.dimensions import ShortenJob
    from migrate.steps.translate.job import TranslateJob, Translation


@dataclass(frozen=True, eq=False)
class Translate(TranslateOptions, JobStep["Translation"]):
    """Write a store, translated by a stitch, to a new one; ids, order, texts, metric and format are kept.

    Instead of an output, `into` names a field for the new vectors in the records of the store itself: no other field is
    touched. It is opened as `STORE?vector=FIELD`.

    The output appears when it is complete. A run that broke off is continued: the shards that reached the disk stay,
    unless `restart` discards them, and the bytes are those of a run that did not break off.

    With `reembed`, the documents that matter most get their true vectors, and the stitch learns from them. Else only a
    stitch that reads the texts with a paid model costs anything; one with such models is applied in this process alone.

    With `to_dimensions` instead of a stitch, vectors are cut to their first ones and scaled to unit length, which is
    what a model that was trained for shorter vectors gives itself; nothing is fitted, and nothing is paid for.

    With `any_store` the true vectors of the stitch's sample are left out, as equal ids need not mean equal texts. Of a
    store without texts the fallback of a stitch that reads them takes the old vectors alone; the manifest says so.

    Raises
    ------
    StitchError
        The stitch was fitted for another store, for another dimension, or for queries; or it reads texts, has no
        fallback, and the store has none.
    VectorError
        A vector is zero or not finite, before or after.
    StoreError
        The store is unreadable, not the one of its manifest, changed while it was read, or is not the one that
        unfinished work was begun with.
    UsageError, OutputError, LockedError
        The output exists, cannot be written, or is being written by another run; or unfinished work was begun with
        other options.
    SpendingError
        It costs more than `max_cost`.

    Examples
    --------
    >>> import migrate
    >>> stitch = migrate.fit("my-store", "tfidf:24", kind="ridge", sample=100)
    >>> migrate.translate("my-store", stitch, "new-store")  # doctest: +ELLIPSIS
    <Translation new-store: 150 vectors, 32 -> 24 dimensions, 100 of them true, in ... s>
    """

    def check(self) -> None:
        """Make sure that options go together, and that no output lies in what is read."""
        self._check_stitch()
        for name in ("policy", "query_log", "save_stitch"):
            if self.reembed is None and getattr(self, name) is not None:
                raise UsageError(f"`{name}=` goes with `reembed=`; add `reembed=10%`, or leave it out")
        if self.any_store and self.reembed is not None:
            raise UsageError(
                "`reembed=` needs the store that the stitch was fitted on; leave out `any_store`, or fit again"
            )
        if self.output is None and self.into is None:
            raise UsageError(
                "nothing says where the new vectors go; name a new store with `output=`, or a new field of this one "
                "with `into=`"
            )
        if self.output is not None and self.into is not None:
            raise UsageError("`output=` and `into=` exclude each other; leave one of them out")
        if self.pace is not None and not (isinstance(self.pace, int | float) and LEAST <= self.pace <= 1):
            raise UsageError(f"`pace=` is a share of the time, from {LEAST} to 1; give one such as 0.25")
        self._check_workers()
        # Not above: `--help` imports this module, and would load NumPy and the stores with it
        from migrate.steps.translate.job import engine_called, refuse_output_in

        if self.output is not None:
            refuse_output_in(self, self.output)
        if self.engine is not None:
            engine_called(self.engine)

    def _check_stitch(self) -> None:
        """Make sure that there is a stitch, or a number of dimensions and nothing that only a stitch needs."""
        if self.to_dimensions is None:
            if self.stitch is None:
                raise UsageError(
                    "nothing says how to translate; name a stitch that `fit` wrote, or cut vectors by --dimensions N"
                )
            return
        if self.to_dimensions < 1:
            raise UsageError(f"--dimensions {self.to_dimensions} leaves nothing of a vector; give 1 or more")
        for name in ("stitch", "reembed", "target", "any_store", "workers", "engine"):
            if getattr(self, name) not in (None, False):
                raise UsageError(f"--dimensions cuts vectors, and goes without `{name}=`; leave one of them out")

    def _check_workers(self) -> None:
        """Make sure that who does the work can do it that way."""
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"`workers={self.workers}` is no number of processes; give 1 or more, or leave it out")
        if self.pace is not None and self.workers not in (None, 1):
            raise UsageError("`pace=` is kept by one process alone; leave it out, or `workers=`")
        for name in ("into", "reembed", "workers", "pace"):
            if self.engine is not None and getattr(self, name) is not None:
                raise UsageError(f"`engine=` and `{name}=` exclude each other; leave one of them out")

    def open(self, context: RunContext | None = None) -> TranslateJob | ShortenJob:
        """Open the store, the stitch and the models, and make sure that they go together. Nothing is embedded."""
        from migrate.steps.translate.dimensions import open_shortening
        from migrate.steps.translate.job import open_translation

        if self.to_dimensions is not None:
            return open_shortening(self, context or RunContext())
        return open_translation(self, context or RunContext())

    def run(
        self,
        *,
        progress: Progress = no_progress,
        cap: SpendingCap | None = None,
        announce: Announce | None = None,
    ) -> Translation:
        """Check the parameters, and do the work within `max_cost`, as the job does.

        Parameters
        ----------
        progress
            Called with a step, how much of it is done, and how much there is.
        cap
            Counts what all models together have spent; steps that are given the same share it.
        announce
            Called as a re-embedding goes on, before anything is paid for.
        """
        self.check()
        context = RunContext(progress=progress, cap=cap or new_cap(), announce=announce or Announce())
        return self.open(context).run()


translate = function(Translate)
