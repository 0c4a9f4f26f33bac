"""Reembed: a store with the new model, all of it, a share, or what the embedding cache has of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrate.errors import UsageError
from migrate.steps.base import JobStep, RunContext, function, step_like
from migrate.steps.reembed.options import ReembedOptions
from migrate.steps.translate import Translate

if TYPE_CHECKING:
    from migrate.embed import Embedding
    from migrate.steps.reembed.fill import Backfill
    from migrate.steps.reembed.job import FillJob, ReembedJob
    from migrate.steps.reembed.mend import MendJob
    from migrate.steps.translate.dimensions import ShortenJob
    from migrate.steps.translate.job import TranslateJob, Translation


@dataclass(frozen=True, eq=False)
class Reembed(ReembedOptions, JobStep["Embedding | Translation | Backfill"]):
    """Embed a whole store with the target model into a new one of the same kind; or a share of it, as a translation.

    The output appears when it is complete; a run that broke off is continued. Every vector of a whole store is the
    model's own. Of a share, the documents that matter most get theirs, and a stitch translates the others. With
    `from_cache` a translated store gets those that the embedding cache has, and keeps its other vectors. With `rows`
    only the documents of a file are embedded, which `check` wrote of a store that is of two models.

    Raises
    ------
    StoreError
        The store has no texts, and the model reads them; or it is not the one of its manifest.
    UsageError
        A share without a stitch, or a stitch without a share; or the output exists.
    OutputError, LockedError, RemoteError, InputError, SpendingError
        The output cannot be written, or is being written; the model fails, or costs more than `max_cost`.

    Examples
    --------
    >>> import migrate
    >>> migrate.reembed("my-store", "tfidf:24", "new-store")
    <Embedding new-store: 150 vectors of dimension 24>
    """

    def check(self) -> None:
        """Make sure that there is a model, that a share has a stitch, and all that goes with it a share."""
        for name in ("from_cache", "share", "stitch"):
            if self.rows is not None and getattr(self, name) not in (None, False):
                raise UsageError(f"`rows=` says what to embed, and goes without `{name}=`; leave one of them out")
        if self.target is None and not self.from_cache and self.rows is None:
            raise UsageError("no model is named to embed with; add --target SPEC (`target` in Python)")
        if self.share is not None and self.from_cache:
            raise UsageError("`share=` embeds documents, `from_cache` none; leave one of them out")
        if self.share is not None and self.stitch is None:
            fit = f"lead-migrate fit {self.store} --target {self.target} -o STITCH"
            raise UsageError(f"`share={self.share}` leaves a rest, which needs a `stitch=`; fit one: {fit}")
        for name in ("policy", "query_log", "save_stitch"):
            if self.share is None and self.stitch is None and getattr(self, name) is not None:
                raise UsageError(f"`{name}=` goes with `share=`; add `share=10%`, or leave it out")
        if self.share is None and self.stitch is not None:
            raise UsageError("`stitch=` translates what `share=` leaves; add `share=30%`, or leave it out to embed all")

    def of_share(self) -> Translate:
        """Return the translation of a store of which a share is embedded."""
        return step_like(Translate, self, reembed=self.share)

    def open(self, context: RunContext | None = None) -> ReembedJob | FillJob | MendJob | TranslateJob | ShortenJob:
        """Open the store and the models, and make sure that they go together. Nothing is embedded."""
        from migrate.steps.reembed.job import open_fill, open_reembed
        from migrate.steps.reembed.mend import open_mend

        context = context or RunContext()
        if self.rows is not None:
            return open_mend(self, context)
        if self.from_cache:
            return open_fill(self, context)
        if self.share is not None:
            return self.of_share().open(context)
        return open_reembed(self, context)


reembed = function(Reembed)
