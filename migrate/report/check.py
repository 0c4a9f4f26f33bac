"""A check in sections, the answer first, and as JSON."""

from __future__ import annotations

import shlex
from math import isfinite
from typing import Any

from migrate.check.comparison import Share
from migrate.check.model import Agreement, Compatibility, Found, Trial
from migrate.check.retrieval import RetrievalCost
from migrate.check.stamp import Stamped
from migrate.cost.estimate import dollars
from migrate.display import percent
from migrate.embedders.kinds import with_settings
from migrate.facts import as_plain, document
from migrate.report.page import element, sentence, stamp
from migrate.report.sections import Block, Either, Listed, Report, TextTable
from migrate.report.terminal import paragraphs, report_text, wrap

_BASES = {
    "manifest": "judged by the manifest; no text was embedded",
    "sample": "judged by texts that were embedded again",
    "facts": "judged without embedding a text",
}


def check_sections(result: Compatibility) -> Report:
    """Return the answer, what it rests on, and what was tried to explain it."""
    answer = [answer_line(result)]
    if result.found is not None and result.found.model != result.model:
        answer.append(f"what fits: {_typed(result.found)}")
    sentences = [[" ", sentence(line)] for line in (result.sentence, _BASES[result.basis])]
    mark = stamp(result.cause.value, "good" if result.compatible else "bad")
    failed = [row for row, finding in enumerate(result.findings) if not finding.ok]
    examples = TextTable(example_rows(result), text_columns=[0, 3])
    return Report(
        kind=f"lead-migrate check of {result.store}",
        title=f"The vectors are {'' if result.compatible else 'not '}those of {result.model.spec}",
        lead=Either(element("p", mark, sentences, class_="lead"), [*answer, _BASES[result.basis]]),
        sections={
            "What was looked at": [
                TextTable(finding_rows(result), text_columns=[2], marked=failed),
                [] if result.figures is None else _figure_sentences(result.figures),
            ],
            "What it costs in retrieval": None if result.retrieval is None else _retrieval_sentences(result.retrieval),
            "What would explain it": _trials(result.trials) if result.trials and not result.compatible else None,
            "Documents that disagree": examples if result.examples else None,
            "Notes": Listed(result.notes),
        },
    )


def check_brief(result: Compatibility) -> list[Block]:
    """Return what a notebook and a summary of CI have beside the answer."""
    examples = [TextTable(example_rows(result))] if result.examples else []
    costs = [] if result.retrieval is None else _retrieval_sentences(result.retrieval)
    return [TextTable(finding_rows(result)), *costs, *examples, Listed(result.notes)]


def answer_line(result: Compatibility) -> str:
    """Say whether it is compatible, with which model, and why."""
    if result.compatible:
        return f"compatible with {result.model.spec}: {result.sentence}"
    return f"not compatible with {result.model.spec}: {result.cause.value}: {result.sentence}"


def _typed(model_found: Found) -> str:
    return shlex.join(["--model", with_settings(model_found.spec, model_found.options)])


def stamp_text(stamp: Stamped) -> str:
    """Return what the stamp rests on, and where it is."""
    lines = [f"stamped: {stamp.path}" if stamp.path else "not stamped: nothing was written"]
    if (model_found := stamp.found) is not None:
        agree = f"{model_found.agreeing} of {model_found.sampled} sampled documents agree"
        lines = [wrap(f"as the last check has found: {_typed(model_found)}; {agree}"), *lines]
    return paragraphs("" if stamp.checked is None else report_text(check_sections(stamp.checked)), "\n".join(lines))


def _figure_sentences(figures: Agreement) -> list[str]:
    agreeing = f"{figures.agreeing} of {figures.sampled} sampled documents agree"
    lines = [
        f"{agreeing} (cosine of at least {1 - figures.tolerance:g}); median cosine {figures.median_cosine:.4f}, of "
        f"different texts {figures.chance_cosine:.4f}"
    ]
    if figures.agreeing == figures.sampled:
        missed = figures.disagreeing.upper
        sure = "no other text is left" if not missed else f"up to {percent(missed)} of the store could differ unseen"
        lines.append(f"{sure} (95 % confidence); --sample N|all looks further" if missed else sure)
    return lines


