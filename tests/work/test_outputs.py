import json
import os
import shutil

import numpy as np
import pytest
from blake3 import blake3
from dying import interrupt_at

from migrate.errors import OutputError, StoreError, UsageError, VectorError
from migrate.work.jobs import Configuration, StoreJob
from migrate.work.outputs import RunState, open_steps, rows_done, rows_left, write_store
from migrate.work.shards import Block, shards_of
from migrate.work.writer import FlatFileWriter, StoreWriter, Written, all_put

ROWS = np.arange(10, dtype="<f4").reshape(5, 2)
WHOLE = b"head" + ROWS.tobytes() + b"tail"


def row_writer(folder):
    return FlatFileWriter(folder / "rows", b"head", 2, 5, all_put, tail=b"tail")


def waiting_writer(folder):
    """The same file, written at the end."""

    def complete(rows, shards):
        (folder / "rows").write_bytes(b"head" + b"".join(part.tobytes() for _, part in rows.batches(2)) + b"tail")
        return Written()

    return StoreWriter(2, complete)


class Maker(StoreJob):
    """Five rows in five shards, one of which fails where it is told to."""

    stage = "make"
    total = 5
    dim = 2
    backwards = False

    def __init__(self, output, kind):
        self.output, self.kind, self.made, self.fail_at, self.error = output, kind, [], None, None

    def configuration(self):
        return self.made_from

    def writer(self, work, dim):
        return self.kind(work.content)

    def shards(self, work):
        shards = list(shards_of(5, 1))
        return shards[::-1] if self.backwards else shards

    def blocks(self, shard):
        number = shard.start
        if number == self.fail_at:
            raise self.error
        self.made.append(number)
        yield Block({"vectors": ROWS[number : number + 1], "sources": np.array([number], "<u8")})

    def finish(self, work, writer):
        if self.fail_at == 5:
            raise self.error
        writer.finish(work.all_rows(2), work.shards)
        self.hash = writer.hash_of(work.content / "rows")
        self.hashes = work.write_values(np.array([4, 3, 2, 1, 0]))
        return {"rows": work.rows}

    def run(self, *, fail_at=None, error=None, source=1, options=1, **flags):
        self.fail_at, self.error = fail_at, error
        self.made_from = Configuration("test", {"source": source}, {"speed": options})
        return write_store(self.output, self, **flags)

    def break_off(self, at=3, **flags):
        with pytest.raises(OutputError):
            self.run(fail_at=at, error=OSError("broken"), **flags)

    def complete(self, **flags):
        """The shards that a run makes which gets through, and ends with the bytes of an undisturbed one."""
        self.made.clear()
        assert self.run(**flags) == {"rows": 5}
        assert names(self.output.parent) == ["out"] and names(self.output) == ["rows", "sources.npy"]
        assert (self.output / "rows").read_bytes() == WHOLE
        assert self.hash == f"blake3:{blake3(WHOLE).hexdigest()}"
        return self.made


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def work(tmp_path):
    return tmp_path / ".out.work"


@pytest.fixture(params=[row_writer, waiting_writer])
def maker(request, out):
    return Maker(out, request.param)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_kept_of_each_row_lies_beside_in_the_order_of_the_new_store(maker, out):
    assert maker.complete() == [0, 1, 2, 3, 4]
    sources = np.load(out / "sources.npy")
    assert sources.tolist() == [4, 3, 2, 1, 0] and sources.dtype == np.uint64
    assert maker.hashes == {"sources.npy": f"blake3:{blake3((out / 'sources.npy').read_bytes()).hexdigest()}"}


@pytest.mark.parametrize("at", [2, 3, 5])
def test_a_run_makes_the_shards_that_are_left(maker, out, tmp_path, at):
    maker.break_off(at)
    assert names(tmp_path) == [".out.work"]
    done = rows_done(out, "test")
    assert done >= at - 1
    assert rows_left(out, "test", 5).tolist() == list(range(done, 5))
    assert rows_left(out, "other", 5).tolist() == [0, 1, 2, 3, 4] and rows_done(out, "other") == 0
    assert maker.complete() == list(range(done, 5))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("then", [False, True])
def test_any_order_of_shards_makes_the_same_bytes(maker, first, then):
    maker.backwards = first
    maker.break_off(2)
    begun = set(maker.made)
    maker.backwards = then
    assert begun | set(maker.complete()) == {0, 1, 2, 3, 4}


def test_what_a_stream_has_after_a_gap_is_made_again(maker):
    maker.in_order = True
    maker.backwards = True
    maker.break_off(2)
    maker.backwards = False
    assert maker.complete() == [0, 1, 2, 3, 4]


def test_a_shard_that_costs_something_is_durable_before_the_next_and_an_interruption_tells_how_to_go_on(maker, out):
    maker.waits = True
    with pytest.raises(KeyboardInterrupt) as caught:
        maker.run(fail_at=3, error=KeyboardInterrupt())
    (note,) = caught.value.__notes__
    assert note.endswith(": 3 of 5 rows are done")
    assert rows_done(out, "test") == 3


@pytest.mark.parametrize(
    ("at", "error", "raised"),
    [
        (0, OSError("there is no shard yet"), OutputError),
        (3, VectorError("zero"), VectorError),
        (3, StoreError("changed"), StoreError),
    ],
)
def test_no_rows_and_rows_of_wrong_data_are_not_kept(maker, tmp_path, at, error, raised):
    with pytest.raises(raised):
        maker.run(fail_at=at, error=error)
    assert names(tmp_path) == []


