import hashlib
import os

import pytest
from migrate.checkpoint.folder import LOCAL, Configuration, StoreJob, make_folder, write_store
from migrate.runners import LocalRunner, ShardResult, ShardTask, shards_of

from migrate.errors import LockedError, OutputError, StoreError, UsageError, VectorError
from migrate.files import output_lock


class Maker(StoreJob, ShardTask):
    """A file of five rows of a byte each, in five shards, which fails where it is told to."""

    stage = "make"
    total = 5

    def __init__(self, output):
        self.output, self.made, self.fail_at, self.error = output, [], None, None

    def configuration(self):
        return self.made_from

    def shards(self):
        return shards_of(5, 1)

    def task(self, work):
        self.path = work.content / "rows"
        self.path.touch()
        return self

    def open(self):
        return self.make

    def make(self, shard):
        number = shard.start
        if number == self.fail_at:
            raise self.error
        with self.path.open("r+b") as file:
            file.seek(number)
            file.write(b"%d" % number)
        self.made.append(number)
        return ShardResult(shard, self.path, number, number + 1)

    def finish(self, work):
        if self.fail_at == 5:
            raise self.error
        self.sha256 = work.digest.of(self.path)
        return {"rows": work.rows}

    def run(self, *, fail_at=None, error=None, source=1, options=1, runner=LOCAL, **flags):
        self.fail_at, self.error = fail_at, error
        self.made_from = Configuration("test", {"source": source}, {"speed": options})
        return write_store(self.output, self, runner=runner, **flags)

    def break_off(self, at=3, **flags):
        with pytest.raises(OutputError):
            self.run(fail_at=at, error=OSError("broken"), **flags)


@pytest.fixture
def maker(tmp_path):
    return Maker(tmp_path / "out")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_undisturbed_run_leaves_the_output_alone(maker, tmp_path):
    assert maker.run() == {"rows": 5}
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / "rows").read_bytes() == b"01234"


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_run_makes_the_shards_that_are_left(maker, tmp_path, at):
    maker.break_off(at)
    assert names(tmp_path) == [".out.work"]
    maker.run()
    assert maker.made == [0, 1, 2, 3, 4]
    assert names(tmp_path) == ["out"]


class Backwards:
    """A runner that begins with the last shard."""

    def run(self, task, shards):
        yield from map(task.open(), reversed(list(shards)))


@pytest.mark.parametrize("first", [LocalRunner(), Backwards()])
@pytest.mark.parametrize("then", [LocalRunner(), Backwards()])
def test_any_order_of_shards_makes_the_same_bytes_and_the_hash_is_theirs(maker, tmp_path, first, then):
    maker.break_off(2, runner=first)
    maker.run(runner=then)
    assert sorted(maker.made) == [0, 1, 2, 3, 4]
    assert (tmp_path / "out" / "rows").read_bytes() == b"01234"
    assert maker.sha256 == hashlib.sha256(b"01234").hexdigest()


def test_what_a_stream_has_after_a_gap_is_made_again(maker, tmp_path):
    maker.in_order = True
    maker.break_off(2, runner=Backwards())
    maker.made.clear()
    maker.run()
    assert maker.made == [0, 1, 2, 3, 4]
    assert (tmp_path / "out" / "rows").read_bytes() == b"01234"


def test_what_has_no_part_yet_is_not_kept(maker, tmp_path):
    maker.break_off(0)
    assert names(tmp_path) == []


@pytest.mark.parametrize("error", [VectorError("zero"), StoreError("changed")])
def test_rows_of_wrong_data_are_not_kept(maker, tmp_path, error):
    with pytest.raises(type(error)):
        maker.run(fail_at=3, error=error)
    assert names(tmp_path) == []


def test_restart_discards_what_is_there(maker):
    maker.break_off()
    maker.run(restart=True, options=2)
    assert maker.made == [0, 1, 2, 0, 1, 2, 3, 4]


def test_another_source_or_other_options_are_refused_and_the_work_stays(maker, tmp_path):
    maker.break_off()
    with pytest.raises(StoreError, match=r"expected the source .* `restart=True`"):
        maker.run(source=2, options=2)
    with pytest.raises(UsageError, match=r"other values of speed; .* `restart=True`"):
        maker.run(options=2)
    with pytest.raises(UsageError, match=r"expected unfinished work of other, found some of test; .* `restart=True`"):
        make_folder(tmp_path / "out", lambda: Configuration("other", {"source": 1}), lambda _: {})
    assert names(tmp_path) == [".out.work"]
    maker.run()
    assert maker.made == [0, 1, 2, 3, 4]


def test_an_interruption_tells_how_to_go_on(maker):
    with pytest.raises(KeyboardInterrupt) as caught:
        maker.run(fail_at=3, error=KeyboardInterrupt())
    assert caught.value.__notes__ == ["continue with the same command: 3 of 5 rows are done"]


@pytest.mark.parametrize("spoil", [lambda j: j.write_bytes(b"\xff\n" + j.read_bytes()[9:]), os.unlink])
def test_a_journal_that_says_nothing_begins_anew(maker, tmp_path, spoil):
    maker.break_off()
    spoil(tmp_path / ".out.work" / "journal.jsonl")
    maker.run()
    assert maker.made == [0, 1, 2, 0, 1, 2, 3, 4]
    assert names(tmp_path) == ["out"]


def test_damaged_rows_are_made_again_and_told(maker, tmp_path, caplog):
    maker.break_off(4)
    rows = tmp_path / ".out.work" / "content" / "rows"
    rows.write_bytes(b"01x3")
    maker.run()
    assert maker.made == [0, 1, 2, 3, 2, 4]
    assert "1 rows are damaged and are made again" in caplog.text
    assert (tmp_path / "out" / "rows").read_bytes() == b"01234"


def test_an_output_that_is_there_is_refused_or_replaced(maker, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("precious")
    with pytest.raises(UsageError, match="`force=True`"):
        maker.run()
    maker.break_off(force=True)
    assert names(tmp_path / "out") == ["mine"]
    with pytest.raises(UsageError, match="`force=True`"):
        maker.run()
    maker.run(force=True)
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["rows"]


def test_an_older_output_is_not_lost_by_a_restart_in_the_middle_of_its_replacement(maker, tmp_path):
    work = tmp_path / ".out.work"
    maker.break_off()
    (work / "old").mkdir()  # where it waits between two renames
    (work / "old" / "mine").write_text("precious")
    with pytest.raises(UsageError, match="`force=True`"):
        maker.run(restart=True)
    assert names(tmp_path / "out") == ["mine"]


def test_the_folder_is_locked_while_it_is_made(maker, tmp_path):
    with output_lock(tmp_path / "out"), pytest.raises(LockedError):
        maker.run()
