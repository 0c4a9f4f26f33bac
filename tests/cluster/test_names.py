"""Runners by their names."""

import pytest

from migrate.cluster import DaskRunner
from migrate.errors import UsageError
from migrate.work.runner import LocalRunner, runner_of


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
