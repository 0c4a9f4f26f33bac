"""Shards on a Dask cluster: the runner, what its workers do, and files of shards where all machines see them."""

from migrate.cluster.runner import DaskRunner

__all__ = ["DaskRunner"]
