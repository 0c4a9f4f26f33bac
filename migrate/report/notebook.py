"""Results as notebooks and `print` show them: the answer, then what it rests on. Loaded by `import migrate`."""

from __future__ import annotations

from migrate.audit.recommendation import recommend
from migrate.audit.report import AuditReport
from migrate.check import Compatibility
from migrate.cost import Assessment
from migrate.display import answer_text, notebook_html, result_document
from migrate.report.assess import cost_rows
from migrate.report.audit import quality_rows
from migrate.report.check import finding_rows
from migrate.report.document import audit_document
from migrate.report.fit import candidates_rows
from migrate.report.page import answer_html
from migrate.report.summary import audit_answer
from migrate.steps.translate.job import Translation
from migrate.stitch.fitted import FittedStitch


@notebook_html.register
def _(report: AuditReport) -> str:
    return answer_html(recommend(report).headline, quality_rows(report), [report.sentence])


answer_text.register(AuditReport, audit_answer)
result_document.register(AuditReport, audit_document)


@notebook_html.register
def _(found: Compatibility) -> str:
    answer = f"{'compatible' if found.compatible else 'not compatible'} with {found.model.spec}: {found.sentence}"
    return answer_html(answer, finding_rows(found), [f"note: {note}" for note in found.notes])


@notebook_html.register
def _(found: Assessment) -> str:
    head, *rest = found.answers or (f"moving {found.store.location} to {found.target.spec}",)
    return answer_html(head, cost_rows(found), rest)


@notebook_html.register
def _(fitted: FittedStitch) -> str:
    return answer_html(repr(fitted).strip("<>"), candidates_rows(fitted.selection))


@notebook_html.register
def _(done: Translation) -> str:
    rows = [
        ["vectors", "true ones", "dimension before", "after", "recall@10 of the index", "s"],
        [
            f"{done.count:,}",
            f"{done.n_true:,}",
            str(done.source_dim),
            str(done.target_dim),
            "exact" if done.index_recall is None else f"{done.index_recall:.3f}",
            f"{done.wall_s:.1f}",
        ],
    ]
    notes = [*done.remarks, *filter(None, (done.distrust, done.fallback and done.fallback.sentence))]
    return answer_html(f"translated to {done.path}", rows, [f"note: {note}" for note in notes])
