"""`migrate.compare`: stores by their paths, or opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import migrate.lab.compare.report  # noqa: F401 - how a comparison looks in a notebook
from migrate.lab.compare.comparison import StoresComparison, compare_stores
from migrate.lab.compare.matching import SAMPLE
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.vectors import Progress, no_progress


def compare(
    *stores: Store | str | Path,
    sample: int = SAMPLE,
    stitches: Sequence[str] = ("ridge",),
    labels: Mapping[str, str] | None = None,
    groups: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> StoresComparison:
    """Compare the spaces of two or more stores over the documents that all of them have, matched by id.

    Parameters
    ----------
    stores
        Stores, or their paths.
    sample
        Documents to compare at most.
    stitches
        Stitches of vectors alone to fit between every two stores, such as ridge, ols, procrustes, lowrank or mlp:2.
    labels
        Of documents, by id: classifiers trained on the first store's vectors are tried on those of the others.
    groups
        Stores that belong together, by their places in `stores`, from 0.
    seed
        Of the sample, and of what is random in the measures.
    progress
        Called with a step, how much of it is done, and how much there is.

    Raises
    ------
    UsageError
        There are fewer than two stores, a stitch is none of vectors alone, or a group has no stores or another's.
    StoreError, VectorError
        The stores share fewer than 10 ids, or cannot be read; a vector is zero or not finite.
    DatasetError
        The labels name too few of the documents.

    Examples
    --------
    >>> import migrate
    >>> migrate.compare("my-store", "my-store")
    <StoresComparison of my-store, my-store (2): 150 documents, CKA 1.000>
    """
    opened = [store if isinstance(store, Store) else open_store(store, verify=True) for store in stores]
    return compare_stores(
        opened, sample=sample, stitches=stitches, labels=labels, groups=groups, seed=seed, progress=progress
    )
