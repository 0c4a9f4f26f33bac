"""A check as cases for CI."""

from __future__ import annotations

from migrate.check.model import Compatibility
from migrate.report.check import answer_line
from migrate.report.suite import MARKS, Case, State, Suite, markdown_table


def check_suite(found: Compatibility) -> Suite:
    """The answer, and everything that was looked at."""
    whole = Case("compatible", _state(ok=found.compatible), _answer(found))
    cases = [whole, *(Case(one.name, _state(ok=one.ok), one.message) for one in found.findings)]
    figures = found.figures
    properties = {"cause": found.cause.value, "basis": found.basis}
    if figures is not None:
        properties |= {"sampled": str(figures.sampled), "agreeing": str(figures.agreeing)}
        properties["median cosine"] = f"{figures.median_cosine:.6f}"
    return Suite("lead-migrate check", f"check of {found.store.name}", cases, _markdown(found), properties)


def _state(*, ok: bool) -> State:
    return State.PASSED if ok else State.FAILED


def _answer(found: Compatibility) -> str:
    return " ".join(answer_line(found).split())


def _markdown(found: Compatibility) -> str:
    looked = [["looked at", ""], *([one.name, "ok" if one.ok else one.message] for one in found.findings)]
    examples = [["document", "row", "cosine"], *([e.doc_id, f"{e.row:,}", f"{e.cosine:.4f}"] for e in found.examples)]
    tables = [markdown_table(looked), *([markdown_table(examples)] if found.examples else [])]
    mark = MARKS[_state(ok=found.compatible)]
    return f"## {mark} lead-migrate: {_answer(found)}\n\n" + "\n\n".join(tables) + "\n"
