import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from migrate.errors import OutputError, VectorError
from migrate.work.jobs import Configuration, StoreJob, Task, Work, shard_maker
from migrate.work.remote import Folder
from migrate.work.runner import LocalRunner
from migrate.work.shards import Block, ShardFolder, pack, shards_of
from migrate.work.writer import NoParts


@dataclass(frozen=True)
class Rows(Task):
    """A row for each shard, with the number of the process that made it."""

    bad: int | None = None
    dies: bool = False
    digest: str = "0"

    def open(self):
        return shard_maker(self.blocks, NoParts)

    def blocks(self, shard):
        if shard.start == self.bad:
            if self.dies:
                os._exit(9)
            raise VectorError("a bad row")
        yield Block({"vectors": np.full((len(shard), 2), shard.start, np.float32)}, {"pid": os.getpid()})


@dataclass
class Job(StoreJob):
    """A store without a file, of the rows of a task."""

    made: Rows
    spreads: bool = True
    waits: bool = False
    stage = "make"

    def configuration(self):
        return Configuration("test")

    def writer(self, work, dim):
        return NoParts(dim)

    def shards(self, work):
        return shards_of(9, 1)

    def blocks(self, shard):
        return self.made.blocks(shard)

    def task(self, work):
        return self.made

    def finish(self, work, writer):
        return {}


@pytest.fixture
def work(tmp_path):
    (tmp_path / ".out.work" / "shards").mkdir(parents=True)

    def work(*, spreads=True, waits=False, **options):
        return Work(tmp_path / "out", Job(Rows(**options), spreads, waits))

    return work


def processes(work, shards):
    found = ShardFolder(work.path / "shards")
    assert list(found) == sorted(shards) == list(work.shards)
    assert [found.array(shard, "vectors")[0, 0] for shard in found] == [shard.start for shard in found]
    return {found.details(shard)["pid"] for shard in found}


@pytest.mark.parametrize(
    ("most", "shards", "options"),
    [
        (2, 9, {"spreads": False}),  # not worth it
        (2, 9, {"spreads": False, "waits": True}),
        (1, 9, {}),
        (2, 3, {}),  # too few
    ],
)
def test_work_that_is_not_worth_processes_is_done_here_in_order(work, most, shards, options):
    made = work(**options)
    results = list(LocalRunner(most).run(made, shards_of(shards, 1)))
    assert results == list(shards_of(shards, 1))
    assert processes(made, results) == {os.getpid()}


@pytest.mark.slow
def test_slow_work_is_done_by_other_processes(work):
    made = work()
    results = list(LocalRunner(2).run(made, shards_of(9, 1)))
    assert sorted(results) == list(shards_of(9, 1))
    assert os.getpid() not in processes(made, results)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dies", "error", "words"),
    [(False, VectorError, "a bad row"), (True, OutputError, "a worker process ended before its work was done")],
)
def test_an_error_or_the_death_of_another_process_is_told_here_in_one_line(work, dies, error, words):
    with pytest.raises(error, match=words):
        list(LocalRunner(2).run(work(bad=5, dies=dies), shards_of(9, 1)))


def test_breaking_off_is_quiet(work, recwarn):
    results = LocalRunner(2).run(work(), shards_of(40, 1))
    next(results)
    results.close()
    assert not recwarn.list


@dataclass(frozen=True)
class Echo(Task):
    def name_of(self, *arguments):
        return "ec0"

    def open(self):
        return lambda number: pack({}, {"number": number})


@pytest.mark.parametrize("is_sound", [True, False])
def test_a_file_of_an_earlier_run_is_taken_and_made_again_where_it_is_damaged(tmp_path, is_sound):
    folder = Folder(str(tmp_path / "shared"), "--shards shared")
    left = folder.write_hashed("ec0", pack({}, {"number": 1}))
    if not is_sound:
        folder.write(left, b"damaged")
    with LocalRunner(1).pool(lambda _: Echo(), ahead=1, most=None, folder=folder) as pool:
        block = pool.call(1)
        assert block.details == {"number": 1} and block.file == left and block.is_new is not is_sound
        assert pool.call(1).is_new, "what was left is taken once"
        pool.release([left])
        assert folder.names() == []


@pytest.mark.slow
def test_a_pool_that_is_stopped_while_calls_begin_ends_them_all_in_one_line():
    """A thread of the pool that fails fails the test: pytest raises what nobody caught in a thread."""
    for pause_s in (0.4, 0.402):
        with LocalRunner(2).pool(lambda _: Echo(), ahead=2, most=None) as pool, ThreadPoolExecutor(4) as threads:

            def call_until_stopped(number, pool=pool):
                with pytest.raises(OutputError, match="a worker process ended"):
                    while True:
                        assert pool.call(number).details == {"number": number}

            calls = [threads.submit(call_until_stopped, number) for number in range(4)]
            time.sleep(pause_s)
            pool.stop()
            for call in calls:
                call.result(timeout=60)
