"""Files that are either complete or absent: atomic writes, hashes, locks, and checks of output paths."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from migrate.command_notes import running
from migrate.errors import InputError, LeadMigrateError, LockedError, OutputError, StoreError, UsageError

_DISK = {errno.ENOSPC: "disk is full", errno.EIO: "disk I/O error", errno.EFBIG: "", errno.EDQUOT: "", errno.EROFS: ""}
"""What a disk refuses, with SQLite's words for it."""

_STATUS = Path("/proc/self/status")
"""Where Linux tells the umask of a process."""

SQLITE_JOURNALS = ("-journal", "-wal", "-shm")
"""Endings of what SQLite keeps beside a database while a program has it open."""

SWITCH_MARK = ".lead-migrate-switch"
"""In a folder that changed places by a switch: a token, the old location, and the journal."""

OWN_FOLDER = "_lead-migrate"
"""Our own files in a folder of Parquet, which other readers of such folders pass over for its first letter."""

WORK_FOLDER = "LEAD_MIGRATE_WORK_FOLDER"
"""The environment variable with the folder for exports and copies of databases."""

BEIR_URL = "LEAD_MIGRATE_BEIR_URL"
"""The environment variable with a mirror of the archives of BEIR sets."""


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file at one moment, by its identity, size and modification time; the content is not read."""

    path: Path
    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path, descriptor: int | None = None) -> FileStamp:
        """Return the stamp of a file now: of what the path leads to, or of what is open."""
        try:
            status = path.stat() if descriptor is None else os.fstat(descriptor)
        except OSError as error:
            raise OutputError(f"cannot read {path}: {error.strerror}; check that it is there and readable") from error
        return cls(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    @property
    def signature(self) -> tuple[str, int, int]:
        """Name, size and time: what a later run compares, even for a file that was copied back."""
        return self.path.name, self.size, self.modified_ns

    def check(self, descriptor: int | None = None) -> None:
        """Make sure that the path still leads to the same, unchanged file, or that it is the one that is open."""
        if self.of(self.path, descriptor) != self:
            raise StoreError(f"{self.path}: changed while it was read; nothing was written, run the same command again")


def describe_os_error(error: OSError) -> str:
    """Return the reason an operating system call failed, in the system's words."""
    return error.strerror or str(error)


@contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Turn an OSError raised inside into an OutputError (exit code 5) that names `path` and the remedy."""
    try:
        yield
    except OSError as error:
        remedy = {
            errno.ENOSPC: "free some space and run the same command again",
            errno.EACCES: "check the permissions",
            errno.EPERM: "check the permissions",
            errno.EROFS: "choose another place",
            errno.EDQUOT: "free some space and run the same command again",
            errno.EFBIG: "raise the limit on file sizes (ulimit -f), and run the same command again",
        }.get(error.errno or 0, "see what holds it, and run the same command again")
        about = f" ({error.filename})" if error.filename and Path(os.fsdecode(error.filename)) != path else ""
        raise OutputError(f"cannot write {path}: {describe_os_error(error)}{about}; {remedy}") from error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those before it, which a client may have hidden by failing to undo what it had begun."""
    current: BaseException | None = error
    seen: set[int] = set()
    # pymilvus raises an error from itself, so that a chain may be a circle
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _disk_code(error: BaseException) -> int:
    """Return the number of a full or failing disk that an error tells of; 0 for any other error."""
    message = str(error)
    code = (error.errno or 0) if isinstance(error, OSError) else 0
    number = re.search(r"(?:\(os error |\[Errno )(\d+)[\])]", message)  # as Rust and Python write it
    if code not in _DISK and number:
        code = int(number[1])
    elif code not in _DISK:
        code = next((code for code, message_part in _DISK.items() if message_part and message_part in message), 0)
    if code not in _DISK:
        return 0
    return code


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Do as `output_errors` for what a client library raises on a full or failing disk, some of it in words alone."""
    try:
        yield
    except LeadMigrateError:
        raise
    except Exception as error:
        code = next(filter(None, map(_disk_code, _chain(error))), 0)
        if not code:
            raise
        with output_errors(path):
            raise OSError(code, os.strerror(code)) from error


def canonical_json(value: object) -> str:
    """Return JSON with sorted keys and no spare space: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_json(value: object) -> str:
    """Return hexadecimal SHA-256 of a value as canonical JSON, in which strings may have lone surrogates."""
    return hashlib.sha256(canonical_json(value).encode(errors="surrogatepass")).hexdigest()


