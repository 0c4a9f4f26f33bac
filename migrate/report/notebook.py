"""Results as notebooks and `print` show them: the answer, then what it rests on. Loaded by `import migrate`."""

from __future__ import annotations

from migrate.audit_report.report import AuditReport
from migrate.check import Compatibility
from migrate.cost import Assessment
from migrate.display import answer_text, notebook_html
from migrate.report.assess import cost_rows
from migrate.report.audit import audit_brief
from migrate.report.check import answer_line, check_brief
from migrate.report.fit import candidates_rows
from migrate.report.page import notebook_piece
from migrate.report.sections import Listed, TextTable
from migrate.report.summary import audit_answer
from migrate.steps.translate.job import Translation
from migrate.stitch.fitted import FittedStitch


@notebook_html.register
def _(report: AuditReport) -> str:
    return notebook_piece(report.recommendation.headline, audit_brief(report.audit), report.sentence)


@answer_text.register
def _(report: AuditReport) -> str:
    return audit_answer(report)


@notebook_html.register
def _(result: Compatibility) -> str:
    return notebook_piece(answer_line(result), check_brief(result))


@notebook_html.register
def _(result: Assessment) -> str:
    answer, *sentences = result.sentences
    return notebook_piece(answer, TextTable(cost_rows(result)), sentences)


@notebook_html.register
def _(fitted: FittedStitch) -> str:
    return notebook_piece(repr(fitted).strip("<>"), TextTable(candidates_rows(fitted.selection)))


@notebook_html.register
def _(done: Translation) -> str:
    recall = "exact"
    if done.index_recall is not None:
        recall = f"{done.index_recall:.3f}"
    content = {
        "vectors": f"{done.count:,}",
        "true ones": f"{done.n_true:,}",
        "dimension before": str(done.source_dim),
        "after": str(done.target_dim),
        "recall@10 of the index": recall,
        "s": f"{done.wall_s:.1f}",
    }
    notes = list(done.remarks)
    if done.distrust:
        notes.append(done.distrust)
    if done.fallback:
        notes.append(done.fallback.sentence)
    return notebook_piece(
        f"translated to {done.path}", TextTable([list(content), list(content.values())]), Listed(notes)
    )