def test_another_source_or_other_options_are_refused_and_the_work_stays_until_a_restart(maker, out, tmp_path):
    maker.waits = True
    maker.break_off()
    with pytest.raises(StoreError, match=r"begun with another source, .* `restart=True`"):
        maker.run(source=2, options=2)
    with pytest.raises(UsageError, match=r"other values of speed; .* `restart=True`"):
        maker.run(options=2)
    maker.made_from = Configuration("other", {"source": 1})
    with pytest.raises(UsageError, match=r"of test, not of other; .* `restart=True`"):
        write_store(out, maker)
    assert names(tmp_path) == [".out.work"]
    assert maker.complete() == [3, 4]
    shutil.rmtree(out)
    maker.break_off()
    assert maker.complete(restart=True, options=2) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("content", [b'\xff{"version": 3}', b"[]", b"{}", b'{"version": 99}', None])
def test_a_state_that_says_nothing_begins_anew(maker, work, content):
    maker.break_off()
    (work / "work.json").unlink()
    if content is not None:
        (work / "work.json").write_bytes(content)
    assert maker.complete() == [0, 1, 2, 3, 4]


def test_work_of_a_version_that_kept_a_journal_is_refused_until_it_is_discarded(maker, out, work):
    work.mkdir()
    (work / "journal.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=r"of an earlier version .* `restart=True`"):
        maker.run()
    steps = open_steps(out, [], Configuration("run"), force=False, restart=False)
    with pytest.raises(UsageError, match="of an earlier version"), steps:
        pass
    assert names(work) == ["journal.jsonl"]
    assert maker.complete(restart=True) == [0, 1, 2, 3, 4]


def damage(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(WHOLE[:14])


def test_damaged_shards_are_made_again_and_told_and_one_that_was_made_twice_counts_once(maker, work, caplog):
    maker.waits = True
    maker.break_off(4)
    first, _, third, _ = sorted((work / "shards").iterdir())
    damage(third)
    third.with_name(".unfinished").write_bytes(b"half")
    first.with_name(f"{first.name[:-64]}{'0' * 64}").write_bytes(b"another content")
    again = 2 if maker.kind is row_writer else 1  # the hash of rows that came in order is of all up to them
    assert maker.complete() == [*[2, 3][:again], 4]
    assert f"{again} rows are damaged and are made again" in caplog.text


@pytest.mark.parametrize("spoil", [cut, damage, os.unlink])
def test_rows_that_are_not_what_was_put_are_made_again(out, work, spoil):
    maker = Maker(out, row_writer)
    maker.backwards = True
    maker.break_off(4)
    maker.backwards = False
    maker.waits = True
    maker.break_off(4)
    spoil(work / "content" / "rows")
    maker.complete()


def test_an_output_that_is_there_is_refused_or_replaced(maker, out):
    out.mkdir()
    (out / "mine").write_text("precious")
    with pytest.raises(UsageError, match="`force=True`"):
        maker.run()
    maker.break_off(force=True)
    with pytest.raises(UsageError, match="`force=True`"):
        maker.run()
    assert names(out) == ["mine"]
    maker.complete(force=True)


def test_an_older_output_is_not_lost_by_a_restart_in_the_middle_of_its_replacement(maker, out, work):
    maker.break_off()
    (work / "old").mkdir()  # where it waits between two renames
    (work / "old" / "mine").write_text("precious")
    with pytest.raises(UsageError, match="`force=True`"):
        maker.run(restart=True)
    assert names(out) == ["mine"]


def test_room_is_asked_for_what_is_left(out, monkeypatch):
    asked = []
    monkeypatch.setattr("migrate.work.jobs.require_room", lambda path, size: asked.append((path, size)))
    maker = Maker(out, waiting_writer)
    maker.break_off(3)
    left = 5 - rows_done(out, "test")
    maker.complete()
    assert asked == [(out, 5 * 2 * 4), (out, left * 2 * 4)] and 0 < left < 5


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("older", ["folder", "file", "link"])
def test_what_is_replaced_may_be_anything_and_trades_places_where_the_system_can(
    maker, out, tmp_path_factory, monkeypatch, can_exchange, older
):
    if not can_exchange:
        monkeypatch.setattr("migrate.files.exchange_paths", lambda one, other: False)
    if older == "folder":
        out.mkdir()
    elif older == "file":
        out.touch()
    else:
        out.symlink_to(tmp_path_factory.mktemp("elsewhere"))
    maker.complete(force=True)
    assert not out.is_symlink()


@pytest.mark.parametrize("moment", ["aside", "published"])
def test_an_output_that_is_published_is_only_tidied_up_after(maker, out, tmp_path, monkeypatch, moment):
    out.mkdir()
    (out / "mine").touch()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_at(moment, patch)
        maker.run(force=True)
    assert RunState.read(out).complete == {"rows": 5}
    maker.made.clear()
    maker.run(force=True)
    assert maker.made == [] and names(tmp_path) == ["out"] and names(out) == ["rows", "sources.npy"]


def test_several_outputs_of_a_command_are_noted_until_all_are_there(tmp_path):
    folder = tmp_path / "run"

    def steps(command="run"):
        return open_steps(folder, ["a", "b"], Configuration(command, {"store": 1}), force=False, restart=False)

    with pytest.raises(KeyboardInterrupt), steps() as (state, _):
        (folder / "a").mkdir(parents=True)
        state.note("a", {"n": 1})
        raise KeyboardInterrupt
    with pytest.raises(UsageError, match="not of other"), steps("other"):
        pass
    assert json.loads((tmp_path / ".run.work" / "work.json").read_text())["steps"] == {"a": {"n": 1}}
    with steps() as (state, may_replace):
        assert state.finished("a") == {"n": 1} and state.finished("b") is None and may_replace
        state.note("b")
    assert names(tmp_path) == ["run"]
    with pytest.raises(UsageError, match="a exists"), steps():
        pass
