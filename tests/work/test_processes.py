import os
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from migrate.errors import OutputError, VectorError
from migrate.locations import hide_secrets, secrets_of
from migrate.work.jobs import Configuration, StoreJob, Work
from migrate.work.processes import make_shards
from migrate.work.shards import Block, ShardFolder, shards_of
from migrate.work.writer import StoreWriter, all_put, make_shard

SERVER = "pgvector:postgresql://ann@db.example/shop"


def no_parts(dim):
    """A writer that keeps the vectors in the files of their shards."""
    return StoreWriter(dim, all_put)


@dataclass(frozen=True)
class Rows:
    """A row for each shard, with the number of the process that made it and the password that it knows."""

    bad: int | None = None
    dies: bool = False

    def blocks(self, shard):
        if shard.start == self.bad:
            if self.dies:
                os._exit(9)
            raise VectorError("a bad row")
        facts = {"pid": os.getpid(), "password": secrets_of(SERVER).get("password")}
        yield Block({"vectors": np.full((len(shard), 2), shard.start, np.float32)}, facts)

    def make(self, shard):
        return make_shard(shard, self.blocks(shard), no_parts)()


@dataclass
class Job(StoreJob):
    """A store without a file."""

    rows: Rows
    spreads: bool = True
    waits: bool = False
    stage = "make"

    def configuration(self):
        return Configuration("test")

    def writer(self, work, dim):
        return no_parts(dim)

    def shards(self, work):
        return shards_of(9, 1)

    def blocks(self, shard):
        return self.rows.blocks(shard)

    def opener(self, work):
        return partial(getattr, self.rows, "make")

    def finish(self, work, writer):
        return {}


@pytest.fixture
def work(tmp_path):
    (tmp_path / ".out.work" / "shards").mkdir(parents=True)

    def work(*, spreads=True, waits=False, **options):
        return Work(tmp_path / "out", Job(Rows(**options), spreads, waits))

    return work


def facts_of(work, shards, name):
    """What the finished shards, which are these, note under a name."""
    found = ShardFolder(work.path / "shards")
    assert list(found) == sorted(shards) == list(work.shards)
    assert [found.array(shard, "vectors")[0, 0] for shard in found] == [shard.start for shard in found]
    return {found.details(shard)[name] for shard in found}


@pytest.mark.parametrize(
    ("most", "shards", "options"),
    [
        (2, 9, {"spreads": False}),  # not worth it
        (2, 9, {"spreads": False, "waits": True}),
        (1, 9, {}),
        (2, 3, {}),  # too few
        (2, 0, {}),
    ],
)
def test_work_that_is_not_worth_processes_is_done_here_in_order(work, most, shards, options):
    made = work(**options)
    results = list(make_shards(made, shards_of(shards, 1), most))
    assert results == list(shards_of(shards, 1))
    assert facts_of(made, results, "pid") == ({os.getpid()} if shards else set())


@pytest.mark.slow
def test_slow_work_is_done_by_other_processes_which_know_the_same_passwords(work):
    hide_secrets(SERVER.replace("ann", "ann:long-secret"))
    made = work()
    results = list(make_shards(made, shards_of(9, 1), 2))
    assert sorted(results) == list(shards_of(9, 1))
    processes = facts_of(made, results, "pid")
    assert os.getpid() not in processes and len(processes) <= 2
    assert facts_of(made, results, "password") == {"long-secret"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dies", "error", "words"),
    [(False, VectorError, "a bad row"), (True, OutputError, "a worker process ended before its work was done")],
)
def test_an_error_or_the_death_of_another_process_is_told_here_in_one_line(work, dies, error, words):
    with pytest.raises(error, match=words):
        list(make_shards(work(bad=5, dies=dies), shards_of(9, 1), 2))


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 3, 10])
def test_breaking_off_is_quiet(work, recwarn, after):
    """A thread of the pool that fails fails the test: pytest raises what nobody caught in a thread."""
    results = make_shards(work(), shards_of(400, 1), 2)
    for _ in range(after):
        next(results)
    results.close()
    assert not recwarn.list
