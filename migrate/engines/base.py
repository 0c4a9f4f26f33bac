"""Parts that are still to be made, and the store that comes of them, for all engines.

The parts lie in `.NEW.made/DIGEST` beside an output `NEW`, of this machine or on object storage. DIGEST is of the store
and the stitch, and the name of a file of its part and content: whatever has such a name is finished, so that the same
command goes on where another broke off. What an engine tries again is its own affair. `BatchFunction.finish` compares
all with the store and the stitch, and publishes the new store.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import ClassVar

from migrate import __version__
from migrate.batch import batch
from migrate.digests import digits_of, hash_open_file
from migrate.engines.row_ranges import (
    ID,
    TEXT,
    VECTOR,
    RangeFunction,
    RowRange,
    file_of,
    files_by_number,
    row_ranges_of,
)
from migrate.errors import LeadMigrateError, RemoteError, StitchError, StoreError, UsageError, VectorError
from migrate.files import hidden_sibling, output_errors, output_lock, sha256_json
from migrate.steps.translate.job import TranslateJob, Translation
from migrate.stores.base import Store
from migrate.stores.file_store import check_files
from migrate.stores.outputs import Output
from migrate.stores.parquet.files import RemoteFiles
from migrate.stores.parquet.output import PARQUET, ObjectOutput
from migrate.stores.parquet.store import ParquetStore
from migrate.vectors import Progress


class Engine(ABC):
    """A program that runs functions in processes of its own, on one machine or many.

    `address` is what stands behind the colon of `--engine NAME:ADDRESS`. `library` is what has to be importable,
    `package` what installs it.
    """

    name: ClassVar[str]
    library: ClassVar[str]
    package: ClassVar[str]

    def __init__(self, address: str = "") -> None:
        self.address = address
        if importlib.util.find_spec(self.library) is None:
            raise UsageError(f"--engine {self.name}: {self.package} is not installed; pip install {self.package}")

    @abstractmethod
    def map(self, function: Callable[[RowRange], str], row_ranges: Sequence[RowRange]) -> Generator[str, None, None]:
        """Yield what a function, which can be pickled, returns for each part, in any order."""

    def check(self, job: TranslateJob) -> None:
        """Make sure that store and output are Parquet, and that the stitch needs no further model.

        Raises UsageError, StitchError: they are not, or it does.
        """
        store = _require_parquet(job.source)
        output = job.output
        # a path without a kind is a store like the source
        if output.form.name not in (None, PARQUET.name):
            raise UsageError(f"{output}: engines translate Parquet to Parquet; name an output parquet:LOCATION")
        batch(job.fitted, texts=TEXT if store.info.has_texts else None)

    def translate(self, job: TranslateJob) -> Translation:
        """Have all parts made, and the new store of them."""
        begun = time.perf_counter()
        options = job.options
        self.check(job)
        has_true_vectors = job.check_source()
        store = _require_parquet(job.source)
        output = job.output
        function = batch(job.fitted, texts=TEXT if store.info.has_texts else None, any_store=not has_true_vectors)
        row_ranges = row_ranges_of(store, function.rows, 4 * max(store.info.dim, function.fitted.dim))
        if not row_ranges:
            return job.translate()
        output.require_free(force=options.force)
        check_files(store)
        root = _made_beside(output)
        # Of all that decides a vector, the version too: parts of another run must not pass for those of this one.
        digest = sha256_json([store.snapshot().as_json(), function.fitted.digest(), has_true_vectors, __version__])[:32]
        folder = RemoteFiles(f"{root.location}/{digest}", f"{root.named}/{digest}")
        with output_lock(output.path.with_name(f"{output.path.name}.made")):
            if options.restart:
                _remove(root)
            if folder.path is not None:
                with output_errors(folder.path):
                    folder.path.mkdir(parents=True, exist_ok=True)
            names = {TEXT: store.columns.text} if function.fitted.reads_texts else {}
            columns = {ID: store.columns.id, VECTOR: store.columns.vector, **names}
            read = {name: column for name, column in columns.items() if column is not None}
            self._make_ranges(RangeFunction(function, store.files, read, folder), row_ranges, job.context.progress)
            try:
                _check_files(folder, row_ranges)
                done = function.finish(
                    store,
                    folder.location,
                    str(options.output),
                    force=options.force,
                    restart=options.restart,
                    progress=job.context.progress,
                )
            except (StitchError, StoreError, VectorError):  # what was made is not to be used again
                _remove(root)
                raise
            _remove(root)
        return replace(done, wall_s=time.perf_counter() - begun)

    def _make_ranges(self, function: RangeFunction, row_ranges: Sequence[RowRange], progress: Progress) -> None:
        """Have the engine make the parts that no earlier run has made."""
        finished = files_by_number(function.folder.names(), row_ranges)
        unfinished = [row_range for row_range in row_ranges if row_range.number not in finished]
        rows = sum(len(row_range) for row_range in row_ranges if row_range.number in finished)
        total = sum(map(len, row_ranges))
        stage = f"translate by {self.name}"
        progress(stage, rows, total)
        if not unfinished:
            return
        try:
            # engines warn of their own affairs
            with warnings.catch_warnings(action="ignore"), closing(self.map(function, unfinished)) as results:
                for result in results:
                    (number,) = files_by_number([file_of(result)], row_ranges)
                    rows += len(row_ranges[number])
                    progress(stage, rows, total)
        except LeadMigrateError:
            raise
        except Exception as error:  # engines raise anything
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise RemoteError(
                f"--engine {self.name}: {reason[:300]}; see to that, and run the same command again, it continues"
            ) from error


def _require_parquet(store: Store) -> ParquetStore:
    if not isinstance(store, ParquetStore):
        raise UsageError(
            f"{store.info.location}: engines translate Parquet to Parquet, and this is {store.info.kind}; leave "
            "out the engine"
        )
    return store


def _made_beside(output: Output) -> RemoteFiles:
    """Return the place for parts of an output, hidden beside it."""
    if isinstance(output, ObjectOutput):
        parent, _, name = output.url.rpartition("/")
        url = f"{parent}/.{name}.made"
        return RemoteFiles(url, url)
    path = str(hidden_sibling(output.path, "made").absolute())  # workers are in folders of their own
    return RemoteFiles(path, path)


def _remove(root_folder: RemoteFiles) -> None:
    """Remove all parts."""
    if root_folder.path is not None:
        shutil.rmtree(root_folder.path, ignore_errors=True)
        return
    with root_folder.open() as (system, root), suppress(FileNotFoundError):
        system.rm(root, recursive=True)


def _check_files(folder: RemoteFiles, row_ranges: Sequence[RowRange]) -> None:
    """Make sure that each part is there once, and is what was written.

    Raises StoreError: it is not.
    """
    names = files_by_number(folder.names(), row_ranges)
    for row_range in row_ranges:
        present = names.get(row_range.number)
        if present is None:
            raise StoreError(
                f"{folder.named}: the engine has made {row_range.name}, and it is not there; have all machines see "
                "one place"
            )
        name, *duplicates = present
        for duplicate in duplicates:  # a part that was tried twice, on processors of two kinds
            folder.remove(duplicate)
        with folder.open() as (system, root), system.open(f"{root}/{name}", "rb") as file:
            digits = digits_of(hash_open_file(file))
        if digits not in name:
            raise StoreError(f"{folder.named}/{name}: the file changed since it was made; run the same command again")
