"""A short run of the fuzzer; `python benchmarks/fuzz_faiss.py` is the long one."""

import os
import struct
from unittest.mock import patch

import fuzz_faiss
import numpy as np
import pytest
from faiss_judge import Judge
from faiss_plain import Content
from fuzz_faiss import AS_SPOILED, AS_WRITTEN, FACTORIES, GOOD, REFUSED, Tally, fuzz, outcome, sound

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def judge():
    # the process that judges reads how many threads it may use from the environment
    with patch.dict(os.environ):
        judge = Judge()
        yield judge
        judge.close()


@pytest.fixture
def written(judge, tmp_path):
    return sound(judge.build("IVF8,Flat"), "IVF8,Flat", tmp_path / "index.faiss", judge)


def test_spoiled_indexes_are_read_to_the_bit_or_refused_and_nothing_else(judge, tmp_path):
    tallies = dict(fuzz(80, 5, tmp_path, judge))
    total = sum(tallies.values(), Tally())
    assert list(tallies) == list(FACTORIES)
    assert not total.defects
    assert set(total.outcomes) == set(GOOD)
    assert total.longest_s < fuzz_faiss.LONGEST_S


def test_a_flipped_vector_is_read_as_flipped_and_a_flipped_setting_changes_nothing(judge, written, tmp_path):
    path = tmp_path / "index.faiss"
    content = path.read_bytes()
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    assert outcome(path, written, judge) == AS_SPOILED
    probes = content.index(struct.pack("<QQ", 8, 1)) + 8
    path.write_bytes(content[:probes] + b"\2" + content[probes + 1 :])
    assert outcome(path, written, judge) == AS_WRITTEN
    path.write_bytes(content[:-1])
    assert outcome(path, written, judge) == REFUSED


def harmed(content, harm):
    vectors, ids = content.vectors.copy(), content.ids.copy()
    harm(vectors, ids)
    return Content(content.metric, ids, vectors)


def one_bit(vectors, ids):
    vectors.view(np.uint32)[-1, -1] ^= 1


def two_ids(vectors, ids):
    ids[:2] = ids[1::-1]


@pytest.mark.parametrize("harm", [one_bit, two_ids])
def test_a_reader_that_is_wrong_in_one_bit_or_id_is_caught(harm, judge, written, tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz_faiss, "read", lambda _: harmed(written, harm))
    assert outcome(tmp_path / "index.faiss", written, judge).startswith("wrong")


def test_a_crash_and_an_unclear_message_are_defects_with_their_case(judge, written, tmp_path, monkeypatch):
    tally = Tally()
    for error in (ZeroDivisionError("x"), fuzz_faiss.StoreError("no"), fuzz_faiss.HangError()):
        monkeypatch.setattr(fuzz_faiss, "read", lambda _, error=error: (_ for _ in ()).throw(error))
        tally.add(outcome(tmp_path / "index.faiss", written, judge), "Flat 3 of seed 1", 0.1)
    assert dict(tally.outcomes) == {"crash": 1, "bad message": 1, "hang": 1}
    assert tally.defects[0] == "Flat 3 of seed 1: crash: ZeroDivisionError('x')"
    assert "1 crashes, 1 hangs, 0 wrong, 1 unclear" in fuzz_faiss.totals(tally)
