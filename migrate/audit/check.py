"""Check: the model of a store, held against its vectors, and what a difference costs in retrieval."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.progress import Progress, no_progress
from migrate.steps.base import JUDGED, PROGRESS, SEED, Step, function, option
from migrate.steps.stamp import CHECKED_SAMPLE, STORE, sample_size

if TYPE_CHECKING:
    from migrate.audit.query_set import QuerySet
    from migrate.check import Compatibility
    from migrate.check.check import ManifestUse
    from migrate.cost.spending import PlannedModel
    from migrate.steps.base import ModelLike, StoreLike


@dataclass(frozen=True, eq=False)
class Check(Step["Compatibility"]):
    """Tell whether the vectors of a store are those that a model gives to its texts, or why not.

    A manifest whose hash is that of the index answers at once, unless a `sample`, `full` or `judged` asks for more.
    Where the vectors are near the model's but not the same, the result says what that costs in retrieval.

    Raises
    ------
    VectorError
        A vector that was looked at is zero or not finite; or a model behind an API gives others than are in the cache.
    StoreError
        The store has texts, but none that is not blank.
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
            "help": "Judged queries, as for `audit`, that tell too what a difference costs; the sample is embedded "
            "even where a manifest answers.",
        },
    )
    seed: int = field(default=0, metadata=SEED)
    progress: Progress = field(default=no_progress, repr=False, metadata=PROGRESS)

    def planned_models(self) -> tuple[PlannedModel, ...]:
        """Open the store and the model, and return the model, for the texts that it is asked for at first."""
        from migrate.check.check import planned_texts
        from migrate.cost.meter import SpendingCap
        from migrate.cost.spending import PlannedModel
        from migrate.embedders.again import ASKED_AGAIN, needs_proof
        from migrate.steps.opening import model_at, store_of

        store, embedder = store_of(self.store), model_at(self.model)
        size = sample_size(self.sample, store)
        texts = planned_texts(store, embedder, sample=size, manifest=self._manifest_use, seed=self.seed)
        again = ASKED_AGAIN if needs_proof(embedder) else 0
        return (PlannedModel(embedder, SpendingCap(), documents=lambda: texts, again=again),)

    @property
    def _manifest_use(self) -> ManifestUse:
        asks_more = self.full or self.sample is not None or self.judged is not None
        return "compare" if asks_more else "trust"

    def execute(self) -> Compatibility:
        """Ask the manifest, or embed a sample and compare."""
        from migrate.audit.host import FEWEST_DOCUMENTS, retrieval_cost
        from migrate.audit.query_set import QuerySet, load_questions
        from migrate.check import check_store
        from migrate.embedders import facts_of
        from migrate.manifest import today
        from migrate.steps.opening import model_at, store_of

        questions = self.judged
        if questions is not None and not isinstance(questions, QuerySet):
            questions = load_questions(str(questions), progress=self.progress)
        store, embedder = store_of(self.store), model_at(self.model)
        size = sample_size(self.sample, store)
        result = check_store(
            store,
            embedder,
            sample=size,
            manifest=self._manifest_use,
            seed=self.seed,
            progress=self.progress,
            measure=partial(retrieval_cost, store, embedder, asked=size, questions=questions, seed=self.seed),
        )
        entry = facts_of(result.model.spec, result.model.revision)
        notes = ["" if entry is None else entry.going_away(today())]
        if questions is not None and size <= FEWEST_DOCUMENTS:
            notes.append(f"the judged queries were not asked: take a --sample of more than {FEWEST_DOCUMENTS}")
        return replace(result, notes=(*result.notes, *filter(None, notes)))


check = function(Check)
