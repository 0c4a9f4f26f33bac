"""The choice among several models: an audit of a move to each, and their results in one table.

For each target it does what `run` does, in a folder that goes away: a stitch from a sample, a translated store, and an
audit by a pool. The embedding cache keeps what was paid for, so that a run to the chosen one pays for little more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any
from uuid import uuid4

from migrate.audit.bounds import CONFIDENCE, Bounds
from migrate.audit.measures import Scores
from migrate.audit.query_set import QuerySet
from migrate.audit.result import AuditResult
from migrate.audit.results import FULL, NDCG, STAY
from migrate.check.already import is_recorded_of
from migrate.cost.estimate import duration
from migrate.cost.rates import CALIBRATION_TEXTS, measure_rate, tier_rate
from migrate.cost.spending import TARGET, PlannedModel
from migrate.display import dollars
from migrate.embedders.base import Embedder
from migrate.embedders.openai import MANY_TEXTS
from migrate.errors import UsageError
from migrate.facts import document
from migrate.pipeline import Run
from migrate.pipeline.job import RunJob, inputs_of, judging_queries, run_job
from migrate.pipeline.options import ChooseOptions
from migrate.report.page import notebook_piece
from migrate.report.sections import Either, Listed, Report, TextTable
from migrate.selection import draw_sample
from migrate.steps.base import Job, RunContext
from migrate.steps.opening import model_at, source_model_of, store_of
from migrate.stores.base import Store, StoreInfo

A_TARGET = "a target"
"""Role of the targets, of which there are several."""


_NONE = "-"
_HEAD = ("target", "nDCG@10", "against staying", "a translation keeps", "verdict", "price", "time")
_COSTS = 4
"""The first column of what a terminal has in a table below."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that a store may move to.

    Attributes
    ----------
    name : the model as it was named
    result : the audit of the store that was translated for it
    quality : nDCG@10 of a full re-embed, None where nothing is judged
    gain : by how much that is more than staying scores, query by query, None where one of them is not known
    tokens, usd, minutes : of a full re-embed, None where unknown
    """

    name: str
    result: AuditResult
    quality: Bounds | None
    gain: Bounds | None
    tokens: float | None
    usd: float | None
    minutes: float | None

    @property
    def is_better(self) -> bool:
        """True where a full re-embed by it is significantly better than staying."""
        return self.gain is not None and self.result.verdict.observations.has_enough and self.gain.lower > 0

    @property
    def row(self) -> list[str]:
        """Its row of the table."""
        scale = self.result.verdict.scale
        retention = self.result.verdict.retention
        retained = _NONE
        if retention.is_known:
            retained = f"{scale.figure(retention.estimate)} ({scale.span(retention)})"
        price = _NONE
        if self.usd is not None:
            price = dollars(self.usd)
        time = _NONE
        if self.minutes is not None:
            time = duration(self.minutes)
        return [
            self.name,
            _score(self.quality),
            _score(self.gain, form="+.3f"),
            retained,
            self.result.outcome.value,
            price,
            time,
        ]

    def as_document(self) -> dict[str, Any]:
        """Return its facts, as values that JSON holds."""
        verdict = self.result.verdict
        return {
            "name": self.name,
            "quality": self.quality,
            "gain_over_stay": self.gain,
            "is_better": self.is_better,
            verdict.scale.measured: verdict.retention,
            "outcome": self.result.outcome,
            "tokens": self.tokens,
            "usd": self.usd,
            "minutes": self.minutes,
            "doubts": self.result.examination.doubts,
        }


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The candidates for a store, in the order in which they were named.

    `stay` is the nDCG@10 of the store's model, None where it cannot be asked or nothing is judged. `confidence` is that
    of the bounds of a candidate: all of them together hold with 95 %.
    """

    store: StoreInfo
    stay: Bounds | None
    confidence: float
    candidates: tuple[Candidate, ...]

    def __repr__(self) -> str:
        return f"<Shortlist for {self.store.location}: {', '.join(it.name for it in self.candidates)}>"

    def _repr_html_(self) -> str:
        return notebook_piece(self.sentence, TextTable(self.rows))

    @property
    def best(self) -> Candidate | None:
        """The candidate with the highest quality among those that are better than staying; None where none is."""
        qualities = [
            (candidate.quality.estimate, candidate)
            for candidate in self.candidates
            if candidate.is_better and candidate.quality is not None
        ]
        if not qualities:
            return None
        return max(qualities, key=itemgetter(0))[1]

    @property
    def rows(self) -> list[list[str]]:
        """The table: a head, staying where it is known what that answers, and a row for each target."""
        rows = [list(_HEAD)]
        if self.stay is not None:
            unknown = [_NONE] * (len(_HEAD) - 2)
            rows.append(["stay", _score(self.stay), *unknown])
        return [*rows, *(candidate.row for candidate in self.candidates)]

    @property
    def sentence(self) -> str:
        """The answer: which of them is best."""
        best = self.best
        if any(candidate.quality is None for candidate in self.candidates):
            return (
                "nothing is judged: the table says what a translation keeps of each target, not which of them answers "
                "best; give judged queries with --judged"
            )
        if self.stay is None:
            return (
                "whether any of these is better than staying is not known: the store's model cannot be asked; name it "
                "with --source-model"
            )
        if best is None or best.quality is None or best.gain is None:
            return "none of these is shown to answer better than staying does; stay, unless your model goes away"
        return (
            f"{best.name}: nDCG@10 {best.quality.estimate:.3f} in a full re-embed, {best.gain.estimate:+.3f} against "
            f"staying ({best.gain.lower:+.3f} to {best.gain.upper:+.3f}), significantly better"
        )

    @property
    def notes(self) -> list[str]:
        """Remarks on the figures, for the reader."""
        result = self.candidates[0].result
        doubts = [
            f"{candidate.name}: {doubt}"
            for candidate in self.candidates
            for doubt in candidate.result.examination.doubts
        ]
        return [
            f"by {result.verdict.observations.counted} of {result.data.name}; bounds of quality are one-sided, and "
            "hold for all targets together with 95 %",
            "nDCG@10 is that of a full re-embed, which a pool can only make too high; what a translation keeps is a "
            "share of it, with the verdict of `run`",
            "price and time are those of a full re-embed; the time is as measured here, or by the limits of the "
            "provider's first tier",
            *doubts,
        ]

    def to_report(self) -> Report:
        """Return the table and what it says, for a terminal and a page."""
        answered = TextTable([row[:_COSTS] for row in self.rows])
        costs = TextTable([[row[0], *row[_COSTS:]] for row in self.rows])
        stacked = [answered, costs]  # as a terminal is too narrow for both
        marked = [number for number, row in enumerate(self.rows[1:]) if self.best and row[0] == self.best.name]
        return Report(
            kind="Targets",
            title=f"Where to move {self.store.name}",
            lead=Either(self.sentence),
            sections={
                "The targets": Either(TextTable(self.rows, marked=marked), stacked),
                "How this is known": Listed(self.notes),
            },
            closing=self.sentence,
        )

    def as_document(self) -> dict[str, Any]:
        """Return all of it, as values that JSON holds."""
        result = self.candidates[0].result
        best = None
        if self.best is not None:
            best = self.best.name
        content = {
            "store": {"path": self.store.location, "format": self.store.kind, "dim": self.store.dim},
            "dataset": result.data.name,
            "measure": result.data.measure,
            "queries": result.verdict.observations.counted,
            "confidence": self.confidence,
            "stay": self.stay,
            "targets": [candidate.as_document() for candidate in self.candidates],
            "best": best,
            "answers": [self.sentence],
            "notes": self.notes,
        }
        return document("choose", content)