def is_endless(path: Path) -> bool:
    """Return whether a path leads to a pipe, a socket or a device: reading one may wait or never end."""
    try:
        mode = path.stat().st_mode  # once: a journal that goes between two looks was a file
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def refuse_endless(path: Path) -> None:
    """Make sure that a path which is read leads to a file or a folder, if to anything.

    For what a library opens by its path; all else is opened by `open_file`.
    """
    if is_endless(path):
        raise _endless(path)


def refuse_endless_in(folder: Path) -> None:
    """Do as `refuse_endless` for all that is in a folder and below, through links too, which a library reads."""
    folders = [folder]
    visited: set[str] = set()
    while folders:
        parent = folders.pop()
        if (resolved := os.path.realpath(parent)) in visited:  # a link in a circle
            continue
        visited.add(resolved)
        with suppress(FileNotFoundError), os.scandir(parent) as entries:  # it may go meanwhile
            for entry in entries:
                if entry.is_dir():
                    folders.append(Path(entry.path))
                elif not entry.is_file():
                    refuse_endless(Path(entry.path))


def open_file(path: Path, *, buffering: int = -1) -> BinaryIO:
    """Open a file, or what a link to a file leads to, to read its bytes.

    Raises
    ------
    InputError
        It is a pipe, a socket or a device: reading one may wait or never end.
    OSError
        The operating system refused.
    """
    refuse_endless(path)
    return open(path, "rb", buffering=buffering, opener=_open_descriptor)


def refuse_endless_database(path: Path) -> None:
    """Do as `refuse_endless` for a database of SQLite and what it keeps beside that."""
    for ending in ("", *SQLITE_JOURNALS):
        refuse_endless(path.with_name(f"{path.name}{ending}"))


def open_descriptor(path: Path) -> int:
    """Return a descriptor of a file that is opened as by `open_file`."""
    refuse_endless(path)
    return _open_descriptor(path, os.O_RDONLY | os.O_CLOEXEC)


def _open_descriptor(path: str | Path, flags: int) -> int:
    """Open a path without waiting for who writes to a pipe, which may have come there a moment ago."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # of a folder the caller's error is the clearer one
        return descriptor
    os.close(descriptor)
    raise _endless(path)


def _endless(path: str | Path) -> InputError:
    return InputError(f"{path}: this is a pipe, a socket or a device; give a file or a folder")


def read_file(path: Path) -> bytes:
    """Return the bytes of a file; raises as `open_file`."""
    with open_file(path) as file:
        return file.read()


def sha256_file(path: Path) -> str:
    """Return hexadecimal SHA-256 of a file's bytes, read in constant memory."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def make_private(path: Path) -> None:
    """Make an empty file and its folder for this user alone, unless they are there; a file that is there is not opened.

    For databases of SQLite: a process that closes a file loses all its locks on it, those of other threads too, and
    then two may write to it at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists():
        return
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # with mode 0600
    os.close(descriptor)
    try:
        # A link is made in one step, or not at all where another process was first.
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        Path(temporary).unlink()


def allow_open_files(count: int, least: int, subject: str) -> None:
    """Let this process have so many files open, or as many as the system allows; a UsageError for less than `least`."""
    soft, hard = (sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in _open_files())
    allowed = soft
    for limit in sorted({min(count, hard), min(least, hard)}, reverse=True):
        if limit > allowed:
            with suppress(ValueError, OSError):  # macOS allows less than it says
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, _open_files()[1]))
                allowed = limit
    if allowed < least:
        raise UsageError(
            f"{subject}: {least:,} files have to be open at once, and this system allows {allowed:,}; raise that with "
            "`ulimit -n`, or write a narrower pattern"
        )


def _open_files() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def sync_path(path: Path) -> None:
    """Make a file durable, or the names inside a folder."""
    # Not to wait for who writes, where a pipe has come to that name.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, payload: bytes) -> None:
    """Write a file durably. Not atomic: for files inside an `atomic_folder`."""
    with path.open("wb") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())


def write_at(descriptor: int, content: memoryview, offset: int) -> None:
    """Write all of some bytes to their place in an open file."""
    while content:
        written = os.pwrite(descriptor, content, offset)
        content = content[written:]
        offset = offset + written


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON with sorted keys, durably."""
    write_bytes(path, json_text(value).encode())


