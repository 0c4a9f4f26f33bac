import errno
import fcntl
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from migrate.errors import InputError, LockedError, OutputError, UsageError
from migrate.files import (
    _open_descriptor,
    atomic_file,
    atomic_folder,
    cache_folder,
    canonical_json,
    command_ends,
    copy_file,
    mounts_in,
    open_descriptor,
    open_file,
    output_errors,
    output_lock,
    read_file,
    refuse_endless,
    refuse_endless_database,
    refuse_endless_in,
    refuse_file,
    refuse_output,
    refuse_overlap,
    remove_last,
    require_room,
    sha256_file,
    write_bytes,
    write_json,
)


def fill(aside, text):
    """Write `text` to an output that is being made, be it a file or a folder."""
    (aside / "part" if aside.is_dir() else aside).write_text(text)


def make(atomic, path, text):
    with atomic(path, force=True) as aside:
        fill(aside, text)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def content(path):
    return (path / "part" if path.is_dir() else path).read_text()


def in_python(script, *words):
    """What a script prints that runs in a process of its own."""
    command = [sys.executable, "-c", script, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(params=[atomic_file, atomic_folder])
def atomic(request):
    return request.param


def test_an_output_appears_complete_under_its_name_alone(atomic, tmp_path):
    with atomic(tmp_path / "deep" / "out") as aside:
        fill(aside, "new")
        assert not (tmp_path / "deep" / "out").exists()
    assert content(tmp_path / "deep" / "out") == "new"
    assert names(tmp_path / "deep") == ["out"]


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
@pytest.mark.parametrize("has_proc", [True, False])
def test_an_output_has_the_permissions_that_the_umask_leaves(umask, has_proc, atomic, tmp_path, monkeypatch):
    if not has_proc:
        monkeypatch.setattr("migrate.files._STATUS", tmp_path / "no such file")
    before = os.umask(umask)
    try:
        with atomic(tmp_path / "out") as aside:
            fill(aside, "new")
            assert aside.stat().st_mode & 0o077 == 0
    finally:
        assert os.umask(before) == umask
    usual = 0o777 if atomic is atomic_folder else 0o666
    assert (tmp_path / "out").stat().st_mode & 0o777 == usual & ~umask


def test_a_mount_point_is_not_replaced(mount, tmp_path):
    place = tmp_path / "of two words"
    mount(place)
    mount(place / "in it")
    (place / "file").touch()
    (tmp_path / "link").symlink_to(place)
    assert mounts_in(place) == mounts_in(tmp_path / "link") == [place, place / "in it"]
    assert mounts_in(place / "file") == []
    with pytest.raises(UsageError, match=r"of two words: .* mount point"):
        refuse_output(place, force=True)
    refuse_output(tmp_path / "link", force=True)
    refuse_output(place / "file", force=True)


@pytest.mark.parametrize("error", [ValueError, InputError, KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("existing", [None, "old"])
def test_nothing_is_left_behind_or_lost_by_a_failure(error, existing, atomic, tmp_path):
    if existing:
        make(atomic, tmp_path / "out", existing)
    before = names(tmp_path)
    with pytest.raises(error), atomic(tmp_path / "out", force=True) as aside:
        fill(aside, "half")
        raise error
    assert names(tmp_path) == before
    assert existing is None or content(tmp_path / "out") == existing


def test_force_replaces_only_when_the_new_output_is_complete(atomic, tmp_path):
    make(atomic, tmp_path / "out", "old")
    with atomic(tmp_path / "out", force=True) as aside:
        fill(aside, "new")
        assert content(tmp_path / "out") == "old"
    assert content(tmp_path / "out") == "new"
    assert names(tmp_path) == ["out"]


def test_an_existing_output_is_refused_before_anything_is_done(atomic, tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    before = names(tmp_path)
    for name in ("file", "folder", "dangling"):
        with pytest.raises(UsageError, match=f"{name} exists; .*`force=True`"), atomic(tmp_path / name):
            pytest.fail("the body ran")
    assert names(tmp_path) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), OSError(errno.EIO, "broken")], ids=repr)
@pytest.mark.parametrize(("can_exchange", "fails_at"), [(True, 1), (False, 1), (False, 2)])
def test_a_replacement_of_a_folder_that_fails_keeps_the_old_one(error, can_exchange, fails_at, tmp_path, monkeypatch):
    make(atomic_folder, tmp_path / "out", "old")
    if not can_exchange:
        monkeypatch.setattr("migrate.files.exchange_paths", lambda one, other: False)
    rename, calls = os.rename, []

    def refuse(source, target):
        calls.append(source)
        if len(calls) == fails_at:
            raise error
        rename(source, target)

    monkeypatch.setattr("os.rename", refuse)
    raised = pytest.raises(OutputError, match="broken") if isinstance(error, OSError) else pytest.raises(type(error))
    with raised, atomic_folder(tmp_path / "out", force=True) as aside:
        fill(aside, "new")
    assert content(tmp_path / "out") == "old"
    assert names(tmp_path) == ["out"]


def test_a_parent_that_is_a_file_is_an_output_error(atomic, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match=r"cannot write .*/file/out"), atomic(tmp_path / "file" / "out"):
        pytest.fail("the body ran")


# A root of the container may write anywhere, so the child gives its privileges up.
AS_NOBODY = """
import os, sys
from pathlib import Path
from migrate import files
from migrate.errors import OutputError
os.setgid(65534); os.setuid(65534)
try:
    with getattr(files, sys.argv[1])(Path(sys.argv[2])):
        print("written")
except OutputError as error:
    print(error)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("function", ["atomic_file", "atomic_folder", "output_lock"])
def test_a_folder_that_may_not_be_written_to_is_an_output_error(function):
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders let nobody in
        closed = Path(name)
        os.chmod(closed, 0o755)
        told = in_python(AS_NOBODY, function, closed / "out")
        assert names(closed) == []
    assert "cannot write" in told and "Permission denied" in told and "check the permissions" in told


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from migrate import files
from migrate.errors import OutputError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with getattr(files, sys.argv[1])(Path(sys.argv[2]), force=True) as aside:
        files.write_bytes(aside / "part" if aside.is_dir() else aside, b"x" * 5000)
except OutputError as error:
    print(error)
"""


def test_a_file_that_grows_too_large_leaves_the_old_output_as_it_was(atomic, tmp_path):
    make(atomic, tmp_path / "out", "old")
    told = in_python(FULL_DISK, atomic.__name__, tmp_path / "out")
    assert "cannot write" in told and "File too large" in told
    assert content(tmp_path / "out") == "old"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EACCES, "permissions"),
        (errno.EROFS, "another place"),
        (errno.EIO, "see what holds it"),
        (None, "see"),
    ],
)
def test_an_error_of_the_system_names_the_path_and_a_remedy(number, remedy, tmp_path):
    error = OSError("odd") if number is None else OSError(number, os.strerror(number), str(tmp_path / "inner"))
    with (
        pytest.raises(OutputError, match=f"cannot write {tmp_path}: .*; .*{remedy}") as caught,
        output_errors(tmp_path),
    ):
        raise error
    assert ("inner" in str(caught.value)) == (number is not None)
    assert caught.value.__cause__ is error


