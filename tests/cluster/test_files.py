"""Shards as files: what is read is what was written, and nothing else is taken for it."""

import numpy as np
import pytest
from migrate.cluster.files import ShardFiles
from migrate.runners import LocalRunner, Made, RemoteTask, Shard

from migrate.cluster import DaskRunner, runner_of
from migrate.errors import OutputError, UsageError

SHARD = RemoteTask.name_of(None, Shard(256, 512))
MADE = Made({"vectors": np.arange(12, dtype=np.float32).reshape(3, 4)}, {"true": 2})


@pytest.fixture(params=["folder", "memory"])
def files(request, tmp_path):
    location = str(tmp_path / "shards") if request.param == "folder" else f"memory://{tmp_path.name}/shards"
    return ShardFiles(location, "0123456789abcdef" * 4)


def test_what_is_read_is_what_was_written(files):
    name = files.write(SHARD, MADE)
    assert files.write(SHARD, MADE) == name
    assert files.find() == {SHARD: name}
    read = files.read(name)
    assert read.facts == MADE.facts
    assert np.array_equal(read.arrays["vectors"], MADE.arrays["vectors"])
    files.remove([name])
    files.remove([name])
    assert files.find() == {} and files.read(name) is None


def test_other_work_at_the_same_place_is_not_seen(files):
    files.write(SHARD, MADE)
    assert ShardFiles(files.location, "f" * 64).find() == {}


def test_a_file_that_is_not_what_its_name_says_does_not_count(tmp_path):
    files = ShardFiles(str(tmp_path), "a" * 64)
    name = files.write(SHARD, MADE)
    path = tmp_path / ("a" * 32) / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert files.read(name) is None
    path.write_bytes(content[: len(content) // 2])
    assert files.read(name) is None


def test_no_file_that_is_half_written_has_a_name_that_counts(tmp_path):
    files = ShardFiles(str(tmp_path), "a" * 64)
    files.write(SHARD, MADE)
    (tmp_path / ("a" * 32) / ".half").write_bytes(b"")
    assert list(files.find()) == [SHARD]


def test_places_that_cannot_be_used_are_one_line(tmp_path):
    with pytest.raises(UsageError, match="--shards nowhere://x"):
        ShardFiles("nowhere://x", "a" * 64).find()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="the same command continues"):
        ShardFiles(str(tmp_path / "file"), "a" * 64).write(SHARD, MADE)


def test_runners_by_name(tmp_path):
    assert runner_of(None) == LocalRunner() and runner_of("local", workers=3) == LocalRunner(3)
    assert runner_of("dask:local:2", shards="s3://b/f") == DaskRunner("local:2", "s3://b/f")
    assert runner_of("dask:tcp://host:8786") == DaskRunner("tcp://host:8786")
    file = tmp_path / "scheduler.json"
    file.touch()
    assert runner_of(f"dask:{file}") == DaskRunner(str(file))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ray", {}), ("dask", {}), ("dask:", {}), ("dask:local:", {}), ("dask:local:0", {}), ("dask:local:x", {}),
        ("dask:local:²", {}), ("dask:no-such-file", {}),
        ("dask:nonsense://x", {}), ("local:2", {}), ("local", {"shards": "x"}),
        ("dask:local:2", {"workers": 2}),
    ],
)  # fmt: skip
def test_other_names_are_refused(name, options):
    with pytest.raises(UsageError):
        runner_of(name, **options)
