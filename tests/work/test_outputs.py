import hashlib
import json
import os
import shutil

import numpy as np
import pytest
from dying import interrupt_at

from migrate.errors import LockedError, OutputError, StoreError, UsageError, VectorError
from migrate.files import output_lock
from migrate.work.jobs import Configuration, StoreJob
from migrate.work.outputs import RunState, open_steps, rows_done, rows_left, write_store
from migrate.work.runner import LOCAL, LocalRunner
from migrate.work.shards import Block, shards_of
from migrate.work.writer import FlatFileWriter, StoreWriter

ROWS = np.arange(10, dtype="<f4").reshape(5, 2)
WHOLE = b"head" + ROWS.tobytes() + b"tail"


class RowWriter(FlatFileWriter):
    """A file of five rows."""

    def __init__(self, folder):
        super().__init__(folder / "rows", b"head", 2, 5)

    def finish(self, rows):
        self.finish_file(rows.count, b"tail")


class WaitingWriter(StoreWriter):
    """The same file, written at the end."""

    dim = 2

    def __init__(self, folder):
        self.folder = folder

    def finish(self, rows):
        (self.folder / "rows").write_bytes(b"head" + b"".join(part.tobytes() for _, part in rows.batches(2)) + b"tail")


class Maker(StoreJob):
    """Five rows in five shards, one of which fails where it is told to."""

    stage = "make"
    total = 5
    dim = 2

    def __init__(self, output, kind):
        self.output, self.kind, self.made, self.fail_at, self.error = output, kind, [], None, None

    def configuration(self):
        return self.made_from

    def writer(self, work, dim):
        return self.kind(work.content)

    def shards(self, work):
        return shards_of(5, 1)

    def blocks(self, shard):
        number = shard.start
        if number == self.fail_at:
            raise self.error
        self.made.append(number)
        yield Block({"vectors": ROWS[number : number + 1], "sources": np.array([number], "<u8")})

    def finish(self, work, writer):
        if self.fail_at == 5:
            raise self.error
        writer.finish(work.all_rows(2))
        self.sha256 = writer.sha256(work.content / "rows")
        self.hashes = work.write_values(np.array([4, 3, 2, 1, 0]))
        return {"rows": work.rows}

    def run(self, *, fail_at=None, error=None, source=1, options=1, runner=LOCAL, **flags):
        self.fail_at, self.error = fail_at, error
        self.made_from = Configuration("test", {"source": source}, {"speed": options})
        return write_store(self.output, self, runner=runner, **flags)

    def break_off(self, at=3, **flags):
        with pytest.raises(OutputError):
            self.run(fail_at=at, error=OSError("broken"), **flags)


@pytest.fixture(params=[RowWriter, WaitingWriter])
def maker(request, tmp_path):
    return Maker(tmp_path / "out", request.param)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_undisturbed_run_leaves_the_output_alone(maker, tmp_path):
    assert maker.run() == {"rows": 5}
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / "rows").read_bytes() == WHOLE


def test_what_is_kept_of_each_row_lies_beside_in_the_order_of_the_new_store(maker, tmp_path):
    maker.run()
    path = tmp_path / "out" / "sources.npy"
    assert np.load(path).tolist() == [4, 3, 2, 1, 0] and np.load(path).dtype == np.uint64
    assert maker.hashes == {"sources.npy": hashlib.sha256(path.read_bytes()).hexdigest()}


@pytest.mark.parametrize("at", [2, 3, 5])
def test_a_run_makes_the_shards_that_are_left(maker, tmp_path, at):
    maker.break_off(at)
    assert names(tmp_path) == [".out.work"]
    done = rows_done(tmp_path / "out", "test")
    assert done >= at - 1
    assert rows_left(tmp_path / "out", "test", 5).tolist() == list(range(done, 5))
    assert rows_left(tmp_path / "out", "other", 5).tolist() == [0, 1, 2, 3, 4]
    maker.made.clear()
    maker.run()
    assert maker.made == list(range(done, 5))
    assert names(tmp_path) == ["out"]


