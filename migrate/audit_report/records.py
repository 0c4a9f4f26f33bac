"""The report of an audit as records: what its JSON document holds, each part of the type that it has to be of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import fsum, inf, isfinite, nan
from typing import Any, Final, Literal, TypeVar

from migrate.audit_report.names import AGREEMENT, FULL, NDCG, TRANSLATED
from migrate.manifest import ModelIdentity
from migrate.outcome import Bounds, Outcome, figure
from migrate.reading import Extensible, MalformedError, expect, typed

Value = TypeVar("Value")

_BY_MEASURE: Final = ("means", "per_query")
"""Tables whose names are measures."""

_NO_LIMITS: Final = {"estimate": nan, "lower": -inf, "upper": inf}
"""What null is for bounds."""

_ROUNDED: Final = 1e-4
"""A difference between figures that are the same."""

_LARGEST: Final = 1e15
"""Larger figures are of no audit, and no chart has room for them."""


@dataclass(frozen=True, slots=True)
class ReportedVerdict(Extensible):
    """The outcome with the numbers it rests on; `retention` is that of `measured`, `margin` the one that was asked for.

    SAFE is `safe_from` on, NOT SAFE is `not_safe_below`. `queries` are in `groups` that are independent, which is
    `counted` in words. `basis` is what a `provisional` verdict rests on. `caveats` belong beside it, `doubts` say why
    nothing is SAFE.
    """

    outcome: Outcome
    sentence: str
    provisional: bool
    measured: Literal["retention", "agreement@10"]
    retention: Bounds
    safe_from: float
    not_safe_below: float
    margin: float
    gain_over_stay: Bounds | None
    worse_than_stay: bool
    better_than_stay: bool
    queries: int
    groups: int
    counted: str
    queries_needed: int | None
    measure: str
    basis: str | None
    caveats: tuple[str, ...]
    doubts: tuple[str, ...]

    def figure(self, value: float) -> str:
        """Return a share of what was measured as people read it."""
        return figure(value, provisional=self.provisional)


@dataclass(frozen=True, slots=True)
class Dataset(Extensible):
    """The queries, by the name of where they are from, and the documents that were searched."""

    name: str
    queries: int
    documents: int


@dataclass(frozen=True, slots=True)
class Comparison(Extensible):
    """An arm against its standard: retention of the deciding measure, and queries won, tied and lost."""

    retention: Bounds
    wins: int
    ties: int
    losses: int
    standard: str = FULL


@dataclass(frozen=True, slots=True)
class ReportedArm(Extensible):
    """An arm: its mean scores by measure, those of each query, how it compares, and what it costs."""

    name: str
    meaning: str
    means: Mapping[str, float | None]
    per_query: Mapping[str, Any]
    against: Comparison | None
    seconds: float
    tokens: float | None
    usd: float | None


@dataclass(frozen=True, slots=True)
class ReportedPlan(Extensible):
    """The plan that was asked about, its outcome, and the verdict in one sentence."""

    name: str
    outcome: Outcome
    sentence: str


@dataclass(frozen=True, slots=True)
class Option(Extensible):
    """One way to go on. Bounds of `retention` hold for all options together where one is picked by them.

    `tokens` are those of the target model for documents, the proof included where it had to be embedded, `usd` their
    price; `tokens_left`, `usd_left` and `seconds_left` are what of it is still to be paid after the audit; None where
    unknown. A two-stage option costs more with every query: its figures are for as many as judged.
    """

    name: str
    retention: Bounds
    tokens: float | None
    usd: float | None
    tokens_left: float | None
    usd_left: float | None
    is_safe: bool
    seconds_left: float | None = None

    @property
    def cost(self) -> float:
        """Dollars in all, or tokens where there is no price; infinite where neither is known."""
        return next((cost for cost in (self.usd, self.tokens) if cost is not None), inf)

    @property
    def remaining(self) -> float:
        """The part of `cost` that is still to be paid."""
        return next((cost for cost in (self.usd_left, self.tokens_left) if cost is not None), inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation(Extensible):
    """The way to go on with, and the one command that does it.

    `plan` is `stay`, `translated`, `two-stage 20`, `reembed 30%`, `full re-embed` or another arm, None where nothing is
    sure; the `headline` says what it keeps, and what staying and the translated store keep beside it. What it still
    costs is in dollars where there is a price, in seconds where the model's rate was measured, and in tokens;
    `remaining` says it in words, and is empty where that is not known. `command` are words to type after the program's
    name, `serving` lines of Python for a plan that is more than a store.
    """

    plan: str | None
    headline: str
    retention: Bounds | None = None
    left_usd: float | None = None
    left_seconds: float | None = None
    left_tokens: float | None = None
    remaining: str = ""
    command: tuple[str, ...] | None = None
    serving: tuple[str, ...] = ()
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ReportedHeldOut(Extensible):
    """The verdict without the documents that have true vectors, in words."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Hit(Extensible):
    """A retrieved document: the beginning of its text, and its grade where it is judged."""

    doc_id: str
    text: str
    grade: int | None


