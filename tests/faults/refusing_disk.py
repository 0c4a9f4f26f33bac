"""An operating system that refuses the i-th write, fsync or rename."""

import io
import os
from pathlib import Path

OPERATIONS = ("write", "fsync", "fdatasync", "rename", "replace", "truncate")
NEED_ROOM = ("write", "fsync", "fdatasync")


class RefusingDisk:
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
