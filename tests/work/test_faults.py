"""An operating system that refuses the i-th write, fsync or rename, for every i."""

import errno
import io
import os
import shutil
from pathlib import Path

import pytest
import victims

from migrate.errors import OutputError

OPERATIONS = ("write", "fsync", "fdatasync", "rename", "replace", "truncate")
NEED_ROOM = ("write", "fsync", "fdatasync")


class Faults:
    """Refuses operation number `at`; and, if the disk stays full, every later one that needs room."""

    def __init__(self, at, number, *, stays):
        self.at, self.number, self.stays, self.count = at, number, stays, 0

    def step(self, name):
        if self.stays and name not in NEED_ROOM:
            return
        self.count += 1
        if self.count == self.at or (self.stays and self.count > self.at):
            raise OSError(self.number, os.strerror(self.number))

    def install(self, patch):
        for name in OPERATIONS:
            patch.setattr(os, name, self.wrap(name, getattr(os, name)))
        patch.setattr(Path, "open", self.opener(Path.open))

    def wrap(self, name, function):
        def refusing(*arguments, **options):
            self.step(name)
            return function(*arguments, **options)

        return refusing

    def opener(self, real_open):
        faults = self

        class Raw(io.FileIO):
            def write(self, content):
                faults.step("write")
                return super().write(content)

        def refusing_open(path, mode="r", buffering=-1, *arguments, **options):
            if "b" not in mode or not set(mode) & set("wa+"):
                return real_open(path, mode, buffering, *arguments, **options)
            raw = Raw(path, mode.replace("b", ""))
            return raw if buffering == 0 else io.BufferedWriter(raw)

        return refusing_open


def got_through(job, output):
    try:
        job(output)
    except OutputError as error:
        assert f"cannot write {output.parent}" in str(error)
        assert "run the same command again" in str(error)
        return False
    return True


FULL, BROKEN = (errno.ENOSPC, True), (errno.EIO, False)
CASES = [(kind, *fault) for kind in ("flat", "ivf", "embed") for fault in (FULL, BROKEN)]


@pytest.mark.parametrize(
    ("job", "number", "stays"), [*CASES, ("langchain", *FULL), ("re-embed", *BROKEN)], indirect=["job"]
)
def test_whatever_fails_nothing_is_half_written_and_the_next_run_ends_with_the_same_bytes(job, number, stays, folder):
    job(folder / "expected")
    expected, source = victims.digest(folder / "expected"), victims.digest(folder / "source")
    output = folder / "output"
    for at in range(1, 1_000):
        with pytest.MonkeyPatch.context() as patch:
            faults = Faults(at, number, stays=stays)
            faults.install(patch)
            if got_through(job, output):
                break
        assert not output.exists(), at
        job(output)
        assert victims.digest(output) == expected, at
        assert not output.with_name(".output.work").exists()
        shutil.rmtree(output)
    assert faults.count == at - 1 > 15  # a run without a fault, after one for each operation
    assert victims.digest(output) == expected
    assert victims.digest(folder / "source") == source