@dataclass(frozen=True, slots=True)
class Regression(Extensible):
    """A query that loses: its score by the deciding measure and its first documents, by arm.

    The arms are `full re-embed`, `translated`, and `stay` where it is there.
    """

    query_id: str
    text: str
    scores: Mapping[str, float]
    hits: Mapping[str, tuple[Hit, ...]]


@dataclass(frozen=True, slots=True)
class Slice(Extensible):
    """The queries that have one `value` `by` something; mean scores by the deciding measure, and retention."""

    by: str
    value: str
    queries: int
    full: float
    translated: float
    retention: Bounds


@dataclass(frozen=True, slots=True)
class Threshold(Extensible):
    """An old threshold, and the new ones that keep its pass rate and its precision.

    A pass rate is the share (0-1) of hits that pass, a precision the share of these that are relevant.
    `precision_old` and `precision_new` are of what passes `old` and `same_pass_rate`; None without judgements.
    `same_precision` is the loosest new threshold that is as precise as the old one; None where none is.
    """

    old: float
    pass_rate: float
    same_pass_rate: float
    precision_old: float | None
    precision_new: float | None
    same_precision: float | None


@dataclass(frozen=True, slots=True)
class Histogram(Extensible):
    """The spread of the scores of an arm's hits: `edges`, (b + 1,), and `counts`, (b,)."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ThresholdTable(Extensible):
    """Thresholds of the store before and after; scores are those of the first ten hits of every query.

    `metrics` say what a score is, old and new: an inner product must be at least the threshold, a squared distance at
    most.
    """

    metrics: tuple[Literal["ip", "l2"], Literal["ip", "l2"]]
    thresholds: tuple[Threshold, ...]
    histograms: Mapping[str, Histogram]


@dataclass(frozen=True, slots=True)
class Hubness(Extensible):
    """The frequency of documents among the ten nearest neighbours of others, in a sample of `documents`.

    `skewness` is that of the counts (Radovanović, Nanopoulos & Ivanović 2010, JMLR 11, eq. 1): 0 without
    hubs. `largest` is the highest count, `orphans` the share (0-1) of documents that nobody has among its neighbours.
    """

    arm: str
    documents: int
    skewness: float
    largest: int
    orphans: float


@dataclass(frozen=True, slots=True)
class ReportedDiagnostics(Extensible):
    """Causes of the figures: queries that lose, parts of the queries, thresholds, and hubs."""

    regressions: tuple[Regression, ...]
    slices: tuple[Slice, ...]
    calibration: ThresholdTable | None
    hubness: tuple[Hubness, ...]


@dataclass(frozen=True, slots=True)
class OwnSearch(Extensible):
    """Quality of a store's own search beside exact search, by the deciding measure.

    `arm` is the arm that asks the store, `index` its index with the setting of its search. `exactly` and `by_index` are
    what either search keeps of the full re-embed (retention, or agreement@10), `of_exact` is the mean score by the
    index over that by exact search; None where the standard finds nothing. `remedy` says what keeps at least 99 % of
    exact search, with the line of code or the option; None where the index does. `setting` is the smallest value of
    those that were tried that does so, and `setting_keeps` what it keeps; None where none does. `is_safe_exactly` says
    that exact search would be SAFE, and `sentence` has both figures and the remedy.
    """

    arm: str
    index: str
    exactly: float | None
    by_index: float | None
    of_exact: float | None
    is_safe_exactly: bool
    sentence: str
    setting: int | None = None
    setting_keeps: float | None = None
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class ReportedStep(Extensible):
    """A step of a pool: to what `depth` for some `queries`, and how many documents that took."""

    depth: int
    queries: int
    documents: int
    sampled: int
    tokens: int | None
    usd: float | None


@dataclass(frozen=True, slots=True)
class ReportedPool(Extensible):
    """The pool that stood for a full re-embed: true vectors of a `share` of all documents; `exact` is for all.

    `depth` is how far it goes for a query where it goes furthest.
    """

    depth: int
    documents: int
    share: float
    exact: bool
    sentences: tuple[str, ...]
    steps: tuple[ReportedStep, ...]


@dataclass(frozen=True, slots=True)
class ModelSpending(Extensible):
    """Tokens that a model was expected to be asked for, and those that it was; dollars are None without a price.

    `role` is `target` or `source model`.
    """

    model: str
    role: str
    estimated_tokens: int
    estimated_usd: float | None
    tokens: int
    usd: float | None


@dataclass(frozen=True, slots=True)
class ReportedMigration(Extensible):
    """The run that an audit is the end of: the store that was moved, and what each model cost.

    Models that cost no money are not among `spending`. `is_continued` says that an earlier attempt had left part of
    the work, whose spending is not counted.
    """

    source: str
    is_continued: bool
    spending: tuple[ModelSpending, ...]


@dataclass(frozen=True, slots=True)
class Provenance(Extensible):
    """The manifest of a report: when and by which version it was made, with which models, seed and resamples."""

    created: str
    tool_version: str
    seed: int | None
    model: ModelIdentity | None
    source_model: ModelIdentity | None
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReportedAudit(Extensible):
    """All that the report of an audit says: the parts of its document that people see.

    `store` is the translated store, and `migration` is there where a run made it. `family` are the arms that could
    serve instead, with bounds that hold for all of them at once, `missing` has what the arms that were skipped need.
    `query_texts` are in the order of `query_ids`.
    """

    store: str
    verdict: ReportedVerdict
    dataset: Dataset
    arms: tuple[ReportedArm, ...]
    family: Mapping[str, Bounds]
    plan: ReportedPlan
    recommendation: Recommendation
    options: tuple[Option, ...]
    missing: Mapping[str, str]
    skipped_arms: tuple[str, ...]
    held_out: ReportedHeldOut | None
    diagnostics: ReportedDiagnostics
    query_ids: tuple[str, ...]
    query_texts: tuple[str, ...]
    notes: tuple[str, ...]
    searches: tuple[OwnSearch, ...]
    manifest: Provenance
    pool: ReportedPool | None = None
    migration: ReportedMigration | None = None

    def arm(self, name: str) -> ReportedArm:
        """Return the arm of that name; KeyError where there is none."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)