def scores_of_staying(result: AuditResult) -> Scores | None:
    """Return the scores of staying by nDCG@10; None without that arm or judgements."""
    return next((arm.scores.get(NDCG) for arm in result.arms if arm.name == STAY), None)


def _score(bounds: Bounds | None, *, form: str = ".3f") -> str:
    """Return an estimate, and the span of its bounds."""
    if bounds is None:
        return _NONE
    return f"{bounds.estimate:{form}} ({bounds.lower:{form}} to {bounds.upper:{form}})"


@dataclass(frozen=True, kw_only=True, eq=False)
class ChooseJob(Job[Shortlist]):
    """A choice whose store, models and queries are open; `targets` are the models to choose among, by their names."""

    options: ChooseOptions
    store: Store
    targets: Mapping[str, Embedder]
    source_model: Embedder | None
    query_set: QuerySet

    def execute(self) -> Shortlist:
        """Audit a move to each of the targets, one after the other."""
        # The best of several looks better than it is, so each may be wrong in a part of the audits alone (Bonferroni)
        confidence = 1 - (1 - CONFIDENCE) / len(self.targets)
        candidates = tuple(self._judge(name, model, confidence) for name, model in self.targets.items())
        result = candidates[0].result
        stay = None
        staying = scores_of_staying(result)
        if staying is not None and result.rules is not None:
            # Staying is searched as a whole: the floor of a pool is of the full re-embed alone
            stay = replace(result.rules, floor=None).quality(staying, confidence=confidence)
        return Shortlist(self.store.info, stay, confidence, candidates)

    def _judge(self, name: str, model: Embedder, confidence: float) -> Candidate:
        """Move the store to a folder that goes away, and audit it there."""
        with TemporaryDirectory() as folder:
            try:
                run = Path(folder) / "run"
                job = _run_to(model, run, self.options, self.store, self.source_model, self.query_set, self.context)
                result = job.execute().result
            except KeyboardInterrupt as error:
                # The notes tell how to go on with the parts that are done, in a folder that goes away now
                error.__notes__ = []
                raise
        full = result.arm(FULL)
        rules = result.rules
        usd = full.usd
        if model.profile.is_paid is False:
            usd = 0.0
        quality = None
        gain = None
        if rules is not None and rules.query_set.is_judged:
            scores = full.scores[result.data.measure]
            quality = rules.quality(scores, confidence=confidence)
            staying = scores_of_staying(result)
            if staying is not None:
                gain = rules.gain(scores, staying, confidence=confidence)
        return Candidate(name, result, quality, gain, full.tokens, usd, self._minutes(model, full.tokens))

    def _minutes(self, model: Embedder, tokens: float | None) -> float | None:
        """Return how long a full re-embed takes, as measured here or by the limits of the provider's first tier.

        What is measured here is a model that costs no money, by texts that it embeds again.
        """
        profile = model.profile
        count = self.store.info.count
        if profile.is_paid is False and profile.kind != "file":
            texts = draw_sample(self.store, CALIBRATION_TEXTS, seed=self.options.seed).documents
            return measure_rate(model, texts, again=True).minutes(count, 0)
        if not profile.rate_limits or tokens is None:
            return None
        return tier_rate().minutes(count / MANY_TEXTS, tokens)


