"""`translate --pace`: values that are none, workers, SIGTERM in a rest, and going on at another pace."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "nan", "fast", "2000/s", ""])
def test_what_is_no_share_is_refused_in_a_line(value, here, lead_migrate):
    told = lead_migrate("translate store stitch -o other --pace", value, code=2).complaint
    assert "--pace" in told
    assert not Path("other").exists()


def test_one_process_alone_keeps_a_pace(here, lead_migrate):
    told = lead_migrate("translate store stitch -o other --pace 0.5 --workers 2", code=2).complaint
    assert "--pace is kept by one process alone" in told
    assert not Path("other").exists()


def processor_seconds(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for_rest(process):
    """Wait until an output is begun and its process has long done nothing."""
    end, since, spent = time.monotonic() + 120, time.monotonic(), 0.0
    while time.monotonic() - since < 1 or not Path(".other.work").is_dir():
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.05)
        if (now := processor_seconds(process)) != spent:
            since, spent = time.monotonic(), now


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux shows them")
def test_sigterm_ends_a_rest_at_once_and_the_work_goes_on_at_another_pace(here, lead_migrate, digest, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    command = "translate store stitch -o other --pace"
    process = subprocess.Popen(
        [sys.executable, "-m", "migrate", *shlex.split(command), "0.001"], stderr=subprocess.PIPE, text=True
    )
    wait_for_rest(process)
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=30)[1]
    assert process.returncode == 143 and "continue with the same command" in told
    assert not Path("other").exists()
    lead_migrate(f"{command} 0.9")
    lead_migrate("translate store stitch -o whole")
    assert digest(Path("other")) == digest(Path("whole"))
