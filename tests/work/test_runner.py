import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from migrate.errors import OutputError, VectorError
from migrate.work.jobs import Configuration, StoreJob, Task, Work, shard_maker
from migrate.work.runner import LocalRunner
from migrate.work.shards import Block, ShardFolder, pack, shards_of
from migrate.work.writer import NoParts


@dataclass(frozen=True)
class Rows(Task):
    """A row for each shard, with the number of the process that made it."""

    work: Path
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
        return Work(tmp_path / "out", Job(Rows(tmp_path / ".out.work", **options), spreads, waits))

    return work


def processes(work, shards):
    """Which processes made them."""
    found = ShardFolder(work.path / "shards")
    assert list(found) == sorted(shards) == list(work.shards)
    assert [found.array(shard, "vectors")[0, 0] for shard in found] == [shard.start for shard in found]
    return {found.facts(shard)["pid"] for shard in found}


@pytest.mark.parametrize("waits", [True, False])
def test_work_that_is_not_worth_processes_is_done_here_in_order(work, waits):
    made = work(spreads=False, waits=waits)
    results = list(LocalRunner(2).run(made, shards_of(9, 1)))
    assert results == list(shards_of(9, 1))
    assert processes(made, results) == {os.getpid()}


def test_one_process_is_this(work):
    results = list(LocalRunner(1).run(made := work(), shards_of(9, 1)))
    assert results == list(shards_of(9, 1)) and processes(made, results) == {os.getpid()}


def test_few_shards_are_not_worth_a_process(work):
    results = list(LocalRunner(2).run(made := work(), shards_of(3, 1)))
    assert processes(made, results) == {os.getpid()}


def test_slow_work_is_done_by_other_processes(work):
    results = list(LocalRunner(2).run(made := work(), shards_of(9, 1)))
    assert sorted(results) == list(shards_of(9, 1))
    assert os.getpid() not in processes(made, results)


def test_an_error_of_another_process_is_raised_here(work):
    with pytest.raises(VectorError, match="a bad row"):
        list(LocalRunner(2).run(work(bad=5), shards_of(9, 1)))


def test_a_process_that_dies_is_told_in_one_line(work):
    with pytest.raises(OutputError, match="a worker process ended before its work was done"):
        list(LocalRunner(2).run(work(bad=5, dies=True), shards_of(9, 1)))


def test_breaking_off_is_quiet(work, recwarn):
    results = LocalRunner(2).run(work(), shards_of(40, 1))
    next(results)
    results.close()
    assert not recwarn.list


@dataclass(frozen=True)
class Echo(Task):
    """Makes a shard at once."""

    def name_of(self, *arguments):
        return "echo"

    def open(self):
        return lambda number: pack({}, {"number": number})


def test_a_pool_that_is_stopped_while_calls_begin_ends_them_all_in_one_line():
    """A thread of the pool that fails fails the test: pytest raises what nobody caught in a thread."""
    for pause_s in (0.4, 0.401, 0.402, 0.403):
        with LocalRunner(2).pool(lambda _: Echo(), ahead=2, most=None) as pool, ThreadPoolExecutor(4) as threads:

            def call_until_stopped(number, pool=pool):
                with pytest.raises(OutputError, match="a worker process ended"):
                    while True:
                        assert pool.call(number).facts == {"number": number}

            calls = [threads.submit(call_until_stopped, number) for number in range(4)]
            time.sleep(pause_s)
            pool.stop()
            for call in calls:
                call.result(timeout=60)
