"""Commands in processes of their own that are killed (SIGKILL) at one of the calls by which they change a folder."""

import os
import signal
import sys

from children import start_child, type_command

EVENTS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link")
"""What is seen of changes: names that come, change or go. Clients in compiled code are not seen."""

AT_THE_END = 0
"""In the place of the number of a call: when all is done, and only the process has still to end."""


def run_and_count(arguments, folder):
    """The exit code of a command in a folder, what it prints, and how many of its calls change the folder."""
    return _ended(*start_child(_type, arguments, folder, dict(os.environ), None))


def kill_at(number, arguments, folder):
    """Kill a command before its n-th call that changes the folder, or at its end; whether it came so far."""
    return _ended(*start_child(_type, arguments, folder, dict(os.environ), number)) is None


def _ended(process, receiver):
    with receiver:
        try:
            ended = receiver.recv()
        except EOFError:
            ended = None
    process.join()
    assert process.exitcode == (0 if ended is not None else -signal.SIGKILL)
    return ended


def _type(arguments, folder, environment, number):
    count = 0

    def see(event, values):
        nonlocal count
        if event not in EVENTS or not _is_in(folder, values[0]):
            return
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(see)
    code = type_command(arguments, folder, environment, folder.with_name("printed"))
    if number == AT_THE_END:
        os.kill(os.getpid(), signal.SIGKILL)
    return code, folder.with_name("printed").read_text("utf-8"), count


def _is_in(folder, path):
    # Not of the cache: whether hashes of files are noted there depends on how long these are at rest
    path = folder / path
    return path.is_relative_to(folder) and not path.is_relative_to(folder / "cache")
