"""An operating system that refuses the i-th write, fsync or rename, for every i."""

import errno
import shutil

import pytest
import victims
from refusing_disk import RefusingDisk

from migrate.errors import OutputError

pytestmark = pytest.mark.slow


def got_through(job, output):
    try:
        job(output)
    except OutputError as error:
        assert f"cannot write {output.parent}" in str(error)
        assert "run the same command again" in str(error)
        return False
    return True


FULL, BROKEN = (errno.ENOSPC, True), (errno.EIO, False)
CASES = [(kind, *fault) for kind in ("flat", "embed") for fault in (FULL, BROKEN)]


@pytest.mark.parametrize(
    ("job", "number", "stays", "step"),
    [
        *((*case, 1) for case in CASES),
        ("ivf", *FULL, 5),  # reads in a process of its own, each time
        ("langchain", *FULL, 5),
        ("re-embed", *BROKEN, 1),
    ],
    indirect=["job"],
)
def test_whatever_fails_nothing_is_half_written_and_the_next_run_ends_with_the_same_bytes(
    job, number, stays, step, folder
):
    job(folder / "expected")
    expected, source = victims.digest(folder / "expected"), victims.digest(folder / "source")
    output = folder / "output"
    for at in range(1, 1_000, step):
        with pytest.MonkeyPatch.context() as patch:
            faults = RefusingDisk(at, number, stays=stays)
            faults.install(patch)
            if got_through(job, output):
                break
        assert not output.exists(), at
        job(output)
        assert victims.digest(output) == expected, at
        assert not output.with_name(".output.work").exists()
        shutil.rmtree(output)
    assert at > faults.count >= at - step  # a run without a fault, after one for each operation
    assert faults.count > 15
    assert victims.digest(output) == expected
    assert victims.digest(folder / "source") == source
