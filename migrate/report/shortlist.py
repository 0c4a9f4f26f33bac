"""The candidates of a store side by side, in sections and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from migrate.audit.shortlist import Candidate, Shortlist
from migrate.audit.verdict import Bounds
from migrate.cost.assess import model_sentences
from migrate.cost.estimate import dollars, duration
from migrate.embedders import ModelFacts
from migrate.manifest import today
from migrate.report.facts import as_plain, document
from migrate.report.sections import Either, Listed, Report, TextTable
from migrate.report.svg.charts import Interval, IntervalChart, interval_chart
from migrate.report.terminal import filled_columns

_STAY = "stay"
_NONE = "-"


def shortlist_sections(shortlist: Shortlist) -> Report:
    """Return the answer, and one table: what each target answers, keeps, costs and is."""
    sentences, rows = answer_sentences(shortlist), shortlist_rows(shortlist)
    answered, costs = ([[row[column] for column in columns] for row in rows] for columns in (_ANSWERS, _COSTS))
    marked = [number for number, name in enumerate(_names(shortlist)) if shortlist.best and name == shortlist.best.name]
    chart = _chart(shortlist)
    whole = TextTable(filled_columns(rows), marked=marked)
    stacked = [TextTable(filled_columns(table), marked=marked) for table in (answered, costs)]
    return Report(
        kind="Targets",
        title=f"Where to move {shortlist.store.name}",
        lead=Either(sentences),
        sections={
            "The targets": [None if chart is None else Either(chart.figure()), Either(whole, stacked)],
            "How this is known": Listed(notes(shortlist)),
        },
        closing=sentences,
    )


_HEAD = (
    "target", "nDCG@10", "against staying", "a translation keeps",
    "verdict on that", "price", "time", "dimension", "licence", "lifecycle",
)  # fmt: skip
_ANSWERS, _COSTS = (0, 1, 2, 3), (0, *range(4, len(_HEAD)))
"""Columns of what targets answer and of what they cost, which a terminal has one below the other."""


def _names(shortlist: Shortlist) -> list[str]:
    return [*([_STAY] if shortlist.stay is not None else []), *(candidate.name for candidate in shortlist.candidates)]


def shortlist_rows(shortlist: Shortlist) -> list[list[str]]:
    """Return a head, staying where it is known what that answers, and a row for each target."""
    rows = [list(_HEAD)]
    if shortlist.stay is not None:
        standing = _standing(shortlist.old, is_local=False)
        rows.append([_STAY, _score(shortlist.stay), *[_NONE] * 5, f"{shortlist.store.dim:,}", *standing])
    return rows + [_row(candidate) for candidate in shortlist.candidates]


def _row(candidate: Candidate) -> list[str]:
    verdict, profile = candidate.report.verdict, candidate.profile
    retention = verdict.retention
    price = "free" if profile.is_paid is False else _NONE
    return [
        candidate.name,
        _score(candidate.quality),
        _score(candidate.gain, form="+.3f"),
        f"{verdict.figure(retention.estimate)} ({verdict.span(retention)})" if retention.is_known else _NONE,
        candidate.report.outcome.value,
        price if candidate.usd is None else dollars(candidate.usd),
        _NONE if candidate.minutes is None else duration(candidate.minutes),
        f"{candidate.dim:,}",
        *_standing(candidate.entry, is_local=profile.is_local),
    ]


def _score(bounds: Bounds | None, *, form: str = ".3f") -> str:
    """Return an estimate, and the span of its bounds."""
    if bounds is None:
        return _NONE
    return f"{bounds.estimate:{form}} ({bounds.lower:{form}} to {bounds.upper:{form}})"


def _standing(entry: ModelFacts | None, *, is_local: bool) -> list[str]:
    """Return the licence of the weights and the lifecycle, as far as the registry says them."""
    if entry is None:
        return [_NONE, _NONE]
    return [entry.licence or _NONE, _NONE if is_local and not entry.legacy else entry.lifecycle(today())]


def answer_sentences(shortlist: Shortlist) -> list[str]:
    """Say which target answers best, the most important first."""
    return [*_on_models(shortlist), *_answers(shortlist)]


def _on_models(shortlist: Shortlist) -> Iterator[str]:
    """Say what is to be known of the models before any figure."""
    yield from model_sentences(shortlist.old, None)
    for candidate in shortlist.candidates:
        for sentence in model_sentences(shortlist.old, candidate.entry):
            if sentence.startswith("the target: "):
                yield sentence.replace("the target", candidate.name, 1)


def _answers(shortlist: Shortlist) -> Iterator[str]:
    if any(candidate.quality is None for candidate in shortlist.candidates):
        yield (
            f"nothing is judged: by {shortlist.measure} the table says what a translation keeps of each target, not "
            "which of them answers best; give judged queries with --judged"
        )
        return
    if shortlist.stay is None:
        yield (
            "whether any of these is better than staying is not known: the store's model cannot be asked; name it with "
            "--source-model"
        )
        return
    best = shortlist.best
    if best is not None and best.quality is not None and best.gain is not None:
        among = "" if len(shortlist.candidates) == 1 else "the best of these by its estimate, "
        yield (
            f"{best.name}: {among}nDCG@10 {best.quality.estimate:.3f} in a full re-embed, {best.gain.estimate:+.3f} "
            f"against staying ({best.gain.lower:+.3f} to {best.gain.upper:+.3f}), significantly better"
        )
    else:
        yield "none of these is shown to answer better than staying does; stay, unless your model goes away"
    worse = [candidate.name for candidate in shortlist.candidates if candidate.is_worse]
    if worse:
        yield f"significantly worse than staying: {', '.join(worse)}"


def notes(shortlist: Shortlist) -> list[str]:
    """Return what a reader should know of the figures."""
    lines = [
        f"by {shortlist.queries} of {shortlist.dataset}; bounds of quality are one-sided, and hold for all targets "
        "together with 95 %",
        "nDCG@10 is that of a full re-embed, against staying its difference query by query; what a translation keeps "
        "is a share of it, with the verdict of `run`",
        "time is that of a full re-embed: as measured here, or by the limits of the provider's first tier; so is "
        "the price",
    ]
    for candidate in shortlist.candidates:
        pool = candidate.report.pool
        if pool is not None:
            lines.append(f"{candidate.name}: {pool.sentences[0]}")
        lines += [f"{candidate.name}: {doubt}" for doubt in candidate.report.doubts]
    if any(candidate.report.pool and not candidate.report.pool.is_exact for candidate in shortlist.candidates):
        lines.append(
            "in a pool a full re-embed scores the most that it can: its upper bounds are guaranteed, its estimates and "
            "lower bounds are by a sample of what is outside"
        )
    return lines


def _chart(shortlist: Shortlist) -> IntervalChart | None:
    """Draw the quality of each target against that of staying."""
    drawn = [(candidate, candidate.quality) for candidate in shortlist.candidates if candidate.quality is not None]
    if shortlist.stay is None or not drawn:
        return None
    rows = [
        Interval(candidate.name, quality.lower, quality.estimate, quality.upper, marked=candidate is shortlist.best)
        for candidate, quality in drawn
    ]
    label = f"{shortlist.measure} of a full re-embed"
    return interval_chart(label, rows, margin=shortlist.stay.estimate, label=label, level=_STAY)


def shortlist_document(shortlist: Shortlist) -> dict[str, Any]:
    """Return all of it, as values that JSON holds."""
    info = shortlist.store
    content = {
        "store": {"path": info.location, "format": info.kind, "index_type": info.index_type, "dim": info.dim},
        "model": shortlist.old_model,
        "lifecycle": None if shortlist.old is None else shortlist.old.lifecycle(today()),
        "dataset": shortlist.dataset,
        "measure": shortlist.measure,
        "queries": shortlist.queries,
        "confidence": shortlist.confidence,
        "stay": shortlist.stay,
        "targets": [_candidate_document(candidate) for candidate in shortlist.candidates],
        "best": None if shortlist.best is None else shortlist.best.name,
        "answers": answer_sentences(shortlist),
        "notes": notes(shortlist),
    }
    return document("choose", content)


def _candidate_document(candidate: Candidate) -> dict[str, Any]:
    verdict, profile, entry = candidate.report.verdict, candidate.profile, candidate.entry
    return {
        "name": candidate.name,
        "spec": profile.spec,
        "quality": candidate.quality,
        "gain_over_stay": candidate.gain,
        "is_better": candidate.is_better,
        "is_worse": candidate.is_worse,
        verdict.measured: as_plain(verdict.retention),
        "outcome": candidate.report.outcome,
        "tokens": candidate.tokens,
        "usd": candidate.usd,
        "price_usd_per_mtok": profile.price_usd_per_mtok,
        "minutes": candidate.minutes,
        "dim": candidate.dim,
        "licence": None if entry is None else entry.licence,
        "lifecycle": None if entry is None else entry.lifecycle(today()),
        "doubts": candidate.report.doubts,
    }
