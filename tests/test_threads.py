"""How many threads the numerical libraries start, and what of it is the user's to say."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from migrate.threads import COUNTS, SMALL_PAIRS, available_cores, limit_threads, one_thread, thread_count, threads_for


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    for name in COUNTS:
        monkeypatch.delenv(name, raising=False)


def blas_threads(*, of_process=False):
    """The number of every BLAS; `of_process` leaves out those of OpenMP, which have one in each thread."""
    assert np.eye(2) @ np.eye(2) is not None
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {pool["num_threads"] for pool in pools if not of_process or pool["threading_layer"] != "openmp"}


@pytest.mark.parametrize(
    ("quota", "most"), [("100000 100000", 1), ("50000 100000", 1), ("max 100000", None), ("900000 1000", None)]
)
def test_cores_are_those_of_the_container(quota, most, tmp_path):
    (tmp_path / "cpu.max").write_text(quota + "\n")
    assert available_cores(tmp_path / "cpu.max") == (most or len(os.sched_getaffinity(0)))
    assert available_cores(tmp_path / "none") == len(os.sched_getaffinity(0))


def test_what_the_user_says_stays():
    said = {"OPENBLAS_NUM_THREADS": "7"}
    limit_threads(said)
    assert said == {"OPENBLAS_NUM_THREADS": "7"}
    limit_threads(unsaid := {})
    assert {unsaid[name] for name in COUNTS} == {str(available_cores())}


def test_a_small_fit_takes_one_thread_and_gives_the_others_back(monkeypatch):
    with threadpool_limits(limits=2, user_api="blas"):
        with threads_for(SMALL_PAIRS):
            assert blas_threads() == {1}
        with threads_for(SMALL_PAIRS + 1):
            assert blas_threads() == {2}
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        with threads_for(10):
            assert blas_threads() == {1}, "what the user says is the most"


def test_the_last_to_leave_gives_the_other_threads_back():
    with threadpool_limits(limits=2, user_api="blas"):
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas_threads() == {1}, "the second is still within"
        second.__exit__(None, None, None)
        assert blas_threads() == {2}
        with pytest.raises(ZeroDivisionError), one_thread():
            1 / 0  # noqa: B018
        assert blas_threads() == {2}


def test_any_thread_may_be_the_first_to_enter_and_the_last_to_leave():
    """The main thread has set a number before, so that threadpoolctl would obey it alone."""
    entered, seen, leave = threading.Event(), [], threading.Event()

    def compute():
        with one_thread():
            seen.append(blas_threads(of_process=True))
            entered.set()
            assert leave.wait(60)
        seen.append(blas_threads(of_process=True))

    with threadpool_limits(limits=2, user_api="blas"):
        other = threading.Thread(target=compute)
        other.start()
        assert entered.wait(60)
        with one_thread():
            pass
        leave.set()
        other.join()
        assert seen == [{1}, {2}]
        assert blas_threads(of_process=True) == {2}


def test_as_many_threads_compute_as_a_user_says_and_no_more_than_there_are_cores():
    cores = available_cores()
    assert (
        thread_count({}) == thread_count({"OMP_NUM_THREADS": ""}) == thread_count({"OMP_NUM_THREADS": "999"}) == cores
    )
    assert (
        thread_count({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "8"}) == thread_count({"OMP_NUM_THREADS": "1,2"}) == 1
    )


def test_the_command_line_says_it_before_numpy_is_there():
    script = (
        "import os, sys\nfrom migrate.cli import main\nassert 'numpy' not in sys.modules\n"
        "assert 'OMP_NUM_THREADS' not in os.environ, 'importing changes nothing'\n"
        "try:\n    main.main(['--version'])\nexcept SystemExit:\n    print(os.environ['OMP_NUM_THREADS'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == str(available_cores())
