"""Displays that results share: shares in words, tables for pandas, and HTML for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Final

from migrate.errors import UsageError

if TYPE_CHECKING:
    from pandas import DataFrame


def percent(share: float, decimals: int = 1) -> str:
    """Return a share in per cent.

    >>> percent(0.8617), percent(0.25, 0)
    ('86.2 %', '25 %')
    """
    return f"{100 * share:.{decimals}f} %"


def counted(count: int, one: str, many: str) -> str:
    """Return a number of things, by the name of one or of many.

    >>> counted(1, "query", "queries"), counted(1_200, "query", "queries")
    ('1 query', '1,200 queries')
    """
    return f"{count:,} {one if count == 1 else many}"


def data_frame(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Rows of named values as a table; a value that a row lacks is missing there."""
    try:
        import pandas as pd
    except ImportError as error:
        raise UsageError(
            "to_pandas needs pandas, which is not installed; run pip install 'lead-migrate[pandas]'"
        ) from error
    return pd.DataFrame(list(rows))


AUDIT_SCHEMA: Final = 5
"""Version of the JSON of an audit, which `switch` reads too."""


@singledispatch
def notebook_html(result: object) -> str | None:  # noqa: ARG001 - what a result is, decides
    """A result as HTML; None, for which a notebook shows `repr`, until `migrate.report.notebook` has been loaded.

    Results must not import the reports made from them, so reports register here and results call this.
    """
    return None


@singledispatch
def answer_text(result: object) -> str | None:  # noqa: ARG001 - as above
    """A result as lines that `print` shows; None, for which it prints `repr`, as long as `notebook_html`."""
    return None


def dollars(usd: float) -> str:
    """Return an amount with as many digits as it needs.

    >>> dollars(1234.5), dollars(0.0312), dollars(0.00001), dollars(0)
    ('$1,234.50', '$0.0312', '<$0.0001', '$0.00')
    """
    # Four digits would show nothing, as if it was free
    if 0 < usd < 0.00005:
        return "<$0.0001"
    if usd >= 1 or not usd:
        return f"${usd:,.2f}"
    return f"${usd:,.4f}"