def audit_in(document: Mapping[str, Any]) -> ReportedAudit:
    """Return the audit in the document of an audit, in the order in which reports have them.

    Raises
    ------
    MalformedError
        A part is missing or of another type, or parts do not go together; the message names it.
    """
    measured = expect(document, {"verdict": {"measured": str}})["verdict"]["measured"]
    names = {field.name for record in (ReportedAudit, ReportedDiagnostics) for field in fields(record)}
    shown = _as_measured({name: document[name] for name in document if name in names}, measured)
    # In the document the diagnostics stand beside the other parts, not in a table of their own
    diagnostics = typed(ReportedDiagnostics, shown)
    audit = typed(ReportedAudit, {**shown, "diagnostics": diagnostics})
    _check_arms(audit)
    _check_options(audit)
    _check_bounds(audit)
    _check_diagnostics(audit)
    # Tables come in the order of the arms: JSON keeps none, and people edit reports
    order = [arm.name for arm in audit.arms]
    regressions = tuple(replace(lost, hits=_in_order(lost.hits, order)) for lost in diagnostics.regressions)
    return replace(
        audit,
        family=_in_order(audit.family, order),
        missing=_in_order(audit.missing, audit.skipped_arms),
        diagnostics=replace(diagnostics, regressions=regressions),
    )