def json_text(value: Any) -> str:
    """Return readable JSON with sorted keys."""
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def copy_file(source: Path, target: Path, *, durably: bool = True) -> None:
    """Copy bytes; permissions and times are not copied. Raises as `open_file`."""
    with open_file(source) as read, target.open("wb") as write:
        shutil.copyfileobj(read, write, 1 << 20)
        if durably:
            write.flush()
            os.fsync(write.fileno())


@contextmanager
def atomic_file(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a path to write to; on success it becomes `path`, on any failure it is removed.

    The lock of `path` is held meanwhile, so that nothing but what a killed run has left unfinished is removed. Raises a
    UsageError where `path` exists and `force` is not given.
    """
    with _unfinished(path, force=force) as unfinished:
        # For this user alone until it is whole: nobody is to read a part of it by the name that it has meanwhile.
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield unfinished
        let_others_read(unfinished)
        _note_of_request(path, unfinished, force=force)
        os.replace(unfinished, path)
        sync_path(path.parent)


@contextmanager
def atomic_folder(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield an empty folder to fill; it becomes `path` as by `atomic_file`."""
    with _unfinished(path, force=force) as unfinished:
        unfinished.mkdir(mode=0o700)
        yield unfinished
        let_others_read(unfinished)
        sync_path(unfinished)
        replaces = force or is_of_killed_run(path)
        _note_of_request(path, unfinished, force=force)
        rename_folder(unfinished, path, hidden_sibling(path, "replaced"), force=replaces)


def let_others_read(path: Path) -> None:
    """Give a file or folder that its owner alone may read the permissions of a new one, as the umask has them."""
    mode = 0o666
    if path.is_dir():
        mode = 0o777
    path.chmod(mode & ~_umask())


def _umask() -> int:
    """Return the umask of this process."""
    try:
        with _STATUS.open(encoding="utf-8", errors="replace") as status:
            for line in status:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    # Elsewhere it is read by setting it: to a strict one, as another thread may make a file meanwhile
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _note_of_request(path: Path, unfinished: Path, *, force: bool) -> None:
    """Let the request that runs note what is about to get the name of an output, unless it may replace that anyway."""
    request = running()
    if request is not None and not force:
        request.publishes(path, unfinished)


def is_of_killed_run(path: Path) -> bool:
    """Return whether the request that runs has made what has the name of an output, and was killed right then."""
    request = running()
    return request is not None and request.made(path)


@contextmanager
def _unfinished(path: Path, *, force: bool) -> Iterator[Path]:
    """Yield a free name beside `path` while its lock is held, and remove what has that name in the end."""
    refuse_existing(path, force=force)
    unfinished = hidden_sibling(path, "unfinished")
    replaced = hidden_sibling(path, "replaced")
    with output_lock(path), output_errors(path):
        if os.path.lexists(replaced) and not os.path.lexists(path):  # a run was killed between two renames
            os.rename(replaced, path)
        _remove(unfinished)
        _remove(replaced)
        refuse_existing(path, force=force)
        try:
            yield unfinished
        finally:
            with suppress(OSError):
                _remove(unfinished)
                _remove(replaced)


def hidden_sibling(path: Path, ending: str) -> Path:
    """Return a hidden path beside an output, for what is there while it is made."""
    # Beside it, as a rename is one step within a file system only.
    return path.parent / f".{path.name}.{ending}"


def beside(folder: Path) -> Path:
    """Return where our own files of the artefact in a folder lie: in its `OWN_FOLDER`, where that is there."""
    own = folder / OWN_FOLDER
    if own.is_dir():
        return own
    return folder


def _remove(path: Path) -> None:
    """Remove a file, a link or a folder, if it exists."""
    # Of a link the link alone is removed, never what it leads to.
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def refuse_existing(path: Path, *, force: bool) -> None:
    """Make sure that nothing is at `path`, unless it may be replaced.

    A pipe, a device or a mount point never may, nor a folder that changed places by a switch: it is the only copy of
    what it has.
    """
    if is_endless(path):
        raise UsageError(f"{path}: this is a pipe or a device, and cannot be replaced; choose another output")
    if force and not path.is_symlink() and real_path(path) in mounts_in(path):
        raise UsageError(f"{path}: this is a mount point, and cannot be replaced; choose another output")
    if force and (old := switched_folder(path)) is not None:
        word = shlex.quote(str(old))
        raise UsageError(
            f"{path}: a store of a switch of {old} is not replaced; run `rollback {word}` or `forget {word}` first, or "
            "choose another output"
        )
    if not force and (path.is_symlink() or path.exists()) and not is_of_killed_run(path):
        clear_lock(path)
        raise already_exists(path)


def clear_lock(path: Path) -> None:
    """Remove what a killed run has left beside an output that it had given its name, unless another one is at work."""
    if os.path.lexists(hidden_sibling(path, "lock")):
        with suppress(LeadMigrateError, OSError), output_lock(path):
            _remove(hidden_sibling(path, "unfinished"))
            _remove(hidden_sibling(path, "replaced"))


def already_exists(output: object) -> UsageError:
    """Return the error of an output whose name is taken."""
    return UsageError(f"{output} exists; choose another output, or replace it with `force=True`")


def switched_folder(folder: Path) -> str | None:
    """The old location of the switch that a folder has changed places by; None where it has not, or not any more."""
    try:
        _, old, journal = read_file(folder / SWITCH_MARK).decode().split("\n")
    except (OSError, ValueError):
        return None
    if not Path(journal).is_file():
        return None
    return old


def mounts_in(path: Path) -> list[Path]:
    """Return the real paths at which file systems are mounted, of a file or folder and what is in it.

    They cannot be renamed. Linux lists them; elsewhere only the folder itself is looked at.
    """
    resolved = real_path(path)
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        if not os.path.ismount(resolved):
            return []
        return [resolved]
    # In bytes, as a path need not be Unicode.
    escaped = re.compile(rb"\\([0-7]{3})")  # blanks, for example
    points = {escaped.sub(lambda match: bytes([int(match[1], 8)]), line.split(b" ")[4]) for line in lines}
    return sorted(
        point for point in map(Path, map(os.fsdecode, points)) if point == resolved or resolved in point.parents
    )


def refuse_link(path: Path) -> None:
    """Make sure that a path beside an output is not a link: writing through it would reach any place."""
    if path.is_symlink():
        raise OutputError(f"cannot write {path}: it is a link, which could lead anywhere; remove the link")


def refuse_overlap(output: Path, *inputs: Path) -> None:
    """Make sure that an output is none of the inputs, nor inside one, nor a folder that one is in.

    With `--force` the output would replace them; without, it would add files to an input folder.
    """
    resolved = real_path(output)
    for path in inputs:
        read = real_path(path)
        if not read.exists():
            continue
        if resolved == read or resolved in read.parents or (read in resolved.parents and read.is_dir()):
            raise UsageError(f"{output} overlaps {path}, which is read; choose an output outside of it")


def refuse_output(path: Path, *inputs: Path, force: bool) -> None:
    """Make sure, before the work is done rather than after it, that an output can be written."""
    refuse_overlap(path, *inputs)
    refuse_existing(path, force=force)
    refuse_unwritable(path)


def refuse_unwritable(path: Path) -> None:
    """Make sure that the folder which an output will lie in can be written to."""
    resolved = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    if not resolved.is_dir():
        raise OutputError(f"cannot write {path}: {resolved} is not a folder; choose another place")
    if not os.access(resolved, os.W_OK | os.X_OK, effective_ids=True):
        raise OutputError(
            f"cannot write {path}: {resolved} is not writable; check the permissions, or choose another place"
        )
    with output_errors(path), tempfile.TemporaryFile(dir=resolved):  # root may write, and yet cannot everywhere
        pass


def refuse_file(path: Path, *inputs: Path, force: bool) -> None:
    """Do as `refuse_output` for a file, which may replace a file with `force`, but no folder."""
    refuse_output(path, *inputs, force=force)
    if path.is_dir():
        raise UsageError(f"{path}: this is a folder, but the output is a file; choose another output")


def real_path(path: Path) -> Path:
    """Follow all links of a path; one that leads in a circle stays as it is (`Path.resolve` raises)."""
    return Path(os.path.realpath(path))


def require_room(path: Path, size: int) -> None:
    """Make sure that the disk has `size` bytes for a file, before the work is done rather than in the middle of it."""
    with output_errors(path):
        free = shutil.disk_usage(path.parent).free
    if size > free:
        raise OutputError(
            f"cannot write {path}: it needs {size} bytes, but only {free} are free; free some space, or "
            "choose another output, and run the same command again"
        )


def rename_folder(new: Path, path: Path, replaced: Path, *, force: bool) -> None:
    """Rename a folder durably, or leave both as they were; with `force`, something at `path` is at `replaced` then.

    The two trade places in one step where the system can.
    """
    identity = new.lstat()
    try:
        if not (force and os.path.lexists(path)):
            os.rename(new, path)
        elif exchange_paths(new, path):
            os.rename(new, replaced)
        else:
            os.rename(path, replaced)
            os.rename(new, path)
        sync_path(path.parent)
    except BaseException:
        with suppress(OSError):
            if os.path.samestat(identity, path.lstat()) and not (os.path.lexists(new) and exchange_paths(new, path)):
                os.rename(path, new)
        with suppress(OSError):
            if os.path.lexists(replaced) and not os.path.lexists(path):
                os.rename(replaced, path)
        raise


def exchange_paths(first: Path, second: Path) -> bool:
    """Let two paths trade places in one step (renameat2 of Linux); False where the system cannot."""
    # The `os` of Python has no call that exchanges two paths.
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    current_folder = -100
    exchange = 2
    if rename(current_folder, os.fsencode(first), current_folder, os.fsencode(second), exchange) == 0:
        return True
    code = ctypes.get_errno()
    # An old kernel has no such call, and a file system that cannot do it says EINVAL.
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(first))


