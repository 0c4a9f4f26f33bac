"""The page that a run leaves: what was moved, what was expected and spent, and the same again from its JSON."""

import json
import re
from pathlib import Path

import pytest
from html_page import Page
from schema import check_document

pytestmark = pytest.mark.slow

JUDGED = (0, 1, 3)
MODEL = "openai:text-embedding-3-small"
RUN = f"run store --reference pool --target {MODEL},dimensions=24 --judged judged --sample 50 --kind ridge -o out"
TOLD = re.compile(r"^embedded: ([\d,]+) tokens, (\S+) \(estimate: ([\d,]+) tokens, (\S+)\)", re.MULTILINE)


def test_the_page_has_the_estimate_and_what_was_spent_as_they_were_told(store, judged, server, lead_migrate):
    lead_migrate(f"{RUN} --max-cost 0.00001", code=2)
    assert not Path("out").exists()
    ended = lead_migrate(RUN, code=JUDGED)
    ((tokens, usd, expected, expected_usd),) = TOLD.findall(ended.err)
    page = Path("out/report.html").read_text(encoding="utf-8")
    rows = [row for table in Page(page).tables for row in table]
    assert [f"estimated, {MODEL}", expected, expected_usd] in rows
    assert [f"spent, {MODEL}", tokens, usd] in rows
    assert ["old store", "store"] in rows and ["new store", "out/store"] in rows
    assert "continued an earlier one" not in page
    check_document(json.loads(Path("out/report.json").read_text()))
    lead_migrate("report out/report.json --report again.html", code=JUDGED)
    assert Path("again.html").read_text(encoding="utf-8") == page
    lead_migrate(f"{RUN} --margin 0.9", code=JUDGED)
    assert "continued an earlier one" in Path("out/report.html").read_text(encoding="utf-8")
