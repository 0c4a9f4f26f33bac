"""An installation with nothing to import but what `light.txt` names, and what that needs."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
NAMES = (ROOT / "light.txt").read_text().splitlines()
NOT_IN_IT = ("torch", "transformers", "sentence_transformers")


def needed(names: list[str]) -> set[str]:
    """The packages that requirements name, and those that these require here."""
    found: set[str] = set()
    pending = list(map(Requirement, names))
    while pending:
        requirement = pending.pop()
        name = requirement.name.lower().replace("_", "-")
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if name in found or not wanted:
            continue
        found.add(name)
        pending += map(Requirement, distribution(name).requires or [])
    return found


def link_installation(folder: Path, names: list[str] = NAMES, *, whole: bool = True) -> None:
    """Make a folder of links to this package and to what it is installed with; `whole`: and to what that needs."""
    (folder / "migrate").symlink_to(ROOT / "migrate")
    own = distribution("lead-migrate")
    information = folder / f"lead_migrate-{own.version}.dist-info"
    information.mkdir()
    # Some commands are found by the entry points; the metadata has another name where the package is not built
    (information / "entry_points.txt").write_text(own.read_text("entry_points.txt"))
    (information / "METADATA").write_text(own.read_text("METADATA") or own.read_text("PKG-INFO"))
    packages = {Requirement(name).name for name in names}
    if whole:
        packages = needed(names)
    for name in packages:
        files = [Path(str(file)) for file in distribution(name).files or [] if ".." not in file.parts]
        for top in {file.parts[0] for file in files} - {"__pycache__"}:
            link = folder / top
            if not link.exists():
                link.symlink_to(str(distribution(name).locate_file(top)))


def run_light(
    folder: Path, *arguments: object, cwd: Path, given: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python on what the folder holds alone, not the environment's packages or the user's; `given` is its input."""
    command = [sys.executable, "-S", *map(str, arguments)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), "HOME": str(folder), **environment}
    return subprocess.run(command, env=environment, cwd=cwd, input=given, capture_output=True, text=True, check=False)
