"""Words that a shell completes, in a real one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COMPLETE = """
source ./script
COMP_WORDS=(lead-migrate "$@")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_lead_migrate_completion lead-migrate
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def completed(lead_migrate):
    """What bash offers for the last of these words."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    Path("script").write_text(lead_migrate("completion bash").out)
    program = Path("bin/lead-migrate")
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom migrate.cli.main import main\nmain()\n")
    program.chmod(0o755)
    root = Path(__file__).parents[2]
    environment = os.environ | {"PATH": f"{program.parent.absolute()}:{os.environ['PATH']}", "PYTHONPATH": str(root)}

    def complete(*words):
        command = ["bash", "--norc", "-c", COMPLETE, "bash", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.split()

    return complete


def test_bash_completes_commands_options_and_choices(completed):
    assert completed("tr") == ["translate"]
    assert {"status", "stamp", "switch", "sync"} <= set(completed("s"))
    assert "--margin" in completed("audit", "store", "--ma")
    assert completed("run", "store", "--reference", "p") == ["pool"]


def test_a_broken_file_of_settings_is_not_in_the_way(completed):
    Path("lead-migrate.toml").write_text("store = ")
    assert completed("tr") == ["translate"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script_too(shell, lead_migrate):
    script = lead_migrate(f"completion {shell}").out
    assert f"_LEAD_MIGRATE_COMPLETE={shell}_complete" in script
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_no_other_shell_is_known(lead_migrate):
    assert "'csh' is not one of" in lead_migrate("completion csh", code=2).complaint