def _as_measured(value: Any, measured: str) -> Any:
    """Return a part in which what was measured is called `retention`, and a bound that is null has no limit.

    JSON has no infinite numbers, and neither has a document of ours.
    """
    if isinstance(value, Mapping):
        table: dict[str, Any] = {}
        is_bounds = value.keys() == _NO_LIMITS.keys()
        for name, item in value.items():
            if is_bounds and item is None:
                table[name] = _NO_LIMITS[name]
            elif name in _BY_MEASURE:  # its own names are measures, one of which may be the one that was measured
                table[name] = item
            elif name == measured:
                table["retention"] = _as_measured(item, measured)
            else:
                table[name] = _as_measured(item, measured)
        return table
    if isinstance(value, list):
        return [_as_measured(item, measured) for item in value]
    # Also NaN, which Python reads from JSON although JSON has none
    if isinstance(value, int | float) and not abs(value) < _LARGEST:
        raise MalformedError(f"a number of {value}")
    return value


def _in_order(table: Mapping[str, Value], names: Sequence[str]) -> dict[str, Value]:
    """Return a table by the order of some names; JSON has none."""
    position_of = {name: position for position, name in enumerate(names)}
    return dict(sorted(table.items(), key=lambda item: position_of.get(item[0], len(position_of))))


def _check_arms(audit: ReportedAudit) -> None:
    """Make sure that the arms that reports look for are there, with a score for each query, and the means of these."""
    count = len(audit.query_ids)
    if audit.query_texts and len(audit.query_texts) != count:
        raise MalformedError(f"{len(audit.query_texts):,} 'query_texts' of {count:,} queries")
    names = [arm.name for arm in audit.arms]
    for name in (FULL, TRANSLATED):
        if name not in names:
            raise MalformedError(f"'arms' has no {name!r}")
    if audit.arm(TRANSLATED).against is None:
        raise MalformedError(f"'arms' has nothing that {TRANSLATED!r} is held against")
    for arm in audit.arms:
        _check_scores(arm, count)
        # Charts rank arms and queries by it; other measures may be missing for single queries
        deciding = arm.per_query.get(audit.verdict.measure)
        if deciding is None or None in deciding:
            raise MalformedError(f"{arm.name!r} has no {audit.verdict.measure}")
    if audit.plan.name != TRANSLATED and audit.plan.name not in audit.family:
        raise MalformedError(f"'family' has no {audit.plan.name!r}")


def _check_options(audit: ReportedAudit) -> None:
    """Make sure that the ways to go on that every audit has are there."""
    retained = {option.name: option.retention for option in audit.options}
    for name in (FULL, TRANSLATED):
        if name not in retained:
            raise MalformedError(f"'options' has no {name!r}")
    if not retained[FULL].is_known:  # charts are scaled by it
        raise MalformedError(f"'options' has no retention of {FULL!r}")


def _check_scores(arm: ReportedArm, count: int) -> None:
    """Make sure that there is a score of each query, by each measure, and that their means are those that are shown."""
    for measure, scores in arm.per_query.items():
        if not isinstance(scores, list) or len(scores) != count or not all(map(_is_score, scores)):
            raise MalformedError(f"{measure} of {arm.name!r} is no score of each query")
        if not _is_score(arm.means.get(measure)):
            raise MalformedError(f"the mean {measure} of {arm.name!r} is out of range")
        if None not in scores and not _is_mean(arm.means.get(measure), scores):
            raise MalformedError(f"{measure} of {arm.name!r} is not the mean of that of each query")