HOLD = """
import sys, time
from pathlib import Path
from migrate.files import output_lock
with output_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_keeps_other_processes_out_leaves_no_file_and_dies_with_its_own(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        for _ in range(2):  # who is refused leaves the lock to its holder
            with (
                pytest.raises(LockedError, match=r"another run is writing .*out") as caught,
                output_lock(tmp_path / "out"),
            ):
                pytest.fail("two hold the lock")
        assert caught.value.exit_code == 6
        with output_lock(tmp_path / "other"):
            assert names(tmp_path) == [".other.lock", ".out.lock"]
        assert names(tmp_path) == [".out.lock"]
        holder.kill()
    with output_lock(tmp_path / "out"):
        pass
    assert names(tmp_path) == []


def test_a_lock_is_let_go_at_the_end_and_on_failure(tmp_path):
    with pytest.raises(ValueError, match="mine"), output_lock(tmp_path / "new" / "out"):
        raise ValueError("mine")
    with output_lock(tmp_path / "new" / "out"), pytest.raises(LockedError), output_lock(tmp_path / "new" / "out"):
        pass
    with output_lock(tmp_path / "new" / "out"):
        pass


def test_a_lock_that_lost_its_name_before_it_was_taken_is_not_believed(tmp_path, monkeypatch):
    real, calls = fcntl.flock, []

    def flock(descriptor, how):
        calls.append(descriptor)
        if len(calls) == 1:
            (tmp_path / ".out.lock").unlink()  # its holder let go between our open and our lock
        real(descriptor, how)

    monkeypatch.setattr("fcntl.flock", flock)
    with output_lock(tmp_path / "out"):
        assert len(calls) == 2
        with pytest.raises(LockedError), output_lock(tmp_path / "out"):
            pytest.fail("two hold the lock")
    assert names(tmp_path) == []


CROWD = """
import os, sys
from pathlib import Path
from migrate.errors import LockedError
from migrate.files import output_lock
taken = 0
while taken < 200:
    try:
        with output_lock(Path(sys.argv[1]) / "out"):
            os.close(os.open(sys.argv[1] + "/inside", os.O_CREAT | os.O_EXCL))
            os.unlink(sys.argv[1] + "/inside")
            taken += 1
    except LockedError:
        pass
