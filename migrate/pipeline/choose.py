"""Choose: an audit of a move to each of several models, and their results in one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrate.audit.judged import JudgedStep
from migrate.errors import UsageError
from migrate.pipeline.options import ChooseOptions
from migrate.steps.base import RunContext, function

if TYPE_CHECKING:
    from migrate.pipeline.shortlist import ChooseJob, Shortlist


@dataclass(frozen=True, eq=False)
class Choose(ChooseOptions, JudgedStep["Shortlist"]):
    """Tell what a full re-embed of a store by each of several models would answer, and a translation keep of it.

    For each target a sample and a pool of documents are embedded, as `run` does; nothing is left but the embedding
    cache. Whether a full re-embed is better than staying is tested on the same queries.

    Raises
    ------
    UsageError
        No target is named, one twice, or the store is of one of them already.
    LeadMigrateError
        As `run`.

    Examples
    --------
    >>> import migrate
    >>> found = migrate.choose("my-store", ["tfidf:24", "tfidf:16"], judged="my-beir", sample=100)
    >>> found
    <Shortlist for my-store: tfidf:24, tfidf:16>
    >>> found.candidates[0].quality.estimate > 0
    True
    """

    def check(self) -> None:
        """Make sure that there are queries, and targets that differ."""
        self.check_queries(is_pooled=True)
        if not self.targets:
            raise UsageError("no target is named; name the models to choose among")
        if self.price is not None and len(self.targets) > 1:
            raise UsageError("--price is that of one target; leave it out, or name one target")
        names = [target for target in self.targets if isinstance(target, str)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"--target {twice} is there twice; leave one out")

    def open(self, context: RunContext | None = None) -> ChooseJob:
        """Open the store, the models and the queries. Nothing is embedded."""
        from migrate.pipeline.shortlist import open_choice

        return open_choice(self, context or RunContext())


choose = function(Choose)
