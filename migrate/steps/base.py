"""The form of a step: fields that are parameters and options at once, an estimate, a run, a function made of it.

A step is a request: it holds what was asked for, and never changes. `open` gives the job: a record of the opened
stores, models and stitches, with what the models will be asked for, and the work.

The module of a step imports no library, as `--help` reads the options from its fields; what does the work comes late.
"""

from __future__ import annotations

import inspect
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ForwardRef,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    overload,
)

from migrate.progress import Progress, no_progress

if TYPE_CHECKING:
    from migrate.cost.count import CacheLookup
    from migrate.cost.meter import SpendingCap
    from migrate.cost.spending import PlanEstimate, PlannedModel
    from migrate.embedders.base import Embedder
    from migrate.steps.translate.choice import Choice
    from migrate.stitch.fitted import FittedStitch
    from migrate.stores.base import Store

    StoreLike: TypeAlias = Store | str | Path
    """A store by its path, or opened, as Python may have it already; `migrate.steps.opening` takes either."""
    ModelLike: TypeAlias = Embedder | str
    """A model by its spec, or loaded, likewise."""

P = ParamSpec("P")
Result = TypeVar("Result", covariant=True)
StepKind = TypeVar("StepKind", bound="Step[Any]")

PARAMETERS = "Parameters\n----------\n"
"""Heads the parameters in a docstring, as numpydoc has them."""

COST, GENERAL, LEARNING, QUERIES = "Cost", "General", "Sample and stitch", "Queries"
"""Titles of sections of a help text."""


def new_cap() -> SpendingCap:
    """Return a new spending cap, without a limit yet."""
    from migrate.cost.meter import SpendingCap

    return SpendingCap()


def argument(text: str, kind: str, **settings: Any) -> Mapping[str, Any]:
    """Return the metadata of a field that a command takes by its place; the rest is as in `option`."""
    return {"help": text, "kind": kind, "is_argument": True, **settings}


def option(
    text: str,
    kind: str = "",
    *,
    flags: Sequence[str] = (),
    is_seldom: bool = False,
    **settings: Any,
) -> Mapping[str, Any]:
    """Return the metadata of a field that is an option: its help text, a `kind` as in `migrate.cli.options`, or a flag.

    Its name is that of the field, unless `flags` says otherwise; one that `is_seldom` needed is shown by `--help-all`
    alone in a command with many options. `settings` are click's, and `section`, the title that it stands under in the
    help text.
    """
    return {"help": text, "kind": kind, "is_seldom": is_seldom, "flags": flags, **settings}


def parameter(text: str) -> Mapping[str, Any]:
    """Return the metadata of a field that no option stands for, as it is an object of Python."""
    return {"help": text}


FORCE = option("Replace what --output names if it exists.", section=GENERAL)
FORCE_REPORTS = option("Replace the files of --report if they exist.", section=GENERAL)
RESTART = option("Discard what an earlier run left unfinished.", section=GENERAL, is_seldom=True)
SEED = option("Seed for everything that is random.", "seed", section=GENERAL, is_seldom=True)
PRICE = option(
    "Dollars per million tokens of the target model, 0 for a free one.  [default: the registry's]",
    "price",
    metavar="USD",
    section=COST,
)

QUERY_LOG = option(
    "Queries of users, one per line, or JSONL with `text`; documents near the top of their results go first.",
    "path",
    metavar="FILE",
)

JUDGED = option(
    "Judged queries: a BEIR folder, or the name of a BEIR set to download; NAME:dev for the split of qrels/dev.tsv.",
    "text",
    metavar="DIR|NAME",
    section=QUERIES,
)
UNJUDGED = option(
    "Queries without judgements, instead of --judged: a file with one query per line, or JSONL with `text`; or "
    "the word `synthetic`, to make some from the documents. The verdict is then provisional.",
    "text",
    metavar="FILE|synthetic",
    section=QUERIES,
)
SPLIT = parameter("The qrels/SPLIT.tsv to judge by, where `judged` does not say one.")
HOLD_OUT = option(
    "Percent of the queries, such as 50%, to hold out of an audit by a pool: they can judge the store "
    "later, unlike the queries that choose its documents.",
    "text",
    metavar="PERCENT",
    section=QUERIES,
    is_seldom=True,
)
GROUP_FIELD = option(
    "Metadata field of the queries, such as topic or user, by which queries are grouped: each group counts as "
    "one observation. Queries with similar vectors always do.",
    "text",
    metavar="FIELD",
    section=QUERIES,
    is_seldom=True,
)
MARGIN = option("Share of the full re-embed's quality that must be retained.", "share")
LOWEST_MARGIN = 0.5
"""Below it SAFE is said of what loses most of the quality, which is remarked beside the verdict."""
PLAN = option(
    "Arm that the verdict and the exit code are about: translated, together, bridge, two-stage-N or together-N.",
    "text",
    metavar="NAME",
)

