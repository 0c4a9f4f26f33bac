"""Shard files: what is read is what was written, by safetensors as well; and rows that are read wherever they lie."""

import numpy as np
import pytest
from blake3 import blake3
from safetensors.numpy import load

from migrate.errors import OutputError, StoreError
from migrate.work.shards import Shard, ShardFolder, pack, shards_of, write_values

ROWS = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
FACTS = {"ids": ["\ud800"], "n": 3}


@pytest.fixture
def shards(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    shards = ShardFolder(folder)
    for shard in (Shard(20, 50), Shard(0, 13), Shard(13, 20)):
        rows = ROWS[shard.start : shard.stop]
        arrays = {"vectors": [rows[:5], rows[5:]], "sources": [np.arange(shard.start, shard.stop, dtype=np.uint64)]}
        shards.write(shard, arrays, FACTS)
    return shards


def file_of(shards, shard):
    return next(shards.path.glob(f"{shard.name}-*"))


def test_shards_cover_every_row_once():
    assert list(shards_of(10, 4)) == [Shard(0, 4), Shard(4, 8), Shard(8, 10)]
    assert list(shards_of(8, 4)) == [Shard(0, 4), Shard(4, 8)]
    assert list(shards_of(0, 4)) == []
    assert list(shards_of(6, 4, 8)) == [Shard(8, 12), Shard(12, 14)]


@pytest.mark.parametrize(("start", "stop"), [(0, 50), (0, 13), (5, 9), (12, 21), (13, 50), (49, 50), (7, 7)])
def test_a_part_of_the_rows_is_read_where_they_lie(shards, start, stop):
    part, own = shards.all_rows(3, 50).part(start, stop), ROWS[start:stop]
    assert part.shape == own.shape and np.array_equal(part.read(0, len(part)), own)
    chosen = np.arange(len(own))[::-2]
    assert np.array_equal(part.take(chosen), own[chosen])
    batches = [(first, vectors.copy()) for first, vectors in part.batches(4)]
    assert [first for first, _ in batches] == list(range(0, len(own), 4))
    assert np.array_equal(np.concatenate([own[:0], *(vectors for _, vectors in batches)]), own)


@pytest.mark.parametrize("rows", [0, 1, 50])
def test_a_file_is_read_as_it_was_written_and_by_safetensors(rows, tmp_path):
    arrays = {"vectors": [ROWS[:rows]], "confidence": [ROWS[:rows, 0]]}
    content = b"".join(pack(arrays, FACTS))
    folder = ShardFolder(tmp_path)
    shard = Shard(0, rows)
    folder.write(shard, arrays, FACTS)
    assert folder.details(shard) == FACTS
    judge = load(content)
    for name, (values,) in arrays.items():
        assert np.array_equal(folder.array(shard, name), values) and np.array_equal(judge[name], values)
    assert b"".join(pack(arrays, FACTS)) == content
    assert int.from_bytes(content[:8], "little") % 8 == 0, "arrays begin where numbers of eight bytes may"


def test_the_name_is_of_the_rows_and_the_content_and_another_is_not_sound(shards):
    for shard in shards:
        path = file_of(shards, shard)
        content = path.read_bytes()
        assert path.name == f"{shard.start:012d}-{shard.stop:012d}-{blake3(content).hexdigest()}"
        assert shards.is_sound(shard)
        path.write_bytes(content[:-1])
        assert not shards.is_sound(shard)
        path.unlink()
        assert not shards.is_sound(shard)


def test_another_process_sees_what_is_finished_and_nothing_else(shards):
    for name in (".half", "strange", f"{'a' * 40}-{'0' * 64}"):
        (shards.path / name).write_bytes(b"")
    again = ShardFolder(shards.path)
    assert list(again) == [Shard(0, 13), Shard(13, 20), Shard(20, 50)]
    assert again.rows == again.rows_before_gap == 50
    assert again.details(Shard(0, 13)) == FACTS and again.names(Shard(0, 13)) == ["sources", "vectors"]
    assert again.all_values("sources").tolist() == list(range(50))
    again.remove(Shard(13, 20))
    assert Shard(13, 20) not in ShardFolder(shards.path)
    assert (again.rows, again.rows_before_gap, again.ranges()) == (43, 13, [(0, 13), (20, 50)])
    with pytest.raises(StoreError, match="50 vectors were announced, and 43 written"):
        again.all_rows(3, 50)
    again.remove(Shard(0, 13))
    assert (again.rows, again.rows_before_gap, again.ranges()) == (30, 0, [(20, 50)])


def test_rows_are_read_across_files(shards):
    rows = shards.all_rows(3, 50)
    assert (rows.count, rows.dim, rows.shape, len(rows)) == (50, 3, (50, 3), 50)
    assert np.array_equal(np.asarray(rows), ROWS)
    for start, stop in ((0, 50), (5, 5), (12, 14), (13, 20), (49, 50)):
        assert np.array_equal(rows.read(start, stop), ROWS[start:stop])
    for at_once in (1, 7, 50, 99):
        assert np.array_equal(np.concatenate([part.copy() for _, part in rows.batches(at_once)]), ROWS)
    order = np.random.default_rng(1).permutation(50)
    assert np.array_equal(rows.take(order), ROWS[order])
    assert np.array_equal(rows[order.reshape(5, 10)], ROWS[order.reshape(5, 10)])
    assert np.array_equal(rows[3:17], ROWS[3:17])
    assert rows.take(np.array([4, 4, 0])).tolist() == ROWS[[4, 4, 0]].tolist()


def test_a_file_that_ends_before_its_rows_is_told(shards):
    rows = shards.all_rows(3, 50)
    path = file_of(shards, Shard(20, 50))
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(StoreError, match="ends before its last row"):
        rows.read(0, 50)
    path.unlink()
    with pytest.raises(OutputError):
        rows.read(0, 50)


def test_numbers_are_written_as_numpy_writes_them(tmp_path):
    for values in (ROWS[:, 0], np.arange(5, dtype=np.uint64), np.empty(0, np.float32)):
        digest = write_values(tmp_path / "ours.npy", [values[:2], values[2:]], len(values))
        np.save(tmp_path / "judge.npy", values)
        assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "judge.npy").read_bytes()
        digest_of_file = blake3((tmp_path / "ours.npy").read_bytes()).hexdigest()
        assert digest == f"blake3:{digest_of_file}"
