import json

import pytest

from migrate.cli.main import run


@pytest.fixture
def told(capsys):
    """Runs a command, quietly: exit code, the JSON that it prints, if any, and what it says else."""

    def tell(*command):
        capsys.readouterr()
        code = run([*map(str, command), "-q"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out.startswith("{") else None, err

    return tell
