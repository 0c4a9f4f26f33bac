"""Build the wheel and the source distribution into dist/, check what they hold, and try the wheel.

The wheel is installed into an empty environment outside of the repository, where the demo then runs without a network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SOURCE_FILES = {"CHANGELOG.md", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}
"""Files of the source distribution besides the package."""

WITHOUT_NETWORK = ["unshare", "--map-root-user", "--net"]


def run(command: list[str], **settings: object) -> None:
    """Run a command, and end this script where it fails."""
    subprocess.run(command, check=True, **settings)


def build() -> tuple[Path, Path]:
    """Return the new wheel and source distribution; the wheel is built from what the latter holds."""
    shutil.rmtree(DIST, ignore_errors=True)
    run([sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT)], stdout=subprocess.DEVNULL)
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(source)])
    return wheel, source


def package_files() -> set[str]:
    """Return the files of the package that the repository holds."""
    command = ["git", "ls-files", "migrate"]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines())


def wheel_files(wheel: Path) -> set[str]:
    """Return the files of a wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def source_files(source: Path) -> set[str]:
    """Return the files of a source distribution, without the folder that holds all, and without its metadata."""
    with tarfile.open(source) as archive:
        names = [PurePosixPath(member.name).parts[1:] for member in archive if member.isfile()]
    return {"/".join(parts) for parts in names if not parts[0].endswith(".egg-info")}


def check_files(archive: Path, found: set[str], expected: set[str]) -> None:
    """End this script where an archive lacks a file, or holds one too many."""
    if found != expected:
        sys.exit(f"{archive.name}: missing {sorted(expected - found)}, too many {sorted(found - expected)}")
    print(f"{archive.name}: {len(found)} files, {archive.stat().st_size / 1e6:.1f} MB")


def try_wheel(wheel: Path) -> None:
    """Run the demo from a wheel that is all that was asked for in its environment."""
    with tempfile.TemporaryDirectory() as folder:
        environment, home = Path(folder, "environment"), Path(folder, "home")
        home.mkdir()
        venv.create(environment, with_pip=True)
        pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "--no-compile", str(wheel)], cwd=home)
        tool, settings = str(environment / "bin" / "lead-migrate"), {"PATH": os.defpath, "HOME": str(home)}
        run([tool, "--version"], cwd=home, env=settings)
        run([*without_network(), tool, "demo"], cwd=home, env=settings)


def without_network() -> list[str]:
    """Return the words before a command that take the network from it; none where this system has no such command."""
    if shutil.which(WITHOUT_NETWORK[0]) and subprocess.run([*WITHOUT_NETWORK, "true"], check=False).returncode == 0:
        return WITHOUT_NETWORK
    print("the network cannot be taken from a command here: the demo could reach it")
    return []


def main() -> None:
    """Build, check and try both archives."""
    wheel, source = build()
    check_files(source, source_files(source), package_files() | SOURCE_FILES)
    check_files(wheel, wheel_files(wheel), package_files())
    try_wheel(wheel)


if __name__ == "__main__":
    main()
