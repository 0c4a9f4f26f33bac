"""Spoils the surroundings: disks that fill, calls that fail, signals, limits, other runs."""

import errno
import fcntl
import os
import resource
import shutil
import subprocess

from fault_place import files_of, spoiler
from refusing_disk import RefusingDisk

from migrate.work.writer import FlatFileWriter

TRANSLATE = ("translate", "store", "stitch", "-o", "out", "-q")
ENOSPC, EIO = errno.ENOSPC, errno.EIO


def expect(place):
    """Make what an undisturbed run makes, once."""
    if not (place / "expected").exists():
        place.make("translate", "store", "stitch", "-o", "expected", "-q")


def run_undisturbed(place):
    """Let the next commands run in this process, without the fault."""
    place.patch.undo()
    place.child, place.environment = None, {}
    expect(place)


def goes_on(place):
    """The same command without the fault ends as an undisturbed run does."""
    run_undisturbed(place)
    place.make(*TRANSLATE)
    assert files_of(place / "out") == files_of(place / "expected")
    assert not place.locks()
    assert not (place / ".out.work").exists()
    shutil.rmtree(place / "out")


def same_bytes(place):
    """What was made is what an undisturbed run makes."""
    run_undisturbed(place)
    assert files_of(place / "out") == files_of(place / "expected")
    shutil.rmtree(place / "out")


@spoiler
def disk(place, number, *, stays):
    """Refuse every eighth write, fsync and rename of the command; with `stays` what needs room after it, too."""
    expect(place)
    with place.patch.context() as patch:
        counting = RefusingDisk(1 << 30, number, stays=stays)
        counting.install(patch)
        place.make(*TRANSLATE)
    shutil.rmtree(place / "out")
    assert counting.count > 15
    for at in range(1, counting.count + 1, 8):
        RefusingDisk(at, number, stays=stays).install(place.patch)
        yield


@spoiler
def file_limits(place, *spare):
    """A limit on the sizes of files that ends the run so many bytes before the end of the index."""
    expect(place)
    size = (place / "expected/index.faiss").stat().st_size
    for bytes_left in spare:
        kept = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - bytes_left, kept[1]))
        place.stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, kept)
        yield


def lift_limit_and_go_on(place):
    place.stack.close()
    goes_on(place)


def little_room(place):
    usage = shutil.disk_usage(place.folder)
    place.patch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1000))


def dies_at_each_step(place):
    expect(place)
    for moment in ("begun", "synced", "written", "recorded", "filled", "complete", "published"):
        dies_at(moment, place)
        yield


def dies_at(moment, place):
    place.child = f"import dying\ndying.die_at({moment!r})"


@spoiler
def signalled(place, number):
    """A signal comes when the first part is on disk. A shell may have had its children ignore Ctrl-C."""
    place.child = f"""
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from migrate.work.shards import ShardFolder
add = ShardFolder.add
def add_and_signal(shards, shard, name):
    add(shards, shard, name)
    os.kill(os.getpid(), {int(number)})
ShardFolder.add = add_and_signal
"""


def locked(place):
    """Another process holds the lock."""
    file = place.stack.enter_context((place / ".out.lock").open("a"))
    fcntl.flock(file, fcntl.LOCK_EX)


def lock_of_the_dead(place):
    dead = subprocess.run(["true"], check=True)  # its number is free again
    (place / ".out.lock").write_text(str(dead.returncode))


def unfinished(place):
    dies_at("recorded", place)
    died = place.run(TRANSLATE)
    assert died.code == 137, died
    place.child, place.environment = None, {}


def touch_docs(place):
    os.utime(place.docs, ns=(1, 1))


@spoiler
def memory(place, spare_bytes):
    """So much memory beside what the program itself takes."""
    place.child = f"""
import resource
import faiss, numpy, safetensors.numpy, sqlite3
import migrate.translate, migrate.steps.fit.job, migrate.stores, migrate.pipeline.job
numpy.ones((64, 64)) @ numpy.ones((64, 64))
mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + {spare_bytes},) * 2)
"""


@spoiler
def changes_meanwhile(place, how):
    """The source changes between the vectors and the end of the run."""
    finish = FlatFileWriter.finish
    path = place.docs if how == "docs" else place.index

    def changing(writer, rows, shards):
        written = finish(writer, rows, shards)
        stat = path.stat()
        if how == "time":
            os.utime(path, ns=(1, 1))
        elif how == "vanished":
            path.rename(place / "out-of-the-way")
        else:
            path.write_bytes(path.read_bytes()[::-1])
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
        return written

    place.meddled = {str(path.relative_to(place.folder))}
    place.patch.setattr(FlatFileWriter, "finish", changing)


@spoiler
def with_threads(place, count):
    place.child = ""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    place.environment = dict.fromkeys(names, str(count))


def clock_jumps_back(place):
    place.child = "import time\nnow = time.time\ntime.time = lambda: now() - 86_400 * 9_000\n"
    place.environment = {"TZ": "Pacific/Kiritimati"}


def folder_without_writing(place):
    (place / "sealed").mkdir(mode=0o555)
    place.unprivileged = True


def summary_is_folder(place):
    """GitHub Actions names a place for the summary that cannot be written to."""
    place.patch.setenv("GITHUB_ACTIONS", "true")
    place.patch.setenv("GITHUB_STEP_SUMMARY", "beir")


def stdout_full(place):
    place.child = "import os\nos.dup2(os.open('/dev/full', os.O_WRONLY), 1)\n"
    place.environment = dict(os.environ)


@spoiler
def out_is_link(place, to):
    (place / "out").symlink_to(place / to)


@spoiler
def link_beside(place, name):
    """Somebody laid a link out of the folder where our own files would be."""
    (place / "precious").mkdir()
    (place / "precious/file").write_text("mine")
    (place / name).symlink_to(place / "precious")
