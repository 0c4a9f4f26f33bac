"""A check as plain text that fits 100 columns, the answer first, as JSON, and as an HTML page."""

from __future__ import annotations

import shlex
from typing import Any

from migrate.check.model import Agreement, Compatibility, Found, Trial
from migrate.check.stamp import Stamped
from migrate.embedders.kinds import with_settings
from migrate.report.characters import printable
from migrate.report.facts import as_plain, document
from migrate.report.page import Content, Page, element, items, sentence, stamp, words
from migrate.report.page import table as html_table
from migrate.report.terminal import cut, paragraphs, table, wrap, wrapped

_BASES = {
    "manifest": "judged by the manifest; no text was embedded",
    "sample": "judged by texts that were embedded again",
    "facts": "judged without embedding a text",
}


def check_text(result: Compatibility) -> str:
    """Return the answer, the findings, the figures, the documents that disagree, and what was tried to explain them."""
    fits = result.found is not None and result.found.model != result.model
    examples = [
        [cut(printable(one.doc_id), 36), f"{one.row:,}", f"{one.cosine:.4f}", cut(one.taken_for, 40)]
        for one in result.examples
    ]
    return paragraphs(
        wrapped([answer_line(result), *([f"what fits: {_typed(result.found)}"] if fits and result.found else [])]),
        wrapped(_findings(result)),
        "" if result.figures is None else wrapped(_figure_sentences(result.figures)),
        table([["document", "row", "cosine", "taken for"], *examples]) if examples else "",
        _trials(result.trials) if result.trials and not result.compatible else "",
        wrapped(f"note: {note}" for note in result.notes),
    )


def answer_line(result: Compatibility) -> str:
    """Say whether it is compatible, with which model, and why."""
    if result.compatible:
        return f"compatible with {result.model.spec}: {result.sentence}"
    return f"not compatible with {result.model.spec}: {result.cause.value}: {result.sentence}"


def _typed(found: Found) -> str:
    return shlex.join(["--model", with_settings(found.spec, found.options)])


def stamp_text(stamp: Stamped) -> str:
    """Return what the stamp rests on, and where it is."""
    lines = [f"stamped: {stamp.path}" if stamp.path else "not stamped: nothing was written"]
    if (found := stamp.found) is not None:
        agree = f"{found.agreeing} of {found.sampled} sampled documents agree"
        lines = [wrap(f"as the last check has found: {_typed(found)}; {agree}"), *lines]
    return paragraphs("" if stamp.checked is None else check_text(stamp.checked), "\n".join(lines))


def _findings(result: Compatibility) -> list[str]:
    """What was looked at; what the answer has said already is only named."""
    lines = [_BASES[result.basis]]
    for finding in result.findings:
        said = "" if finding.message == result.sentence else f": {finding.message}"
        lines.append(f"{'ok ' if finding.ok else 'NOT'}  {finding.name}{said}")
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


def _trials(trials: tuple[Trial, ...]) -> str:
    """The ways that came nearest."""
    rows = [
        [cut(f"embedded {trial.meaning}", 70), f"{trial.agreeing} of {trial.tried}", f"{trial.median_cosine:.4f}"]
        for trial in _nearest(trials)[:5]
    ]
    return table([[f"the nearest of {len(trials)} other ways", "agree", "median cosine"], *rows])


def _nearest(trials: tuple[Trial, ...]) -> list[Trial]:
    return sorted(trials, key=lambda trial: (-trial.agreeing / trial.tried, -trial.median_cosine))


def check_page(result: Compatibility) -> str:
    """Return the page: the answer, what it rests on, and what was tried to explain it."""
    colour = "good" if result.compatible else "bad"
    said = [[" ", sentence(line)] for line in (result.sentence, _BASES[result.basis])]
    failed = [place for place, finding in enumerate(result.findings) if not finding.ok]
    looked = html_table(finding_rows(result), text_columns=[2], marked=failed)
    figures = [] if result.figures is None else _figure_sentences(result.figures)
    sections: dict[str, Content] = {"What was looked at": [looked, [element("p", sentence(line)) for line in figures]]}
    if result.trials and not result.compatible:
        rows = [
            [trial.meaning, str(trial.agreeing), str(trial.tried), f"{trial.median_cosine:.4f}"]
            for trial in _nearest(result.trials)
        ]
        tried = (
            f"Sampled texts were embedded again in {len(result.trials)} other ways. Where one agrees, the stored "
            "vectors were made in that way."
        )
        trials = html_table([["embedded", "agree", "of", "median cosine"], *rows], text_columns=[0])
        sections["What would explain it"] = [element("p", tried), trials]
    if result.examples:
        rows = [[one.doc_id, f"{one.row:,}", f"{one.cosine:.4f}", one.taken_for] for one in result.examples]
        examples = html_table([["document", "row", "cosine", "taken for"], *rows], text_columns=[0, 3])
        sections["Documents that disagree"] = examples
    if result.notes:
        sections["Notes"] = items(map(words, result.notes))
    return Page(
        kind=f"lead-migrate check of {result.store}",
        title=f"The vectors are {'' if result.compatible else 'not '}those of {result.model.spec}",
        lead=element("p", stamp(result.cause.value, colour), said, class_="lead"),
        sections=sections,
    ).html()


def finding_rows(result: Compatibility) -> list[list[str]]:
    """Return a head, and a row for each thing that was looked at."""
    rows = [[finding.name, "yes" if finding.ok else "NO", finding.message] for finding in result.findings]
    return [["looked at", "as expected", "what was there"], *rows]


def check_document(result: Compatibility) -> dict[str, Any]:
    """Everything the check knows, as values that JSON holds."""
    facts = {name: fact for name, fact in as_plain(result).items() if name != "suits_queries"}
    return document("check", {**facts, "compatible": result.compatible})


def stamp_document(stamp: Stamped) -> dict[str, Any]:
    """Where the manifest was written, null if nowhere, and the check it rests on, null if it was left out.

    `found` is what an earlier check had found, where it rests on that.
    """
    checked = None if stamp.checked is None else check_document(stamp.checked)
    return document("stamp", {"manifest": stamp.path, "check": checked, "found": stamp.found})
