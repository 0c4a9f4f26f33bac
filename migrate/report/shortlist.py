"""The candidates of a store side by side, in sections and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from migrate.audit.shortlist import Candidate, Shortlist
from migrate.audit.verdict import Bounds
from migrate.cost.assess import going_away
from migrate.cost.estimate import dollars, duration
from migrate.embedders import ModelFacts
from migrate.manifest import today
from migrate.report.assess import size_text
from migrate.report.facts import as_plain, document
from migrate.report.sections import Either, Listed, Report, TextTable
from migrate.report.svg.charts import Interval, IntervalChart, interval_chart
from migrate.report.terminal import filled_columns

_STAY = "stay"
_NONE = "-"


def shortlist_sections(found: Shortlist) -> Report:
    """Return the answer, and one table: what each target answers, keeps, costs and is."""
    sentences, rows = answers(found), shortlist_rows(found)
    answered, costs = ([_part(row, part) for row in rows] for part in (_ANSWERS, _COSTS))
    marked = [number for number, name in enumerate(_names(found)) if found.best and name == found.best.name]
    chart = _chart(found)
    whole = TextTable(filled_columns(rows), marked=marked)
    stacked = [TextTable(filled_columns(part), marked=marked) for part in (answered, costs)]
    return Report(
        kind="Targets",
        title=f"Where to move {found.store.name}",
        lead=Either(sentences),
        sections={
            "The targets": [None if chart is None else Either(chart.figure()), Either(whole, stacked)],
            "How this is known": Listed(notes(found)),
        },
        closing=sentences,
    )


_HEAD = (
    "target", "nDCG@10", "against staying", "a translation keeps",
    "verdict on that", "price", "time", "dimension", "store", "licence", "lifecycle",
)  # fmt: skip
_ANSWERS, _COSTS = (0, 1, 2, 3), (0, *range(4, len(_HEAD)))
"""Columns of what targets answer and of what they cost, which a terminal has one below the other."""


def _part(row: list[str], columns: tuple[int, ...]) -> list[str]:
    return [row[column] for column in columns]


def _names(found: Shortlist) -> list[str]:
    return [*([_STAY] if found.stay is not None else []), *(candidate.name for candidate in found.candidates)]


def shortlist_rows(found: Shortlist) -> list[list[str]]:
    """Return a head, staying where it is known what that answers, and a row for each target."""
    rows = [list(_HEAD)]
    if found.stay is not None:
        facts = _facts(found.old, is_local=False)
        size = [f"{found.store.dim:,}", size_text(found.bytes_now)]
        rows.append([_STAY, _score(found.stay), *[_NONE] * 5, *size, *facts])
    return rows + [_row(candidate) for candidate in found.candidates]


def _row(candidate: Candidate) -> list[str]:
    verdict, profile = candidate.report.verdict, candidate.profile
    kept = verdict.retention
    price = "free" if profile.is_paid is False else _NONE
    return [
        candidate.name,
        _score(candidate.quality),
        _score(candidate.gain, form="+.3f"),
        f"{verdict.figure(kept.estimate)} ({verdict.span(kept)})" if kept.is_known else _NONE,
        candidate.report.outcome.value,
        price if candidate.usd is None else dollars(candidate.usd),
        _NONE if candidate.minutes is None else duration(candidate.minutes),
        f"{candidate.dim:,}",
        size_text(candidate.bytes_after),
        *_facts(candidate.facts, is_local=profile.is_local),
    ]


def _score(bounds: Bounds | None, *, form: str = ".3f") -> str:
    """Return an estimate, and the span of its bounds."""
    if bounds is None:
        return _NONE
    return f"{bounds.estimate:{form}} ({bounds.lower:{form}} to {bounds.upper:{form}})"


def _facts(facts: ModelFacts | None, *, is_local: bool) -> list[str]:
    """Return the licence of the weights and the lifecycle, as far as the registry says them."""
    if facts is None:
        return [_NONE, _NONE]
    return [facts.licence or _NONE, _NONE if is_local and not facts.legacy else facts.lifecycle(today())]


def answers(found: Shortlist) -> list[str]:
    """Say which target answers best, the most important first."""
    return [*_departures(found), *_answers(found)]


def _departures(found: Shortlist) -> Iterator[str]:
    """Say which of the models are off, or will be, each once."""
    seen = [*going_away(found.old, None)]
    seen += [line for candidate in found.candidates for line in _named(candidate)]
    yield from dict.fromkeys(seen)


def _named(candidate: Candidate) -> Iterator[str]:
    for line in going_away(None, candidate.facts):
        yield line.replace("the target", candidate.name, 1)


def _answers(found: Shortlist) -> Iterator[str]:
    if any(candidate.quality is None for candidate in found.candidates):
        yield (
            f"nothing is judged: what a translation keeps of each target is known by {found.measure}, and not which of "
            "them answers best; give judged queries with --judged"
        )
        return
    if found.stay is None:
        yield (
            "whether any of these is better than staying is not known: the store's model cannot be asked; name it with "
            "--source-model"
        )
        return
    best = found.best
    if best is not None and best.quality is not None and best.gain is not None:
        among = "" if len(found.candidates) == 1 else "the best of these by its estimate, "
        yield (
            f"{best.name}: {among}nDCG@10 {best.quality.estimate:.3f} in a full re-embed, {best.gain.estimate:+.3f} "
            f"against staying ({best.gain.lower:+.3f} to {best.gain.upper:+.3f}), significantly better"
        )
    else:
        yield "none of these is shown to answer better than staying does; stay, unless your model goes away"
    worse = [candidate.name for candidate in found.candidates if candidate.is_worse]
    if worse:
        yield f"significantly worse than staying: {', '.join(worse)}"


def notes(found: Shortlist) -> list[str]:
    """Return what a reader should know of the figures."""
    lines = [
        f"by {found.queries} of {found.dataset}; bounds of quality are one-sided, and hold for all targets together "
        "with 95 %",
        "nDCG@10 is that of a full re-embed, against staying its difference query by query; what a translation keeps "
        "is a share of it, with the verdict of `run`",
        "time is that of a full re-embed: as measured here, or by the limits of the provider's first tier; price and "
        "store are those of all documents",
    ]
    for candidate in found.candidates:
        pool = candidate.report.pool
        if pool is not None:
            lines.append(f"{candidate.name}: {pool.sentences[0]}")
        lines += [f"{candidate.name}: {doubt}" for doubt in candidate.report.doubts]
    if any(candidate.report.pool and not candidate.report.pool.is_exact for candidate in found.candidates):
        lines.append(
            "in a pool a full re-embed scores the most that it can: its upper bounds are guaranteed, its estimates and "
            "lower bounds are by a sample of what is outside"
        )
    return lines


def _chart(found: Shortlist) -> IntervalChart | None:
    """Draw the quality of each target against that of staying."""
    shown = [(candidate, candidate.quality) for candidate in found.candidates if candidate.quality is not None]
    if found.stay is None or not shown:
        return None
    rows = [
        Interval(candidate.name, quality.lower, quality.estimate, quality.upper, marked=candidate is found.best)
        for candidate, quality in shown
    ]
    label = f"{found.measure} of a full re-embed"
    return interval_chart(label, rows, margin=found.stay.estimate, label=label, level=_STAY)


def shortlist_document(found: Shortlist) -> dict[str, Any]:
    """Return all of it, as values that JSON holds."""
    info = found.store
    content = {
        "store": {"path": info.location, "format": info.kind, "index_type": info.index_type, "dim": info.dim},
        "model": found.old_model,
        "lifecycle": None if found.old is None else found.old.lifecycle(today()),
        "dataset": found.dataset,
        "measure": found.measure,
        "queries": found.queries,
        "confidence": found.confidence,
        "stay": found.stay,
        "targets": [_candidate_document(candidate) for candidate in found.candidates],
        "best": None if found.best is None else found.best.name,
        "answers": answers(found),
        "notes": notes(found),
    }
    return document("choose", content)


def _candidate_document(candidate: Candidate) -> dict[str, Any]:
    verdict, profile, facts = candidate.report.verdict, candidate.profile, candidate.facts
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
        "bytes_after": candidate.bytes_after,
        "licence": None if facts is None else facts.licence,
        "lifecycle": None if facts is None else facts.lifecycle(today()),
        "doubts": candidate.report.doubts,
    }
