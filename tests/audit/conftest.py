import json

import pytest
from mistakes import migrate

from migrate.cli.main import run


@pytest.fixture(scope="session")
def good(tmp_path_factory):
    """A migration without a mistake; nobody writes to it."""
    return migrate(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="session")
def poor(tmp_path_factory):
    """A migration by few pairs and with so much noise that a tenth of the quality is lost; nobody writes to it."""
    return migrate(tmp_path_factory.mktemp("poor"), n_pairs=50, noise=0.4)


@pytest.fixture(scope="session")
def lossy(tmp_path_factory):
    """A migration to a model that sees what the old one does not, by few pairs; nobody writes to it."""
    return migrate(tmp_path_factory.mktemp("lossy"), n_pairs=50, letters=0.6)


@pytest.fixture
def told(capsys):
    """Runs a command, quietly or not: exit code, the JSON that it prints, if any, and what it says else."""

    def tell(*command, quiet=True):
        capsys.readouterr()
        code = run([*map(str, command), *(["-q"] if quiet else [])])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out.startswith("{") else None, err

    return tell