RANKED_QUERIES = option(
    "Queries, drawn at random, that a pool embeds the first documents of, where the plan ranks again: of the others it "
    "embeds what the plan may lose.  [default: all]",
    "count",
    metavar="N",
    is_seldom=True,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Step(ABC, Generic[Result]):
    """A step that is not done yet: its parameters, and nothing that is open.

    What nobody types, such as who hears of progress, are parameters of `run`.
    """

    def check(self) -> None:
        """Make sure, before anything is opened, that parameters go together."""

    @abstractmethod
    def run(self) -> Result:
        """Check the parameters, and do the work."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PaidOptions:
    """The options that all steps have that embed."""

    max_cost: float | None = field(
        default=5.0,
        metadata=option(
            "The most dollars to spend on models without asking; spending stops there.",
            "usd",
            metavar="USD",
            section=COST,
        ),
    )


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Announce:
    """Called as a re-embedding or an audit goes on; what raises stops it before anything further is paid for.

    Attributes
    ----------
    log
        With the target model and the queries of the log, before these are embedded, which the policy needs to choose.
    choice
        With the documents that were chosen, and the target model, before it embeds them.
    stitch
        With the stitch that came of it.
    pool
        With each step of a pool, before its documents are embedded.
    """

    log: Callable[[PlannedModel], None] = _ignore
    choice: Callable[[Choice, PlannedModel], None] = _ignore
    stitch: Callable[[FittedStitch], None] = _ignore
    pool: Callable[[Any], None] = _ignore  # a PoolStep, which this room does not know


@dataclass(frozen=True, kw_only=True, eq=False)
class RunContext:
    """The callbacks and the cap that a step is opened with, besides what was asked for.

    Attributes
    ----------
    progress
        Called with a step, how much of it is done, and how much there is.
    cap
        Counts what all models together have spent; steps that are given the same share it.
    announce
        Called with what is to be embedded, where that is chosen as the work goes on.
    margin_from
        Origin of the margin of a verdict, such as the name of a file, for the report.
    """

    progress: Progress = no_progress
    cap: SpendingCap = field(default_factory=new_cap)
    announce: Announce = field(default_factory=Announce)
    margin_from: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Job(ABC, Generic[Result]):
    """The stores and models of a step, opened, and the work.

    Attributes
    ----------
    options
        What was asked for.
    context
        Who hears of progress, and the cap that the models share.
    models
        The models that may be asked, each with the texts that are still to be embedded.
    """

    options: PaidOptions
    context: RunContext
    models: tuple[PlannedModel, ...]

    @property
    def cap(self) -> SpendingCap:
        """The cap that the models share."""
        return self.context.cap

    @property
    def max_cost(self) -> float | None:
        """Dollars that may be spent without a question; None for no limit."""
        return self.options.max_cost

    def estimate(self) -> PlanEstimate:
        """Count and price what the models that cost money will be asked for. Nothing is embedded.

        Counted once: after a run it still says what was expected before.
        """
        from migrate.cost.spending import estimate_of

        return estimate_of(self.models, progress=self.context.progress)

    @abstractmethod
    def execute(self) -> Result:
        """Do the work."""

    def run(self) -> Result:
        """Do the work if the estimate is within `max_cost`, and spend no more than that; None is for no limit.

        Raises
        ------
        SpendingError
            The estimate is beyond it, and nothing was spent; or it was too low, and what would have gone beyond was not
            sent. What was paid for is in the cache, where there is one.
        """
        if self.max_cost is not None:
            self.estimate().refuse_beyond(self.max_cost)
        # The estimate may be too low, so the meters hold the limit as well
        self.cap.cap_usd = self.max_cost
        return self.execute()


@dataclass(frozen=True, kw_only=True, eq=False)
class JobStep(PaidOptions, Step[Result]):
    """A step that embeds, and opens what it names into a job."""

    @abstractmethod
    def open(self, context: RunContext | None = None) -> Job[Result]:
        """Open what the step names, and make sure that it goes together. Nothing is embedded."""

    def estimate(self) -> PlanEstimate:
        """Count and price what the models that cost money will be asked for. Nothing is embedded."""
        return self.open().estimate()

    def run(self, *, progress: Progress = no_progress, cap: SpendingCap | None = None) -> Result:
        """Check the parameters, and do the work within `max_cost`, as the job does.

        Parameters
        ----------
        progress
            Called with a step, how much of it is done, and how much there is.
        cap
            Counts what all models together have spent; steps that are given the same share it.
        """
        self.check()
        return self.open(RunContext(progress=progress, cap=cap or new_cap())).run()


def typed_name(given: object | None) -> str | None:
    """Return the name that was typed for a field which Python also takes objects for; None where it was left out."""
    if given is None:
        return None
    return str(given)


def step_like(kind: type[StepKind], options: PaidOptions, **changes: Any) -> StepKind:
    """Return a step of a kind with the options of another step, as far as it has those, but for the `changes`."""
    names = {field.name for field in fields(kind)} & {field.name for field in fields(options)}
    return kind(**{name: getattr(options, name) for name in names - changes.keys()}, **changes)


def fields_of(step: type[Any]) -> list[Field[Any]]:
    """Return the fields of a step as a reader expects them: first those that go by their place, last those of all."""
    shared = {field.name for field in fields(PaidOptions)}
    return sorted(fields(step), key=lambda field: (field.name in shared, field.kw_only))


class Function(Protocol[P, Result]):
    """The function of a step, which takes what the step does, and by its name what `run` takes.

    A call without any of the latter is checked by the types of the fields.
    """

    @overload
    def __call__(self, *arguments: P.args, **options: P.kwargs) -> Result: ...
    @overload
    def __call__(self, *arguments: Any, progress: Progress, **options: Any) -> Result: ...
    @overload
    def __call__(self, *arguments: Any, cap: SpendingCap, **options: Any) -> Result: ...
    @overload
    def __call__(self, *arguments: Any, announce: Any, **options: Any) -> Result: ...
    @overload
    def __call__(self, *arguments: Any, margin_from: str, **options: Any) -> Result: ...
    @overload
    def __call__(self, *arguments: Any, cached: CacheLookup, **options: Any) -> Result: ...


def function(step: Callable[P, Step[Result]]) -> Function[P, Result]:
    """Return the function of the library that makes a step and runs it.

    Its parameters are the fields of the step, and after these what `run` takes besides.
    """
    kind = cast("type[Step[Any]]", step)

    def call(*arguments: P.args, **options: P.kwargs) -> Result:
        try:
            signature.bind(*arguments, **options)
        except TypeError as error:
            # Python's own message would name the class of the step, which the caller has not written
            raise TypeError(f"{call.__name__}(): {error}") from None
        run_with = {name: options.pop(name) for name in of_run if name in options}
        result: Result = kind(*arguments, **options).run(**run_with)
        return result

    # `help()`, notebooks and the site show the step as if it had been written as a function
    call.__name__ = call.__qualname__ = kind.__name__.lower()
    call.__module__ = kind.__module__
    call.__doc__ = _docstring(kind)
    of_step = inspect.signature(kind).parameters
    of_run = dict(inspect.signature(kind.run).parameters)
    del of_run["self"]
    parameters = [*(of_step[field.name] for field in fields_of(kind)), *of_run.values()]
    signature = inspect.Signature(parameters, return_annotation=_result_of(kind))
    call.__signature__ = signature  # type: ignore[attr-defined]
    return cast("Function[P, Result]", call)


def _result_of(step: type[Step[Any]]) -> str:
    """Return the name of what a step comes to, which its class has in brackets after that of its base."""
    (result,) = (name for base in step.__orig_bases__ for name in get_args(base))  # type: ignore[attr-defined]
    # A result whose module needs libraries is named in quotes, so that `--help` need not import it
    if isinstance(result, ForwardRef):
        return result.__forward_arg__
    return str(result.__name__)


def _docstring(step: type[Step[Any]]) -> str:
    """Return the text of a step with its parameters, which stand in the fields and in `run`, before what it raises."""
    text = inspect.getdoc(step) or ""
    head, mark, errors = text.partition("Raises\n------\n")
    entries = []
    for parameter_field in fields_of(step):
        # Four of the 120 columns are for the indentation
        help_text = textwrap.fill(parameter_field.metadata["help"], 116)
        entries.append(f"{parameter_field.name}\n{textwrap.indent(help_text, '    ')}")
    _, _, of_run = (inspect.getdoc(step.run) or "").partition(PARAMETERS)
    if of_run:
        entries.append(of_run)
    return f"{head}{PARAMETERS}" + "\n".join(entries) + f"\n\n{mark}{errors}"
