"""What `benchmarks/live.py` prints of a short log."""

import live
import numpy as np
import pytest

from migrate.search.runs import Rankings
from migrate.vectors import Document

RIGHT, WRONG = "a", "b"


def answer(*ids, bare_s=np.nan):
    return live.Answer(
        ids, np.zeros(len(ids)), untrue=1, seconds=0.002, bare_s=bare_s, answered_by=("new",), embedded=1
    )


@pytest.fixture
def world():
    nothing = np.empty((0, 2), np.float32)
    documents = [Document(RIGHT, "the one"), Document(WRONG, "the other")]
    log = np.zeros(3, np.int64)
    return live.World(documents, nothing, nothing, ["q"], ["one?"], nothing, nothing, {"q": {RIGHT: 1}}, log)


def rows_of(printed):
    return [line.split()[:3] for line in printed.splitlines() if line[:1].isdigit()]


def test_a_log_of_fewer_queries_than_parts_has_a_row_for_each_query(world, capsys):
    answers = [answer(RIGHT), answer(WRONG), answer(RIGHT)]
    live.print_parts("live", world, answers, Rankings({"q": (RIGHT,)}))
    rows = rows_of(capsys.readouterr().out)
    assert rows == [
        ["0-1", "1.000", "0.100"],  # the first hour
        ["0-1", "1.000", "0.100"],
        ["1-2", "0.000", "0.000"],
        ["2-3", "1.000", "0.100"],
        ["0-3", "0.667", "0.067"],
    ]


def test_a_part_of_which_every_query_failed_has_no_row_and_counts_in_the_whole(world, capsys):
    live.print_parts("live", world, [answer(RIGHT), None, answer(RIGHT)], Rankings({"q": (RIGHT,)}))
    rows = rows_of(capsys.readouterr().out)
    assert [row[0] for row in rows] == ["0-1", "0-1", "2-3", "0-3"]
    assert rows[-1][1] == "0.667"


@pytest.mark.filterwarnings("error")
def test_there_is_no_share_of_a_full_reembed_that_finds_nothing(world, capsys):
    live.print_parts("live", world, [answer(RIGHT)], Rankings({"q": (WRONG,)}))
    assert {row[1] for row in rows_of(capsys.readouterr().out)} == {"-"}


@pytest.mark.parametrize(
    ("answers", "printed"),
    [
        ([answer(RIGHT)], ""),
        ([answer(RIGHT), answer(RIGHT, bare_s=0.004)], "bare search meanwhile: median 4.0 ms, p99 4 ms"),
    ],
)
def test_the_bare_search_is_told_where_a_server_has_timed_it(answers, printed, capsys):
    live.print_bare_search(answers)
    assert capsys.readouterr().out.strip() == printed