_last_removals: list[Callable[[], None]] | None = None
"""What the command that is running removes when it has ended; None where none is."""


@contextmanager
def command_ends() -> Iterator[None]:
    """Put off what is removed last (`remove_last`) until the command inside has ended, well or with an error.

    What is left by one that is killed or interrupted before says that its output is complete: the same command finds
    that, and ends well.
    """
    global _last_removals
    outer = _last_removals
    _last_removals = []
    removals = _last_removals
    try:
        yield
        if (request := running()) is not None:
            request.ends(0)
    except KeyboardInterrupt:
        removals.clear()
        raise
    finally:
        _last_removals = outer
        for remove in removals:
            remove()


def remove_last(remove: Callable[[], None]) -> None:
    """Call what removes the note that an output is complete: when the command has ended, or now where none runs."""
    if _last_removals is None:
        remove()
    else:
        _last_removals.append(remove)


@contextmanager
def output_lock(path: Path) -> Iterator[None]:
    """Hold the lock of an output path, a file beside it that is there meanwhile; it dies with the process.

    Raises a LockedError where another process holds it, and a UsageError where the path has no name, as `.` and `..`.
    """
    if path.name in ("", ".."):
        raise UsageError(f"{str(path)!r} is not the name of a new folder; choose another output")
    lock = hidden_sibling(path, "lock")
    refuse_link(lock)
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _locked_file(lock)
    if descriptor is None:
        raise LockedError(f"another run is writing {path}; wait for it, or choose another output")
    try:
        yield
    finally:
        # Removed while it is held: a process that opened it meanwhile finds that it lost its name, and tries again.
        with suppress(OSError):
            lock.unlink()
        os.close(descriptor)


