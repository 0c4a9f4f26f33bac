"""Choose: what a full re-embed by each of several models would answer, before a store is moved to one of them.

For each target it does what `run` does, in a folder that goes away: a stitch from a sample, a translated store, and an
audit by a pool. The embedding cache keeps what was paid for, so that a run to the chosen one pays for little more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, cast
from uuid import uuid4

from migrate.audit.judged import JudgedStep
from migrate.errors import UsageError
from migrate.pipeline import Run
from migrate.steps.base import argument, function, parameter
from migrate.steps.fit import SAMPLE, SOURCE_MODEL

if TYPE_CHECKING:
    from migrate.audit.query_set import QuerySet
    from migrate.audit.shortlist import Candidate, Shortlist
    from migrate.cost.spending import PlannedModel
    from migrate.embedders.base import Embedder
    from migrate.pipeline.job import Migration
    from migrate.steps.base import ModelLike, StoreLike
    from migrate.stores.base import Store

A_TARGET = "a target"
"""Role of the targets, of which there are several."""


@dataclass(frozen=True, eq=False)
class Choose(JudgedStep["Shortlist"]):
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

    store: StoreLike = field(metadata=argument("A store with texts, or its path.", "store"))
    targets: Sequence[ModelLike] | Mapping[str, Embedder] = field(
        metadata=parameter("Models to choose among; or a name for each.")
    )
    _: KW_ONLY
    source_model: ModelLike | None = field(default=None, metadata=SOURCE_MODEL)
    sample: int = field(default=1_000, metadata=SAMPLE)

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

    @cached_property
    def opened(self) -> Store:
        """The store, opened."""
        from migrate.steps.opening import store_of

        return store_of(self.store, verify=True)

    @cached_property
    def models_by_name(self) -> Mapping[str, Embedder]:
        """The targets, loaded, by their names."""
        from migrate.check.again import is_recorded_of
        from migrate.steps.opening import model_at

        if isinstance(self.targets, Mapping):
            named: Mapping[str, Embedder] = self.targets
        else:
            loaded = [(target, model_at(target)) for target in self.targets]
            named = {target if isinstance(target, str) else model.profile.spec: model for target, model in loaded}
        own = next((name for name, model in named.items() if is_recorded_of(self.opened, model)), None)
        if own is not None:
            raise UsageError(f"{self.opened.info.location} is of {own} already; leave that target out")
        return named

    @cached_property
    def query_set(self) -> QuerySet:
        """The queries that judge, the same for all targets."""
        return self.load_queries(self.opened)

    def _run(self, model: Embedder, folder: Path) -> Run:
        return Run(
            self.opened,
            model,
            folder,
            judged=self.query_set,
            reference="pool",
            sample=self.sample,
            source_model=self.source_model,
            margin=self.margin,
            price=self.price,
            seed=self.seed,
            announce=self.announce,
            progress=self.progress,
            cap=self.cap,
        )

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The targets, each for a sample, a pool and the queries, and the source model for the queries, once."""
        return tuple(self._planned())

    def _planned(self) -> Iterator[PlannedModel]:
        from migrate.cost.spending import TARGET

        folder = Path(gettempdir()) / f"lead-migrate-{uuid4().hex}"  # nothing is written there
        for number, model in enumerate(self.models_by_name.values()):
            for planned in self._run(model, folder).models:
                if planned.role == TARGET:
                    yield replace(planned, role=A_TARGET)
                elif not number:
                    yield planned

    def execute(self) -> Shortlist:
        """Judge the targets one after the other."""
        from migrate.audit.shortlist import Shortlist
        from migrate.audit.verdict import CONFIDENCE
        from migrate.embedders import facts_of

        store, models = self.opened, self.models_by_name
        confidence = 1 - (1 - CONFIDENCE) / len(models)  # the best of several looks better than it is
        candidates = tuple(self._judge(name, model, confidence) for name, model in models.items())
        recorded = None if store.info.manifest is None else store.info.manifest.model
        old_model, report = self._old_model(), candidates[0].report
        revision = recorded.revision if recorded is not None and recorded.spec == old_model else None
        stay = None
        if report.stay is not None and report.rules is not None:
            stay = replace(report.rules, floor=None).quality(report.stay, confidence=confidence)
        return Shortlist(
            store=store.info,
            old_model=old_model,
            old=None if old_model is None else facts_of(old_model, revision),
            stay=stay,
            dataset=report.dataset,
            measure=report.measure,
            queries=report.verdict.counted,
            confidence=confidence,
            candidates=candidates,
        )

    def _old_model(self) -> str | None:
        """Return the spec of the store's model; None where nobody says which it is."""
        manifest = self.opened.info.manifest
        if self.source_model is not None:
            return self.source_model if isinstance(self.source_model, str) else self.source_model.profile.spec
        return None if manifest is None or manifest.model is None else manifest.model.spec

    def _judge(self, name: str, model: Embedder, confidence: float) -> Candidate:
        """Move the store to a folder that goes away, and audit it there."""
        from migrate.audit.results import FULL
        from migrate.audit.shortlist import Candidate
        from migrate.embedders import facts_of

        with TemporaryDirectory() as folder:
            try:
                report = cast("Migration", self._run(model, Path(folder) / "run").execute()).report
            except KeyboardInterrupt as error:
                error.__notes__ = []  # of parts that are done, in a folder that goes away now
                raise
        full, rules, quality, gain = report.arm(FULL), report.rules, None, None
        if rules is not None and rules.query_set.is_judged:
            scores = full.scores[report.measure]
            quality = rules.quality(scores, confidence=confidence)
            gain = None if report.stay is None else rules.gain(scores, report.stay, confidence=confidence)
        identity, profile = model.identity, model.profile.at_price(self.price)
        return Candidate(
            name,
            profile,
            facts_of(identity.spec, identity.revision),
            report,
            quality,
            gain,
            full.tokens,
            full.usd,
            self._minutes(model, full.tokens),
            identity.dim,
        )

    def _minutes(self, model: Embedder, tokens: float | None) -> float | None:
        """Return how long a full re-embed takes, as measured here or by the limits of the provider's first tier.

        What is measured here is a model that costs no money, by texts that it embeds again.
        """
        from migrate.cost.rates import CALIBRATION_TEXTS, measure_rate, tier_rate
        from migrate.embedders.openai import MANY_TEXTS
        from migrate.selection import draw_sample

        profile, count = model.profile, self.opened.info.count
        if profile.is_paid is False and profile.kind != "file":
            texts = draw_sample(self.opened, CALIBRATION_TEXTS, seed=self.seed).documents
            return measure_rate(model, texts, again=True).minutes(count, 0)
        return tier_rate().minutes(count / MANY_TEXTS, tokens) if profile.rate_limits and tokens is not None else None


choose = function(Choose)
