"""Commands on a disk that is really full: a file system in memory that only the process that mounts it sees."""

import ctypes
import hashlib
import os
import shutil
from pathlib import Path

from children import type_command

_NEW_MOUNTS, _NEW_USERS, _REMOUNT = 0x00020000, 0x10000000, 32
_PAGE = 4096
_ROOMY = 64 << 20
_LARGEST = 100


class _NotMountedError(Exception):
    pass


def run_in_room(arguments, folder, carried, room, environment):
    """Run a command twice in `folder`, of which `folder/disk` is a disk: with `room` bytes free, and with plenty.

    The disk has copies of what is carried. Gives what came of the first run, what files the disk had before it and
    after, and what came of the second: exit codes and what was printed. Where not even a namespace may mount a file
    system, no file may be larger than a few bytes instead. For a child of its own, with which the mounts end.
    """
    disk, environment = folder / "disk", {**os.environ, **environment}
    try:
        _enter_namespace()
        _mount(disk, _ROOMY)
        largest = None
    except _NotMountedError:
        largest = _LARGEST
    for name in carried:
        shutil.copytree(folder / name, disk / name)
    before = _digests(disk)
    if largest is None:
        _mount(disk, max(_PAGE, shutil.disk_usage(disk).used + room), _REMOUNT)
    first = _in_child(arguments, folder, environment, largest)
    after = _digests(disk)
    if largest is None:
        _mount(disk, _ROOMY, _REMOUNT)
    return first, before, after, _in_child(arguments, folder, environment, None)


def _enter_namespace():
    """Be root among one's own mounts, which end with this process; any user may, where the system allows it."""
    user, group = os.geteuid(), os.getegid()
    _call("unshare", _NEW_MOUNTS | _NEW_USERS)
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    except OSError as error:
        raise _NotMountedError from error


def _mount(folder, size, flags=0):
    _call("mount", b"tmpfs", os.fsencode(folder), b"tmpfs", flags, b"size=%d" % size)


def _call(name, *arguments):
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None or function(*arguments):
        raise _NotMountedError


def _digests(disk):
    return {
        str(path.relative_to(disk)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(disk.rglob("*"))
        if path.is_file()
    }


def _in_child(arguments, folder, environment, largest):
    """The exit code of a command, and what it prints, which may be more than `largest`."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        code = 70
        try:
            code = type_command(arguments, folder, environment, Path(f"/proc/self/fd/{writer}"), largest)
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        printed = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), printed