"""


@pytest.mark.slow
def test_a_crowd_takes_a_lock_one_at_a_time(tmp_path):
    crowd = [subprocess.Popen([sys.executable, "-c", CROWD, str(tmp_path)]) for _ in range(3)]
    assert [member.wait(60) for member in crowd] == [0, 0, 0]
    assert names(tmp_path) == []


DIES = """
import os, signal, sys
from pathlib import Path
from migrate import files
rename, calls = os.rename, []
def dying(source, target):
    calls.append(source)
    if len(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)
os.rename = os.replace = dying
if sys.argv[4] == "renames":
    files.exchange_paths = lambda one, other: False
with getattr(files, sys.argv[1])(Path(sys.argv[2]), force=True) as aside:
    (aside / "part" if aside.is_dir() else aside).write_text("new")
"""


@pytest.mark.parametrize(
    ("atomic", "renames", "how", "after"),
    [
        (atomic_file, 1, "renames", "old"),
        (atomic_folder, 1, "renames", "old"),
        (atomic_folder, 2, "renames", "old"),
        (atomic_folder, 1, "exchange", "new"),
    ],
)
def test_what_a_killed_run_left_is_removed_and_what_it_replaced_put_back(atomic, renames, how, after, tmp_path):
    make(atomic, tmp_path / "out", "old")
    command = [sys.executable, "-c", DIES, atomic.__name__, str(tmp_path / "out"), str(renames), how]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert ".out.unfinished" in names(tmp_path)
    (tmp_path / "other").write_text("mine")
    with pytest.raises(UsageError, match="exists"), atomic(tmp_path / "out"):
        pytest.fail("the body ran")
    assert content(tmp_path / "out") == after
    make(atomic, tmp_path / "out", "newer")
    assert content(tmp_path / "out") == "newer"
    assert names(tmp_path) == ["other", "out"]


def test_equal_values_give_equal_json_which_is_written_sorted_and_readable(tmp_path):
    assert canonical_json({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"é"]}'
    assert canonical_json({"b": 1, "a": 2}) == canonical_json({"a": 2, "b": 1})
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))
    write_json(tmp_path / "x.json", {"b": "é", "a": [1]})
    text = (tmp_path / "x.json").read_text("utf-8")
    assert text.endswith("}\n") and "é" in text
    assert list(json.loads(text).items()) == [("a", [1]), ("b", "é")]


@pytest.mark.parametrize("size", [0, 1, (1 << 20) + 7])
def test_files_are_written_copied_and_hashed_whole(size, tmp_path):
    payload = os.urandom(size)
    write_bytes(tmp_path / "a", payload)
    copy_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == payload
    assert sha256_file(tmp_path / "b") == hashlib.sha256(payload).hexdigest()


def test_the_cache_is_where_the_system_keeps_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "lead-migrate"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "lead-migrate"


@pytest.mark.parametrize("output", ["in", "in/new", ".", "link", "link/new", "in/../in", "in/deep/file"])
def test_an_output_may_not_replace_or_enter_an_input(output, tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    with pytest.raises(UsageError, match="which is read; choose an output outside of it"):
        refuse_overlap(tmp_path / output, tmp_path / "in")
    assert "in" in names(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no such device")
def test_a_device_is_not_replaced(atomic):
    with pytest.raises(UsageError, match="this is a pipe or a device"), atomic(Path("/dev/full"), force=True):
        pytest.fail("the body ran")


def test_a_file_is_promised_only_where_one_can_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    refuse_file(tmp_path / "new" / "deep" / "out", force=False)
    refuse_file(tmp_path / "file", force=True)
    refuse_output(tmp_path / "folder", force=True)
    with pytest.raises(UsageError, match="this is a folder, but the output is a file"):
        refuse_file(tmp_path / "folder", force=True)
    with pytest.raises(OutputError, match=r"file is not a folder"):
        refuse_file(tmp_path / "file" / "out", force=False)
    assert names(tmp_path) == ["file", "folder"]


def test_an_output_may_stand_beside_its_inputs(tmp_path):
    (tmp_path / "index.faiss").write_text("x")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    refuse_overlap(tmp_path / "new", tmp_path / "index.faiss", tmp_path / "new-ones", tmp_path / "circle")
    with pytest.raises(UsageError):
        refuse_overlap(tmp_path, tmp_path / "index.faiss")


@pytest.mark.parametrize("name", ["", ".."])
def test_a_lock_needs_a_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is not the name of a new folder"), output_lock(Path(name)):
        pass
    assert names(tmp_path) == []


def test_a_lock_is_not_followed_anywhere(tmp_path):
    (tmp_path / ".out.lock").symlink_to(tmp_path / "elsewhere")
    with (
        pytest.raises(OutputError, match="is a link"),
        output_lock(tmp_path / "out"),
    ):
        pass
    assert names(tmp_path) == [".out.lock"]


def test_room_is_asked_of_the_disk(tmp_path):
    require_room(tmp_path / "new", 1)
    with pytest.raises(OutputError, match=r"1152921504606846976 bytes, but only \d+"):
        require_room(tmp_path / "new", 1 << 60)


def test_the_hash_of_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="this is a pipe"):
        sha256_file(tmp_path / "pipe")


def endless(kind, path):
    """Put there what never ends, or never begins."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    else:
        path.symlink_to({"device": "/dev/zero", "full device": "/dev/full"}[kind])