class Backwards:
    """A runner that begins with the last shard."""

    def run(self, work, shards):
        yield from work.make_here(reversed(list(shards)))


@pytest.mark.parametrize("first", [LocalRunner(), Backwards()])
@pytest.mark.parametrize("then", [LocalRunner(), Backwards()])
def test_any_order_of_shards_makes_the_same_bytes_and_the_hash_is_theirs(maker, tmp_path, first, then):
    maker.break_off(2, runner=first)
    maker.run(runner=then)
    assert set(maker.made) == {0, 1, 2, 3, 4}
    assert (tmp_path / "out" / "rows").read_bytes() == WHOLE
    assert maker.sha256 == hashlib.sha256(WHOLE).hexdigest()


def test_what_a_stream_has_after_a_gap_is_made_again(maker, tmp_path):
    maker.in_order = True
    maker.break_off(2, runner=Backwards())
    maker.made.clear()
    maker.run()
    assert maker.made == [0, 1, 2, 3, 4]
    assert (tmp_path / "out" / "rows").read_bytes() == WHOLE


def test_a_shard_that_costs_something_is_durable_before_the_next_is_begun(maker, tmp_path):
    maker.waits = True
    maker.break_off(3)
    assert rows_done(tmp_path / "out", "test") == 3


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
    maker.waits = True
    maker.break_off()
    with pytest.raises(StoreError, match=r"begun with another source, .* `restart=True`"):
        maker.run(source=2, options=2)
    with pytest.raises(UsageError, match=r"other values of speed; .* `restart=True`"):
        maker.run(options=2)
    maker.made_from = Configuration("other", {"source": 1})
    with pytest.raises(UsageError, match=r"unfinished work there is of test, not of other; .* `restart=True`"):
        write_store(tmp_path / "out", maker)
    assert names(tmp_path) == [".out.work"]
    maker.run()
    assert maker.made == [0, 1, 2, 3, 4]


def test_an_interruption_tells_how_to_go_on(maker):
    maker.waits = True
    with pytest.raises(KeyboardInterrupt) as caught:
        maker.run(fail_at=3, error=KeyboardInterrupt())
    assert caught.value.__notes__ == ["continue with the same command: 3 of 5 rows are done"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"\xff" + path.read_bytes()),
        lambda path: path.write_text("[]"),
        lambda path: path.write_text("{}"),
        lambda path: path.write_text('{"version": 99}'),
        os.unlink,
    ],
)
def test_a_state_that_says_nothing_begins_anew(maker, tmp_path, spoil):
    maker.break_off()
    spoil(tmp_path / ".out.work" / "work.json")
    maker.made.clear()
    maker.run()
    assert maker.made == [0, 1, 2, 3, 4]
    assert names(tmp_path) == ["out"]