def _locked_file(lock: Path) -> int | None:
    """Return a descriptor of the lock file that has that name, locked; None where another process holds it."""
    while True:
        # No link is followed: it could make any file of this user the lock.
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                # The holder before may have removed the name after this process opened it: then this locks what nobody
                # else sees.
                if os.path.samestat(os.fstat(descriptor), os.lstat(lock)):
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def cache_folder() -> Path:
    """Return the folder of downloads and embeddings: $XDG_CACHE_HOME or ~/.cache, `lead-migrate` inside."""
    return _user_folder("XDG_CACHE_HOME", ".cache")


def default_cache_path() -> Path:
    """Return the embedding cache that is used unless the user names another."""
    return cache_folder() / "embeddings.sqlite"


def work_folder() -> Path:
    """Return the folder of exports and copies of databases: $LEAD_MIGRATE_WORK_FOLDER, or the cache folder."""
    return Path(os.environ.get(WORK_FOLDER) or cache_folder())


def state_folder() -> Path:
    """Return the folder of unfinished outputs of servers: $XDG_STATE_HOME or ~/.local/state, `lead-migrate` inside."""
    return _user_folder("XDG_STATE_HOME", ".local/state")


def _user_folder(variable: str, in_home: str) -> Path:
    """Return our folder in the one that a variable names, or else in one of the user's home.

    Raises an OutputError where neither is known, as for the user of a container who has no entry in its list.
    """
    base = os.environ.get(variable)
    try:
        return Path(base or Path.home() / in_home) / "lead-migrate"
    except RuntimeError as error:
        raise OutputError(f"this user has no home folder; set HOME, or {variable}, to a folder to write to") from error


def free_path(path: Path) -> Path:
    """Return the path, or with a number behind it, so that nothing is there yet."""
    free = path
    number = 1
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