ENDLESS = ("pipe", "socket", "device", "full device")
READERS = {
    "open_file": lambda path: open_file(path).close(),
    "open_descriptor": lambda path: os.close(open_descriptor(path)),
    "read_file": read_file,
    "copy_file": lambda path: copy_file(path, path.with_name("copy")),
    "refuse_endless": refuse_endless,
    "refuse_endless_in": lambda path: refuse_endless_in(path.parent),
    "refuse_endless_database": refuse_endless_database,
}


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("reader", READERS)
def test_what_never_ends_is_not_read(reader, kind, tmp_path):
    endless(kind, tmp_path / "x")
    with pytest.raises(InputError, match="/x: this is a pipe"):
        READERS[reader](tmp_path / "x")
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("reader", READERS)
def test_a_link_to_a_file_is_read(reader, tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "x").symlink_to("file")
    (tmp_path / "circle").symlink_to(tmp_path, target_is_directory=True)
    assert READERS[reader](tmp_path / "x") in (None, b"content")


@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm"])
def test_what_lies_beside_a_database_and_never_ends_is_refused(ending, tmp_path):
    endless("pipe", tmp_path / f"x{ending}")
    with pytest.raises(InputError, match=f"/x{ending}: this is a pipe"):
        refuse_endless_database(tmp_path / "x")


@pytest.mark.parametrize("kind", ENDLESS)
def test_what_never_ends_is_found_below_a_folder_and_through_links(kind, tmp_path):
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "link").symlink_to(elsewhere, target_is_directory=True)
    refuse_endless_in(folder)
    endless(kind, elsewhere / "x")
    with pytest.raises(InputError, match="folder/link/x: this is a pipe"):
        refuse_endless_in(folder)


def test_a_pipe_that_comes_after_the_look_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="this is a pipe"), open(tmp_path / "pipe", "rb", opener=_open_descriptor):
        pass


def test_as_many_files_may_be_open_as_are_needed_and_the_system_allows():
    code = (
        "import resource as r, sys; from migrate.errors import UsageError; from migrate.files import allow_open_files\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, 1000))\n"
        "limit = lambda: r.getrlimit(r.RLIMIT_NOFILE)\n"
        "allow_open_files(200, 100, 'it'); print(limit())\n"
        "allow_open_files(600, 300, 'it'); print(limit())\n"
        "allow_open_files(5_000, 900, 'it'); print(limit())\n"
        "try: allow_open_files(5_000, 2_000, 'it')\n"
        "except UsageError as error: print(error)\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    *limits, refusal = printed.splitlines()
    assert limits == ["(256, 1000)", "(600, 1000)", "(1000, 1000)"]
    assert re.match("it: 2,000 .* 1,000; .*`ulimit -n`", refusal)


def test_what_says_that_all_is_done_goes_when_the_command_has_ended_but_not_when_it_is_interrupted():
    done = []
    remove_last(lambda: done.append("at once"))
    with command_ends():
        remove_last(lambda: done.append("last"))
        assert done == ["at once"]
    assert done == ["at once", "last"]
    with pytest.raises(ValueError, match="wrong"), command_ends():
        remove_last(lambda: done.append("after an error"))
        raise ValueError("wrong")
    with pytest.raises(KeyboardInterrupt), command_ends():
        remove_last(lambda: done.append("after Ctrl-C"))
        raise KeyboardInterrupt
    assert done == ["at once", "last", "after an error"]
