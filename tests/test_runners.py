import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from migrate.runners import LocalRunner, Shard, ShardResult, ShardTask, shards_of

from migrate.errors import OutputError, VectorError


@dataclass(frozen=True)
class Task(ShardTask):
    """Writes the number of its process into a file of each shard."""

    folder: Path
    portable: bool = True
    bad: int | None = None
    dies: bool = False

    @property
    def is_portable(self):
        return self.portable

    def open(self):
        return self.do

    def do(self, shard):
        if shard.start == self.bad:
            if self.dies:
                os._exit(9)
            raise VectorError("a bad row")
        path = self.folder / str(shard.start)
        path.write_text(str(os.getpid()))
        return ShardResult(shard, path, 0, path.stat().st_size, {"pid": os.getpid()})


def test_shards_cover_every_row_once():
    assert list(shards_of(10, 4)) == [Shard(0, 4), Shard(4, 8), Shard(8, 10)]
    assert list(shards_of(8, 4)) == [Shard(0, 4), Shard(4, 8)]
    assert list(shards_of(0, 4)) == []
    assert list(shards_of(6, 4, 8)) == [Shard(8, 12), Shard(12, 14)]


def test_a_task_that_is_not_portable_is_done_here_in_order(tmp_path):
    results = list(LocalRunner(2).run(Task(tmp_path, portable=False), shards_of(9, 1)))
    assert [result.shard.start for result in results] == list(range(9))
    assert {result.facts["pid"] for result in results} == {os.getpid()}


def test_one_process_is_this(tmp_path):
    results = list(LocalRunner(1).run(Task(tmp_path), shards_of(9, 1)))
    assert [result.shard.start for result in results] == list(range(9))
    assert {result.facts["pid"] for result in results} == {os.getpid()}


def test_few_shards_are_not_worth_a_process(tmp_path):
    results = list(LocalRunner(2).run(Task(tmp_path), shards_of(3, 1)))
    assert {result.facts["pid"] for result in results} == {os.getpid()}


def test_a_portable_task_is_done_by_other_processes(tmp_path):
    results = list(LocalRunner(2).run(Task(tmp_path), shards_of(9, 1)))
    assert sorted(result.shard.start for result in results) == list(range(9))
    assert os.getpid() not in {result.facts["pid"] for result in results}
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == list(range(9))


def test_an_error_of_another_process_is_raised_here(tmp_path):
    with pytest.raises(VectorError, match="a bad row"):
        list(LocalRunner(2).run(Task(tmp_path, bad=5), shards_of(9, 1)))


def test_a_process_that_dies_is_told_in_one_line(tmp_path):
    with pytest.raises(OutputError, match="a worker process ended before its work was done"):
        list(LocalRunner(2).run(Task(tmp_path, bad=5, dies=True), shards_of(9, 1)))


def test_breaking_off_is_quiet(tmp_path, recwarn):
    results = LocalRunner(2).run(Task(tmp_path), shards_of(40, 1))
    next(results)
    results.close()
    assert not recwarn.list