def open_choice(options: ChooseOptions, context: RunContext) -> ChooseJob:
    """Open what a choice names, as it is by itself. Nothing is embedded."""
    store = store_of(options.store, verify=True)
    if isinstance(options.targets, Mapping):
        targets = options.targets
    else:
        targets = {}
        for target in options.targets:
            model = model_at(target)
            name = model.profile.spec
            if isinstance(target, str):
                name = target
            targets[name] = model
    return choose_job(options, store, targets, source_model_of(store, options.source_model), context)


def choose_job(
    options: ChooseOptions,
    store: Store,
    targets: Mapping[str, Embedder],
    source_model: Embedder | None,
    context: RunContext,
) -> ChooseJob:
    """Return the choice among what is open, after making sure that it can be done. Nothing is embedded."""
    # A target that the store is of already would be its own full re-embed
    for name, model in targets.items():
        if is_recorded_of(store, model):
            raise UsageError(f"{store.info.location} is of {name} already; leave that target out")
    query_set = options.load_queries(store, progress=context.progress)
    return ChooseJob(
        options=options,
        context=context,
        models=tuple(_planned(options, store, targets, source_model, query_set, context)),
        store=store,
        targets=targets,
        source_model=source_model,
        query_set=query_set,
    )


def _planned(
    options: ChooseOptions,
    store: Store,
    targets: Mapping[str, Embedder],
    source_model: Embedder | None,
    query_set: QuerySet,
    context: RunContext,
) -> Iterator[PlannedModel]:
    """Yield the targets, each for a sample, a pool and the queries, and the source model for the queries, once."""
    # Nothing is written there: runs are opened alone
    folder = Path(gettempdir()) / f"lead-migrate-{uuid4().hex}"
    for number, model in enumerate(targets.values()):
        for planned in _run_to(model, folder, options, store, source_model, query_set, context).models:
            if planned.role == TARGET:
                yield replace(planned, role=A_TARGET)
            # The source model embeds the queries once, whatever the number of targets: the cache has them then
            elif not number:
                yield planned


def _run_to(
    target: Embedder,
    folder: Path,
    options: ChooseOptions,
    store: Store,
    source_model: Embedder | None,
    query_set: QuerySet,
    context: RunContext,
) -> RunJob:
    """Return the run to one of the targets."""
    run = Run(
        options.store,
        target,
        folder,
        judged=query_set,
        reference="pool",
        sample=options.sample,
        margin=options.margin,
        price=options.price,
        seed=options.seed,
    )
    inputs = inputs_of(run, store, target, source_model, context)
    return run_job(inputs, judging_queries(inputs, query_set))
