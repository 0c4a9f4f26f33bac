"""Print what CHANGELOG.md says of a version: `release_notes.py v0.2.0`.

Ends with an error where the tag is not the version of the package, or the version has no date: nothing is published.
"""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATE = r"\d{4}-\d{2}-\d{2}"


def notes_of(tag: str, version: str, changelog: str) -> str:
    """Return the section of the version that a tag names."""
    if tag != f"v{version}":
        sys.exit(f"the tag is {tag} and migrate/version.py says {version}: the tag should be v{version}")
    for section in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        heading, _, notes = section.partition("\n")
        if heading.split()[0] != version:
            continue
        if not re.fullmatch(rf"{re.escape(version)} \({DATE}\)", heading.strip()):
            sys.exit(
                f"CHANGELOG.md: '## {heading.strip()}': give {version} its date, such as '## {version} (2026-01-31)'"
            )
        return notes.strip()
    sys.exit(f"CHANGELOG.md: no section '## {version} (DATE)'")


if __name__ == "__main__":
    version = runpy.run_path(str(ROOT / "migrate" / "version.py"))["__version__"]
    print(notes_of(sys.argv[1], version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