def _is_score(value: Any) -> bool:
    # Not `isinstance`: true and false are numbers for Python
    return value is None or (type(value) in (int, float) and abs(value) < _LARGEST)


def _is_mean(value: float | None, scores: Sequence[float]) -> bool:
    """Return whether a value is the mean of scores, which may have been computed with few digits."""
    if value is None:
        return not scores
    return abs(value - fsum(scores) / len(scores)) < _ROUNDED


def _check_bounds(audit: ReportedAudit) -> None:
    """Make sure that bounds that are known are numbers; none need be above."""
    bounded = [audit.verdict, *audit.options, *audit.diagnostics.slices, *(arm.against for arm in audit.arms)]
    retained = [part.retention for part in bounded if part is not None]
    for bounds in (*retained, *audit.family.values()):
        if bounds.is_known and not (isfinite(bounds.estimate) and isfinite(bounds.lower)):
            raise MalformedError(f"{bounds.estimate} between the bounds {bounds.lower} and {bounds.upper}")


def _check_diagnostics(audit: ReportedAudit) -> None:
    """Make sure that what charts and lists need is there."""
    for lost in audit.diagnostics.regressions:
        if not {FULL, TRANSLATED} <= lost.scores.keys():
            raise MalformedError(f"the scores of the query {lost.query_id!r} are not those of both stores")
    # `details` hold anything, and this one is shown as a number
    if type(audit.manifest.details.get("resamples", 0)) is not int:
        raise MalformedError("'manifest.details.resamples' is no whole number")
    if audit.pool is not None and not audit.pool.sentences:
        raise MalformedError("'pool.sentences' is empty")
    calibration = audit.diagnostics.calibration
    if calibration is None:
        return
    if not calibration.thresholds:
        raise MalformedError("'calibration.thresholds' is empty")
    if not calibration.histograms:
        raise MalformedError("'calibration.histograms' is empty")
    for name, histogram in calibration.histograms.items():
        if not histogram.counts or len(histogram.edges) != len(histogram.counts) + 1:
            raise MalformedError(f"'calibration.histograms.{name}' has {len(histogram.edges)} edges")


def arm_rows(audit: ReportedAudit) -> Iterator[dict[str, Any]]:
    """Yield a row an arm: means, retention with its bounds, costs."""
    for arm in audit.arms:
        row: dict[str, Any] = {"arm": arm.name, **_by_order(arm.means)}
        if arm.against is not None:
            bounds = arm.against.retention
            row |= {"retention": bounds.estimate, "retention_lower": bounds.lower, "retention_upper": bounds.upper}
            row |= {"wins": arm.against.wins, "ties": arm.against.ties, "losses": arm.against.losses}
            row |= {"standard": arm.against.standard}
        yield {**row, "seconds": arm.seconds, "tokens": arm.tokens, "usd": arm.usd, "meaning": arm.meaning}


def query_rows(audit: ReportedAudit) -> Iterator[dict[str, Any]]:
    """Yield a row a query and arm, with its scores."""
    for arm in audit.arms:
        columns = _by_order(arm.per_query)
        for position, query_id in enumerate(audit.query_ids):
            scores = {measure: scores[position] for measure, scores in columns.items()}
            yield {"query_id": query_id, "arm": arm.name, **scores}


_MEASURES: Final = (
    AGREEMENT,
    NDCG,
    "recall@100",
    "MRR@10",
    "judged@10",
    "overlap@1",
    "overlap@10",
    "overlap@100",
    "RBO",
)
"""The order of columns."""


def _by_order(table: Mapping[str, Value]) -> dict[str, Value]:
    return _in_order(table, _MEASURES)
