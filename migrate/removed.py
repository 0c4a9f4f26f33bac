"""Capabilities that were removed: one sentence for a file or a command that needs one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LAST_READER: Final = "0a3df1b0"
"""The last commit that has all of them."""


def removal(subject: str) -> str:
    """Return the sentence about a file that this version does not read any more.

    >>> removal("the stitch 'prefix+text'")
    "the stitch 'prefix+text' was removed; the commit 0a3df1b0 of lead-migrate is the last that reads it"
    """
    return f"{subject} was removed; the commit {LAST_READER} of lead-migrate is the last that reads it"


_LAST: Final = f"the commit {LAST_READER} of lead-migrate is the last that has it"
_IN_PYTHON: Final = "in Python the function has it"

OPTIONS: Final[Mapping[str, str]] = {
    "--beir": "give --judged",
    "--first-tokens": _LAST,
    "--frontier": f"`fit` tells its learning curve, and `reembed` has --share; {_LAST}",
    "--github": "in GitHub Actions it is done by itself",
    "--html": "give --report FILE.html",
    "--junit": "give --report FILE.xml",
    "--max-docs": _IN_PYTHON,
    "--metric": _IN_PYTHON,
    "--no-bm25": _IN_PYTHON,
    "--no-cache": "give --cache none",
    "--open": "--report FILE.html writes a page to open",
    "--pool-depth": _IN_PYTHON,
    "--prefix": f"it was the number of first tokens; {_LAST}",
    "--price-per-mtok": "give --price",
    "--runner": f"`translate` of Parquet has --engine; {_LAST}",
    "--save-reference": "`reembed` makes a full re-embed, and --reference names it",
    "--shards": f"`translate` of Parquet has --engine; {_LAST}",
    "--split": "write it after the judged queries: --judged NAME:dev",
    "--strategy": _IN_PYTHON,
    "audit --labels": "the command `labels` judges by them",
    "audit --outside": "the command `labels` has it",
    "audit --policy": _IN_PYTHON,
    "audit --query-log": _IN_PYTHON,
    "audit --stitch": f"it was for --frontier; {_LAST}",
    "compare --stitch": "give --kind",
    "embed --split": _IN_PYTHON,
    "embed --workers": _LAST,
    "fit --stitch": "give --kind",
    "live run --on-unsafe": f"`live status` has --json; {_LAST}",
    "live run --pace": _LAST,
    "live status --metrics": "--json has the counters",
    "live status --report": "--json has all of it",
    "reembed --save-stitch": _IN_PYTHON,
    "reembed --workers": _LAST,
    "run --query-log": _IN_PYTHON,
    "switch --report": "give --audit",
}
"""Replacements of removed options, or where one can still be had; with a command where others have it."""


COMMANDS: Final[Mapping[str, str]] = {
    "live set": f"end the worker with `live stop`, and give `live run` another --budget; {_LAST}",
}
"""Replacements of removed commands."""


def removed_option(flag: str, command: str = "") -> str | None:
    """Return the sentence about an option that a command does not have any more; None of one that it never had.

    Without a command it is an option of whichever had it.

    >>> removed_option("--beir", "audit"), removed_option("--outside", "fit")
    ('the option --beir was removed: give --judged', None)
    """
    instead = OPTIONS.get(f"{command} {flag}", OPTIONS.get(flag))
    if instead is None and not command:
        instead = next((text for name, text in OPTIONS.items() if name.endswith(f" {flag}")), None)
    if instead is None:
        return None
    return f"the option {flag} was removed: {instead}"


def removed_command(name: str) -> str | None:
    """Return the sentence about a command that is gone; None of one that never was.

    >>> removed_command("live run") is None
    True
    """
    instead = COMMANDS.get(name)
    if instead is None:
        return None
    return f"the command {name} was removed: {instead}"
