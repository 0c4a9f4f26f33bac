import os

import pytest

from migrate.checkpoint.folder import Configuration, make_folder
from migrate.errors import LockedError, OutputError, StoreError, UsageError, VectorError
from migrate.files import output_lock


class Rows:
    """A file of one byte a row, as the recorder sees it."""

    head_size = 0

    def __init__(self, path, rows):
        self.path, self.rows = path, rows

    @property
    def size(self):
        return self.rows

    def append(self, byte):
        with self.path.open("r+b" if self.rows else "wb") as file:
            file.truncate(self.rows)
            file.seek(self.rows)
            file.write(byte)
        self.rows += 1


class Maker:
    """Fills a folder with five rows in five parts, and fails where it is told to."""

    def __init__(self, output):
        self.output, self.made, self.fail_at, self.error = output, [], None, None

    def fill(self, work):
        work.total = 5
        rows = Rows(work.content / "rows", work.rows)
        with work.recorder() as recorder:
            for number in range(work.rows, 5):
                if number == self.fail_at:
                    raise self.error
                rows.append(b"%d" % number)
                self.made.append(number)
                recorder.record(rows, {})
        if self.fail_at == 5:
            raise self.error
        return {"rows": rows.rows}

    def run(self, *, fail_at=None, error=None, source=1, options=1, **flags):
        self.fail_at, self.error = fail_at, error
        configuration = Configuration("test", {"source": source}, {"speed": options})
        return make_folder(self.output, lambda: configuration, self.fill, **flags)

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
def test_a_run_goes_on_after_the_last_part(maker, tmp_path, at):
    maker.break_off(at)
    assert names(tmp_path) == [".out.work"]
    maker.run()
    assert maker.made == [0, 1, 2, 3, 4]
    assert names(tmp_path) == ["out"]


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
    with pytest.raises(StoreError, match=r"expected the source .* --restart"):
        maker.run(source=2, options=2)
    with pytest.raises(UsageError, match=r"other values of speed; .* --restart"):
        maker.run(options=2)
    with pytest.raises(UsageError, match=r"expected unfinished work of other, found some of test; .* --restart"):
        make_folder(tmp_path / "out", lambda: Configuration("other", {"source": 1}), maker.fill)
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
    assert maker.made == [0, 1, 2, 3, 2, 3, 4]
    assert "2 rows are damaged and are made again" in caplog.text
    assert (tmp_path / "out" / "rows").read_bytes() == b"01234"


def test_an_output_that_is_there_is_refused_or_replaced(maker, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("precious")
    with pytest.raises(UsageError, match="--force"):
        maker.run()
    maker.break_off(force=True)
    assert names(tmp_path / "out") == ["mine"]
    with pytest.raises(UsageError, match="--force"):
        maker.run()
    maker.run(force=True)
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["rows"]


def test_an_older_output_is_not_lost_by_a_restart_in_the_middle_of_its_replacement(maker, tmp_path):
    work = tmp_path / ".out.work"
    maker.break_off()
    (work / "old").mkdir()  # where it waits between two renames
    (work / "old" / "mine").write_text("precious")
    with pytest.raises(UsageError, match="--force"):
        maker.run(restart=True)
    assert names(tmp_path / "out") == ["mine"]


def test_the_folder_is_locked_while_it_is_made(maker, tmp_path):
    with output_lock(tmp_path / "out"), pytest.raises(LockedError):
        maker.run()
