"""A check in sections, the answer first, and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from math import isfinite
from typing import Any

from migrate.check.comparison import Share
from migrate.check.model import Agreement, Compatibility, Found
from migrate.check.retrieval import JudgedRetention, LargerSample, Repair, RetrievalCost
from migrate.check.stamp import Stamped
from migrate.display import dollars, percent
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
    colour = "bad"
    title = f"The vectors are not those of {result.model.spec}"
    if result.compatible:
        colour = "good"
        title = f"The vectors are those of {result.model.spec}"
    mark = stamp(result.cause.value, colour)
    failed = [row for row, finding in enumerate(result.findings) if not finding.ok]
    return Report(
        kind=f"lead-migrate check of {result.store}",
        title=title,
        lead=Either(element("p", mark, sentences, class_="lead"), [*answer, _BASES[result.basis]]),
        sections={
            "What was looked at": [
                TextTable(finding_rows(result), text_columns=[2], marked=failed),
                _figure_sentences(result.figures),
            ],
            "What it costs in retrieval": _retrieval_sentences(result.retrieval),
            "What would explain it": _trials(result),
            "Documents that disagree": _examples(result, text_columns=[0, 3]),
            "Notes": Listed(result.notes),
        },
    )


def check_brief(result: Compatibility) -> list[Block]:
    """Return what a notebook and a summary of CI have beside the answer."""
    return [
        TextTable(finding_rows(result)),
        *_retrieval_sentences(result.retrieval),
        *_examples(result),
        Listed(result.notes),
    ]


def answer_line(result: Compatibility) -> str:
    """Say whether it is compatible, with which model, and why."""
    if result.compatible:
        return f"compatible with {result.model.spec}: {result.sentence}"
    return f"not compatible with {result.model.spec}: {result.cause.value}: {result.sentence}"


def _typed(model_found: Found) -> str:
    return shlex.join(["--model", with_settings(model_found.spec, model_found.options)])


def stamp_text(stamp: Stamped) -> str:
    """Return what the stamp rests on, and where it is."""
    lines = []
    if (model_found := stamp.found) is not None:
        agree = f"{model_found.agreeing} of {model_found.sampled} sampled documents agree"
        lines.append(wrap(f"as the last check has found: {_typed(model_found)}; {agree}"))
    if stamp.path:
        lines.append(f"stamped: {stamp.path}")
    else:
        lines.append("not stamped: nothing was written")
    check = ""
    if stamp.checked is not None:
        check = report_text(check_sections(stamp.checked))
    return paragraphs(check, "\n".join(lines))


def _figure_sentences(figures: Agreement | None) -> list[str]:
    """Say how many sampled documents agree, and what that leaves open."""
    if figures is None:
        return []
    agreeing = f"{figures.agreeing} of {figures.sampled} sampled documents agree"
    lines = [
        f"{agreeing} (cosine of at least {1 - figures.tolerance:g}); median cosine {figures.median_cosine:.4f}, of "
        f"different texts {figures.chance_cosine:.4f}"
    ]
    if figures.agreeing == figures.sampled:
        missed = figures.disagreeing.upper
        if missed:
            lines.append(
                f"up to {percent(missed)} of the store could differ unseen (95 % confidence); --sample N|all looks "
                "further"
            )
        else:
            lines.append("no other text is left")
    return lines


def _retrieval_sentences(cost: RetrievalCost | None) -> list[str]:
    """Say what the stored vectors find, what a stitch repairs, and what a larger sample takes."""
    if cost is None:
        return []
    is_part = cost.documents < cost.store_documents
    overlap = (
        f"overlap@10 {_bounded(cost.overlap)} among {cost.documents:,} sampled documents, at random {cost.chance:.3f}"
    )
    if is_part:
        overlap += f"; among all {cost.store_documents:,}, of which more are alike, it may be lower"
    lines = [overlap]
    if cost.judged is not None:
        lines.append(_judged_sentence(cost.judged, is_part=is_part))
    if cost.repair is not None:
        lines.append(_repair_sentence(cost.repair, cost.overlap))
    if cost.larger is not None:
        lines.append(_larger_sentence(cost.larger, tried_stitch=cost.repair is not None))
    return lines


def _judged_sentence(judged: JudgedRetention, *, is_part: bool) -> str:
    counted = f"{judged.queries:,} judged queries that the sample answers"
    if judged.retention is not None:
        return f"{_bounded(judged.retention)} of nDCG@10 is retained, by {counted}"
    few = f"{counted} are too few to tell what nDCG@10 is retained"
    if not is_part:
        return few
    return f"{few}; a larger --sample answers more"


def _repair_sentence(repair: Repair, stored: Share) -> str:
    answer = f"a stitch repairs {repair.repairs} of it"
    if repair.repairs == "none":
        answer = "no linear stitch repairs it"
    figures = f"overlap@10 {stored.estimate:.3f} as stored, {_bounded(repair.overlap)} after {repair.stitch}"
    return f"{answer}: {figures}, on held-out documents"


def _larger_sentence(larger: LargerSample, *, tried_stitch: bool) -> str:
    use = "tells more"
    if larger.tries_stitch and not tried_stitch:
        use = "tells whether a stitch repairs it"
    price = "no price known"
    if larger.usd is not None:
        price = dollars(larger.usd)
    takes = f"{larger.further:,} more texts, about {larger.tokens:,} tokens, {price}"
    return f"--sample {larger.documents} {use}: {takes}"


def _bounded(share: Share) -> str:
    upper = "no limit"
    if isfinite(share.upper):
        upper = f"{share.upper:.3f}"
    return f"{share.estimate:.3f} (95 % bounds: {share.lower:.3f} to {upper})"


def _trials(result: Compatibility) -> list[Block]:
    """Return the other ways of embedding, those that came nearest first; on a terminal, a few of them."""
    trials = result.trials
    if not trials or result.compatible:
        return []
    # Share and not number: some ways were tried on a few documents alone
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


def _examples(result: Compatibility, text_columns: Sequence[int] = ()) -> list[Block]:
    if not result.examples:
        return []
    return [TextTable(example_rows(result), text_columns=text_columns)]


def finding_rows(result: Compatibility) -> list[list[str]]:
    """Return a head, and a row for each thing that was looked at."""
    as_expected = {True: "yes", False: "NO"}
    rows = [[finding.name, as_expected[finding.ok], finding.message] for finding in result.findings]
    return [["looked at", "as expected", "what was there"], *rows]


def check_document(result: Compatibility) -> dict[str, Any]:
    """Return everything the check knows, as values that JSON holds."""
    # Only the next step that a command prints needs it
    content = {name: value for name, value in as_plain(result).items() if name != "suits_queries"}
    return document("check", {**content, "compatible": result.compatible})


def stamp_document(stamp: Stamped) -> dict[str, Any]:
    """Return the path of the manifest, null if none was written, and the check it rests on, null if that was left out.

    `found` is what an earlier check had found, where it rests on that.
    """
    checked = None
    if stamp.checked is not None:
        checked = check_document(stamp.checked)
    return document("stamp", {"manifest": stamp.path, "check": checked, "found": stamp.found})