def test_work_of_a_version_that_kept_a_journal_is_refused_until_it_is_discarded(maker, tmp_path):
    (tmp_path / ".out.work").mkdir()
    (tmp_path / ".out.work" / "journal.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=r"of an earlier version .*; finish it with that, or .* `restart=True`"):
        maker.run()
    assert names(tmp_path / ".out.work") == ["journal.jsonl"]
    steps = open_steps(tmp_path / "out", [], Configuration("run"), force=False, restart=False)
    with pytest.raises(UsageError, match="of an earlier version"), steps:
        pass
    maker.run(restart=True)
    assert names(tmp_path) == ["out"]


def damage(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_damaged_rows_are_made_again_and_told(maker, tmp_path, caplog):
    maker.waits = True
    maker.break_off(4)
    shards = sorted((tmp_path / ".out.work" / "shards").iterdir())
    damage(shards[2])
    (tmp_path / ".out.work" / "shards" / ".unfinished").write_bytes(b"half")
    maker.made.clear()
    maker.run()
    again = 2 if maker.kind is RowWriter else 1  # the hash of rows that came in order is of all up to them
    assert f"{again} rows are damaged and are made again" in caplog.text
    assert maker.made == [*[2, 3, 4][:again], 4]
    assert (tmp_path / "out" / "rows").read_bytes() == WHOLE


@pytest.mark.parametrize("spoil", [lambda path: path.write_bytes(WHOLE[:14]), damage, os.unlink])
def test_rows_that_are_not_what_was_put_are_made_again(tmp_path, spoil, caplog):
    maker = Maker(tmp_path / "out", RowWriter)
    maker.break_off(4, runner=Backwards())
    maker.waits = True
    maker.break_off(4)
    spoil(tmp_path / ".out.work" / "content" / "rows")
    maker.run()
    assert (tmp_path / "out" / "rows").read_bytes() == WHOLE
    assert maker.sha256 == hashlib.sha256(WHOLE).hexdigest()


def test_a_shard_that_was_made_twice_counts_once(maker, tmp_path):
    maker.waits = True
    maker.break_off(3)
    folder = tmp_path / ".out.work" / "shards"
    first = sorted(folder.iterdir())[0]
    (folder / f"{first.name[:-64]}{'0' * 64}").write_bytes(b"another content")
    maker.run()
    assert (tmp_path / "out" / "rows").read_bytes() == WHOLE


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
    assert names(tmp_path / "out") == ["rows", "sources.npy"]


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


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("older", ["folder", "file", "link"])
def test_what_is_replaced_may_be_anything_and_trades_places_where_the_system_can(
    maker, tmp_path, monkeypatch, can_exchange, older
):
    output = tmp_path / "out"
    if not can_exchange:
        monkeypatch.setattr("migrate.files.exchange_paths", lambda one, other: False)
    (tmp_path / "elsewhere").mkdir()
    {"folder": output.mkdir, "file": output.touch, "link": lambda: output.symlink_to(tmp_path / "elsewhere")}[older]()
    maker.run(force=True)
    assert not output.is_symlink() and names(output) == ["rows", "sources.npy"]
    assert names(tmp_path) == ["elsewhere", "out"]


def test_an_output_that_is_published_is_only_tidied_up_after(maker, tmp_path, monkeypatch):
    output = tmp_path / "out"
    output.mkdir()
    (output / "mine").touch()

    for wanted in ("aside", "published"):
        maker.made.clear()
        with monkeypatch.context() as patch:
            interrupt_at(wanted, patch)
            with pytest.raises(KeyboardInterrupt):
                maker.run(force=True)
        assert RunState.read(output).complete == {"rows": 5}
        maker.run(force=True)
        assert maker.made == [0, 1, 2, 3, 4], "nothing is made again"
        assert names(tmp_path) == ["out"] and names(output) == ["rows", "sources.npy"]
        shutil.rmtree(output)
        output.mkdir()


def test_several_outputs_of_a_command_are_noted_until_all_are_there(tmp_path):
    folder, configuration = tmp_path / "run", Configuration("run", {"store": 1})

    def steps(**options):
        return open_steps(folder, ["a", "b"], configuration, **{"force": False, "restart": False, **options})

    with pytest.raises(KeyboardInterrupt), steps() as (first, _):
        (folder / "a").mkdir(parents=True)
        first.note("a", {"n": 1})
        raise KeyboardInterrupt
    another = open_steps(folder, ["a"], Configuration("other"), force=False, restart=False)
    with pytest.raises(UsageError, match="not of other"), another:
        pass
    state = json.loads((tmp_path / ".run.work" / "work.json").read_text())
    assert state["steps"] == {"a": {"n": 1}}
    with steps() as (again, may_replace):
        assert again.known("a") == {"n": 1} and again.known("b") is None and may_replace
        again.note("b")
    assert names(tmp_path) == ["run"]
    with pytest.raises(UsageError, match="a exists"), steps():
        pass
