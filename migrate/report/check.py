"""A check as plain text that fits 100 columns, the answer first, as JSON, and as an HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from migrate.check.model import Agreement, Compatibility, Example, Found, Trial
from migrate.check.stamp import Stamped
from migrate.report.characters import printable
from migrate.report.page import render_page
from migrate.report.terminal import table, wrap

SCHEMA_VERSION = 1

_BASES = {
    "manifest": "judged by the manifest; no text was embedded",
    "sample": "judged by texts that were embedded again",
    "facts": "judged without embedding a text",
}
_SHOWN = 5


def check_text(result: Compatibility) -> str:
    """The answer, the findings, the figures, the documents that disagree, and what was tried to explain them."""
    parts = [answer_line(result), *_fits(result), "", *_findings(result)]
    if result.figures is not None:
        parts += ["", *map(wrap, _figure_sentences(result.figures))]
    if result.examples:
        parts += ["", table([["document", "row", "cosine", "taken for"], *map(_example_row, result.examples)])]
    if result.trials and not result.compatible:
        parts += ["", _trials(result.trials)]
    return "\n".join([*parts, *([""] if result.notes else []), *(wrap(f"note: {note}") for note in result.notes)])


def answer_line(result: Compatibility) -> str:
    """Compatible or not, with which model, and why."""
    if result.compatible:
        return wrap(f"compatible with {result.model.spec}: {result.sentence}")
    return wrap(f"not compatible with {result.model.spec}: {result.cause.value}: {result.sentence}")


def _fits(result: Compatibility) -> list[str]:
    """The model that fits, where it is not the one that was asked about."""
    found = result.found
    if found is None or found.model == result.model:
        return []
    return [wrap(f"what fits: {_typed(found)}")]


def flags_of(options: Mapping[str, str | int]) -> list[str]:
    """Options of `load_embedder` as they are typed."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


def _typed(found: Found) -> str:
    return shlex.join(["--model", found.spec, *flags_of(found.options)])


def stamp_text(stamp: Stamped) -> str:
    """What the stamp rests on, and where it is."""
    parts = [] if stamp.checked is None else [check_text(stamp.checked), ""]
    if (found := stamp.found) is not None:
        agree = f"{found.agreeing} of {found.sampled} sampled documents agree"
        parts.append(wrap(f"as the last check has found: {_typed(found)}; {agree}"))
    return "\n".join([*parts, f"stamped: {stamp.path}" if stamp.path else "not stamped: nothing was written"])


def _findings(result: Compatibility) -> list[str]:
    """What was looked at; what the answer has said already is only named."""
    lines = [_BASES[result.basis]]
    for finding in result.findings:
        said = "" if finding.message == result.sentence else f": {finding.message}"
        lines.append(wrap(f"{'ok ' if finding.ok else 'NOT'}  {finding.name}{said}"))
    return lines


def _figure_sentences(figures: Agreement) -> list[str]:
    agreeing = f"{figures.agreeing} of {figures.sampled} sampled documents agree"
    lines = [
        f"{agreeing} (cosine of at least {1 - figures.tolerance:g}); median cosine {figures.median_cosine:.4f}, of "
        f"different texts {figures.chance_cosine:.4f}"
    ]
    if figures.agreeing == figures.sampled:
        missed = figures.disagreeing.upper
        sure = "no other text is left" if not missed else f"up to {missed:.1%} of the store could differ unseen"
        lines.append(f"{sure} (95 % confidence); --sample N|all looks further" if missed else sure)
    return lines


def _example_row(example: Example) -> list[str]:
    return [
        _cut(printable(example.doc_id), 36),
        f"{example.row:,}",
        f"{example.cosine:.4f}",
        _cut(example.taken_for, 40),
    ]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _trials(trials: tuple[Trial, ...]) -> str:
    """The ways that came nearest."""
    rows = [
        [_cut(f"embedded {trial.meaning}", 70), f"{trial.agreeing} of {trial.tried}", f"{trial.median_cosine:.4f}"]
        for trial in _nearest(trials)[:_SHOWN]
    ]
    return table([[f"the nearest of {len(trials)} other ways", "agree", "median cosine"], *rows])


def _nearest(trials: tuple[Trial, ...]) -> list[Trial]:
    return sorted(trials, key=lambda trial: (-trial.agreeing / trial.tried, -trial.median_cosine))


def check_page(result: Compatibility) -> str:
    """The page, complete in itself: the answer, what it rests on, and what was tried to explain it."""
    trials = [] if result.compatible else _nearest(result.trials)
    return render_page(
        "check.html",
        result=result,
        basis=_BASES[result.basis],
        finding_rows=[
            ["looked at", "as expected", "what was there"],
            *([finding.name, "yes" if finding.ok else "NO", finding.message] for finding in result.findings),
        ],
        failed=[place for place, finding in enumerate(result.findings) if not finding.ok],
        figure_sentences=[] if result.figures is None else _figure_sentences(result.figures),
        trial_rows=[
            ["embedded", "agree", "of", "median cosine"],
            *([trial.meaning, str(trial.agreeing), str(trial.tried), f"{trial.median_cosine:.4f}"] for trial in trials),
        ],
        example_rows=[
            ["document", "row", "cosine", "taken for"],
            *([one.doc_id, f"{one.row:,}", f"{one.cosine:.4f}", one.taken_for] for one in result.examples),
        ],
    )


def check_document(result: Compatibility) -> dict[str, Any]:
    """Everything the check knows, as values that JSON holds."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "check",
        "store": result.store,
        "model": asdict(result.model),
        "compatible": result.compatible,
        "cause": result.cause.value,
        "sentence": result.sentence,
        "basis": result.basis,
        "findings": [asdict(finding) for finding in result.findings],
        "figures": None if result.figures is None else asdict(result.figures),
        "trials": [asdict(trial) for trial in result.trials],
        "examples": [asdict(example) for example in result.examples],
        "found": None if result.found is None else asdict(result.found),
        "notes": list(result.notes),
    }


def stamp_document(stamp: Stamped) -> dict[str, Any]:
    """Where the manifest was written, null if nowhere, and the check it rests on, null if it was left out.

    `found` is what an earlier check had found, where it rests on that.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "stamp",
        "manifest": None if stamp.path is None else str(stamp.path),
        "check": None if stamp.checked is None else check_document(stamp.checked),
        "found": None if stamp.found is None else asdict(stamp.found),
    }
