"""The report of an audit: its JSON document, which every other form is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from migrate.audit_report import read_audit
from migrate.audit_report.records import Recommendation, ReportedAudit, ReportedVerdict, arm_rows, audit_in, query_rows
from migrate.display import answer_text, data_frame, notebook_html
from migrate.errors import InputError, UsageError
from migrate.files import describe_os_error
from migrate.outcome import Outcome
from migrate.reading import MalformedError

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class AuditReport:
    """The result of an audit: its `document`, as `--report FILE.json` writes it, and what that says of the `audit`.

    `docs/schema.json` describes the document.
    """

    document: Mapping[str, Any]
    audit: ReportedAudit = field(repr=False, compare=False)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return the report that is this document; raises as `audit_in`."""
        return cls(document, audit_in(document))

    @property
    def outcome(self) -> Outcome:
        """The outcome of the plan, which is the translated store unless another was asked for."""
        return self.audit.plan.outcome

    @property
    def sentence(self) -> str:
        """The outcome and what it is of: the translated store, or before that the plan that is judged."""
        return self.audit.plan.sentence

    @property
    def verdict(self) -> ReportedVerdict:
        """The verdict on the translated store alone, with its numbers."""
        return self.audit.verdict

    @property
    def recommendation(self) -> Recommendation:
        """The way to go on with, and the command that does it."""
        return self.audit.recommendation

    def __repr__(self) -> str:
        counted = f"{self.verdict.counted}, {self.audit.dataset.documents:,} documents"
        return f"<AuditReport {self.sentence}; {self.audit.dataset.name}, {counted}>"

    def __str__(self) -> str:
        return answer_text(self) or repr(self)

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    def to_pandas(self, rows: Literal["arms", "queries"] = "arms") -> DataFrame:
        """Return one row an arm: means, retention with its bounds, costs; or one row a query and arm, with its scores.

        Needs pandas.

        Raises
        ------
        UsageError
            It is not installed, or there are no such rows.
        """
        if rows == "arms":
            return data_frame(list(arm_rows(self.audit)))
        if rows == "queries":
            return data_frame(list(query_rows(self.audit)))
        raise UsageError(f'to_pandas: {rows!r} are no rows of an audit; name "arms" or "queries"')


def load_report(path: str | Path) -> AuditReport:
    """Return the report of an audit from the JSON file that `--report FILE.json` or `run` wrote.

    Raises
    ------
    InputError
        There is no such file, it is not such a report, it is one of another version, or its own numbers do not bear
        what it says.
    """
    try:
        return AuditReport.of(read_audit(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {describe_os_error(error)}; name a report in JSON") from error
    except MalformedError as error:
        raise InputError(
            f"{path}: not the report of an audit ({error}); name one that `audit --report FILE.json` or `run` wrote"
        ) from error