def _retrieval_sentences(cost: RetrievalCost) -> list[str]:
    """Say what the stored vectors find, what a stitch repairs, and what a larger sample takes."""
    is_part = cost.documents < cost.store_documents
    others = f"; among all {cost.store_documents:,}, of which more are alike, it may be lower" if is_part else ""
    sampled = f"{cost.documents:,} sampled documents, at random {cost.chance:.3f}"
    lines = [f"overlap@10 {_bounded(cost.overlap)} among {sampled}{others}"]
    if (judged := cost.judged) is not None:
        counted = f"{judged.queries:,} judged queries that the sample answers"
        if judged.retention is None:
            remedy = "; a larger --sample answers more" if is_part else ""
            lines.append(f"{counted} are too few to tell what nDCG@10 is retained{remedy}")
        else:
            lines.append(f"{_bounded(judged.retention)} of nDCG@10 is retained, by {counted}")
    if (repair := cost.repair) is not None:
        answer = (
            "no linear stitch repairs it" if repair.repairs == "none" else f"a stitch repairs {repair.repairs} of it"
        )
        figures = f"overlap@10 {cost.overlap.estimate:.3f} as stored, {_bounded(repair.overlap)} after {repair.stitch}"
        lines.append(f"{answer}: {figures}, on held-out documents")
    if (larger := cost.larger) is not None:
        told = "tells whether a stitch repairs it" if cost.repair is None and larger.tries_stitch else "tells more"
        price = "no price known" if larger.usd is None else dollars(larger.usd)
        takes = f"{larger.further:,} more texts, about {larger.tokens:,} tokens, {price}"
        lines.append(f"--sample {larger.documents} {told}: {takes}")
    return lines


def _bounded(share: Share) -> str:
    upper = f"{share.upper:.3f}" if isfinite(share.upper) else "no limit"
    return f"{share.estimate:.3f} (95 % bounds: {share.lower:.3f} to {upper})"


def _trials(trials: tuple[Trial, ...]) -> list[Block]:
    """Return the other ways of embedding, those that came nearest first; on a terminal, a few of them."""
    nearest = sorted(trials, key=lambda trial: (-trial.agreeing / trial.tried, -trial.median_cosine))
    head = ["embedded", "agree", "of", "median cosine"]
    rows = [[trial.meaning, str(trial.agreeing), str(trial.tried), f"{trial.median_cosine:.4f}"] for trial in nearest]
    tried = f"sampled texts were embedded again in {len(trials)} other ways"
    explained = ". Where one agrees, the stored vectors were made in that way"
    return [
        Either(
            [tried + explained, TextTable([head, *rows], text_columns=[0])],
            [f"{tried}; the nearest are", TextTable([head, *rows[:5]], text_columns=[0])],
        )
    ]


def example_rows(result: Compatibility) -> list[list[str]]:
    """Return a head, and a row for each sampled document that disagrees."""
    rows = [
        [example.doc_id, f"{example.row:,}", f"{example.cosine:.4f}", example.taken_for] for example in result.examples
    ]
    return [["document", "row", "cosine", "taken for"], *rows]


def finding_rows(result: Compatibility) -> list[list[str]]:
    """Return a head, and a row for each thing that was looked at."""
    rows = [[finding.name, "yes" if finding.ok else "NO", finding.message] for finding in result.findings]
    return [["looked at", "as expected", "what was there"], *rows]


def check_document(result: Compatibility) -> dict[str, Any]:
    """Return everything the check knows, as values that JSON holds."""
    content = {name: value for name, value in as_plain(result).items() if name != "suits_queries"}
    return document("check", {**content, "compatible": result.compatible})


def stamp_document(stamp: Stamped) -> dict[str, Any]:
    """Return the path of the manifest, null if none was written, and the check it rests on, null if that was left out.

    `found` is what an earlier check had found, where it rests on that.
    """
    checked = None if stamp.checked is None else check_document(stamp.checked)
    return document("stamp", {"manifest": stamp.path, "check": checked, "found": stamp.found})
