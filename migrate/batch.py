"""A stitch as a function of batches, for engines that run functions."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np

from migrate.digests import hash_bytes
from migrate.errors import InputError, StitchError, UsageError, VectorError
from migrate.files import read_file, sha256_json
from migrate.stitch.fitted import DOCUMENT, FittedStitch, TranslatedBatch, input_dim, require_direction
from migrate.stitch.persistence import load_stitch
from migrate.stores.documents.arrow import lists_in, replace_vectors, row_without_vector, vectors_of_lists
from migrate.translate import batch_rows, by_threads, chunks_of
from migrate.vectors import Batch, Progress, Vectors, as_vectors, no_progress

if TYPE_CHECKING:
    from migrate.steps.base import StoreLike
    from migrate.steps.translate.job import Translation

_loaded: dict[str, FittedStitch] = {}
"""The stitches that this process has loaded from the bytes that functions carry, by their digest."""


def batch(
    stitch: FittedStitch | str | Path,
    *,
    ids: str = "id",
    vectors: str = "vector",
    texts: str | None = "text",
    confidence: str = "confidence",
    any_store: bool = False,
) -> BatchFunction:
    """Return the stitch as a function of one batch of documents, for an engine to run on many.

    The function takes an Arrow table or record batch, a pandas frame, or a mapping of NumPy arrays by column, and
    returns the same kind: the ids as they came, the new vectors, and `confidence`, the cosine to expect with true
    ones. Given an iterator of batches, it returns one. It writes nothing, and can be pickled: the stitch goes with it
    as bytes, so that other machines need the package and no shared folder, and each process loads it once.

    Vectors are, bit for bit, those of `translate` in batches that begin a multiple of `function.rows` documents after
    the beginning of the same file; in other batches the last digits may differ. `function.finish` makes a store of what
    the engine has written.

    Parameters
    ----------
    stitch
        What `fit` returned, or the folder or URL that it was saved to.
    ids, vectors
        The columns to read. Ids are texts or integers, vectors lists of numbers.
    texts
        The column that a stitch that reads texts needs; None for a store without, to use the stitch's fallback.
    confidence
        The name of the column to add.
    any_store
        Leave out the true vectors of the stitch's sample, for documents of another store than it was fitted on.

    Raises
    ------
    StitchError
        The stitch is one for queries; it would load a further model in each process; or it reads texts, `texts` is
        None, and it has no fallback.
    ManifestError, UsageError, OutputError
        There is no stitch, or none that can be read.

    Examples
    --------
    >>> import migrate
    >>> stitch = migrate.fit("my-store", "tfidf:24", kind="ridge", sample=100)
    >>> translate = migrate.batch(stitch)
    >>> made = translate({"id": ["a", "b"], "vector": [[1.0] * 32, [0.5] * 32]})
    >>> made["vector"].shape, made["confidence"].shape
    ((2, 24), (2,))
    """
    if isinstance(stitch, FittedStitch):
        fitted = stitch
    else:
        fitted = load_stitch(stitch)
    require_direction(fitted.manifest, DOCUMENT, source="batch")
    function = BatchFunction(fitted, BatchColumns(ids, vectors, texts, confidence), any_store)
    reader = function.fitted.reader if function.fitted.reads_texts else None
    if reader is not None and reader.models:
        raise StitchError(
            f"batch: the stitch reads texts by {', '.join(reader.models)}, which every process would load, or pay for; "
            "use `translate`, or fit a stitch without a view"
        )
    return function


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """The names of the columns that a function of batches reads, and of those that it returns."""

    ids: str
    vectors: str
    texts: str | None
    confidence: str


class BatchFunction:
    """A stitch as a function of one batch; see `batch`."""

    def __init__(self, stitch: FittedStitch, columns: BatchColumns, any_store: bool) -> None:
        self.stitch = stitch
        if columns.texts is not None:
            self.fitted = stitch
        else:
            self.fitted = stitch.without_texts(source="batch(texts=None)")
        self.columns = columns
        self.any_store = any_store

    def __repr__(self) -> str:
        names = self.columns
        read = ", ".join([names.ids, names.vectors, *([str(names.texts)] if self.fitted.reads_texts else [])])
        return f"<BatchFunction {self.fitted.stitch.spec}: {read} -> {names.ids}, {names.vectors}, {names.confidence}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (*self._saved, self.columns, self.any_store)

    @property
    def rows(self) -> int:
        """The number of documents that `translate` takes at a time."""
        return batch_rows(max(input_dim(self.fitted.manifest), self.fitted.dim))

    def __call__(self, batch: Any) -> Any:
        """Return ids, new vectors and confidence of a batch; of an iterator of batches, an iterator.

        Raises
        ------
        UsageError
            It is no batch, or lacks a column or has it twice, or has a column called as the confidence.
        InputError
            Columns have different numbers of rows; an id or a text is none.
        VectorError
            A vector is missing, of another dimension, zero or not finite.
        """
        if isinstance(batch, Iterator):
            return map(self, batch)
        ids = self.columns.ids
        vectors = self.columns.vectors
        confidence = self.columns.confidence
        # By its name: a program that has no pyarrow or no pandas need not have it for this.
        library = type(batch).__module__.partition(".")[0]
        if library == "pyarrow" and hasattr(batch, "append_column"):
            done = self._translate(batch.schema.names, batch.column)
            return replace_vectors(batch, ids, {vectors: done.vectors}, {confidence: done.confidence})
        if library == "pandas" and hasattr(batch, "columns"):
            done = self._translate([*batch.columns], batch.__getitem__)
            return batch[[ids]].assign(**{vectors: [*done.vectors], confidence: done.confidence})
        if isinstance(batch, Mapping):
            done = self._translate([*batch], batch.__getitem__)
            return {ids: batch[ids], vectors: done.vectors, confidence: done.confidence}
        raise UsageError(
            f"a batch is an Arrow table or record batch, a pandas frame or a mapping of arrays, and this is a "
            f"{type(batch).__name__}; convert it to one of these"
        )

    def finish(
        self,
        store: StoreLike,
        made: str | Path,
        output: str | Path,
        *,
        compared: int | None = None,
        force: bool = False,
        restart: bool = False,
        progress: Progress = no_progress,
    ) -> Translation:
        """Write a store with the vectors that an engine has made of all batches of `store`, for `audit` and `switch`.

        It is the one that `translate` writes. Vectors are made again, to compare them.

        Parameters
        ----------
        store
            The store that the batches were of, or its path.
        made
            The folder or URL of the Parquet files that the engine wrote, in whatever order.
        output
            Folder to write, or KIND:LOCATION.
        compared
            Vectors to compare of each batch of `rows`. By default all, and 8 where the stitch reads texts, as all of
            them would take as long as `translate`.
        force, restart, progress
            As of `translate`.

        Raises
        ------
        StoreError
            The files are malformed, or a document has no vector, or a vector no document.
        StitchError, VectorError
            The vectors are not what the stitch makes of the store; or as `translate`.
        UsageError, OutputError, LockedError
            As `translate`; or `compared` is less than 1.
        """
        from migrate.steps.base import RunContext
        from migrate.steps.opening import store_of
        from migrate.steps.translate.batches import finish_store
        from migrate.steps.translate.options import TranslateOptions

        if compared is not None and compared < 1:
            raise UsageError(f"compared: {compared} is too few; give at least 1")
        # A column may have `&` or `#` in its name.
        options = urlencode({"id": self.columns.ids, "vector": self.columns.vectors})
        location = f"parquet:{str(made).removeprefix('parquet:')}#?{options}"
        source = store_of(store)
        if source.info.has_texts:
            stitch = self.fitted
        else:
            stitch = self.stitch
        request = TranslateOptions(source, stitch, output, any_store=self.any_store, force=force, restart=restart)
        return finish_store(request, location, self.columns.confidence, compared, RunContext(progress=progress))

    def _translate(self, names: Sequence[Any], column: Callable[[str], Any]) -> TranslatedBatch:
        """Return the new vectors and the confidence of a batch with columns of these names."""
        columns = self.columns
        spec = self.fitted.stitch.spec
        text_column = columns.texts if self.fitted.reads_texts else None
        _require(names, columns.ids, "ids=", "the ids of the documents")
        _require(names, columns.vectors, "vectors=", "their old vectors")
        if text_column is not None:
            _require(names, text_column, "texts=", f"the texts that the {spec} stitch reads")
        if columns.confidence in names:
            raise UsageError(
                f"the batch has a column {columns.confidence!r} already; leave it out, or name another with confidence="
            )
        ids = _ids(_values(column(columns.ids), columns.ids), columns.ids)
        vectors = _vectors(column(columns.vectors), ids, input_dim(self.fitted.manifest), columns.vectors)
        if text_column is None:
            texts = None
        else:
            texts = _texts(_values(column(text_column), text_column), ids, text_column)
        new = np.empty((len(ids), self.fitted.dim), np.float32)
        expected = np.empty(len(ids), np.float32)
        start = 0
        for done in self._translated(Batch(ids, vectors), texts):
            rows = slice(start, start + len(done.ids))
            new[rows] = done.vectors
            expected[rows] = done.confidence
            start = rows.stop
        return TranslatedBatch(ids, new, expected)

    def _translated(self, batch: Batch, texts: Sequence[str] | None) -> Iterator[TranslatedBatch]:
        """Yield a batch in the parts that `translate` makes at a time: other products differ in the last digits."""
        translate = partial(self.fitted.translate, source="the batch", patch=not self.any_store)
        spans = [slice(start, start + self.rows) for start in range(0, len(batch), self.rows)]
        if texts is None:
            largest = max(batch.vectors.shape[1], self.fitted.dim)
            chunks = (chunk for span in spans for chunk in chunks_of(_slice_of(batch, span), largest))
            yield from by_threads(lambda chunk: translate(chunk, None), chunks)
            return
        for span in spans:
            yield translate(_slice_of(batch, span), texts and texts[span])

    @cached_property
    def _saved(self) -> tuple[str, Mapping[str, bytes]]:
        """The files of the stitch by name, and a digest of them."""
        with tempfile.TemporaryDirectory(prefix="lead-migrate-") as temporary:
            folder = Path(temporary) / "stitch"
            self.stitch.save(folder)
            files = {path.name: read_file(path) for path in sorted(folder.iterdir())}
        digests = {name: hash_bytes(content) for name, content in files.items()}
        return sha256_json(digests), files


def _slice_of(batch: Batch, span: slice) -> Batch:
    return Batch(batch.ids[span], batch.vectors[span])


def _require(names: Sequence[Any], name: str, option: str, meaning: str) -> None:
    if name not in names:
        listed = ", ".join(map(str, names)) or "none"
        raise UsageError(
            f"the batch has no column {name!r}, for {meaning}; name it with {option} (its columns: {listed})"
        )
    # Arrow and pandas take two columns of one name, and return both of them, or an error, for it.
    if (count := names.count(name)) > 1:
        raise UsageError(f"the batch has {count} columns {name!r}, for {meaning}; leave one, or name it with {option}")


def _require_rows(count: int, name: str, ids: Sequence[str]) -> None:
    """Make sure that a column has as many rows as there are ids."""
    if count != len(ids):
        raise InputError(
            f"the batch: column {name!r} has another number of rows ({count:,}) than there are ids ({len(ids):,}); "
            "give each document one"
        )


def _restored(digest: str, files: Mapping[str, bytes], columns: BatchColumns, any_store: bool) -> BatchFunction:
    """Return a function that was pickled; its stitch is loaded once in a process."""
    if digest not in _loaded:
        with tempfile.TemporaryDirectory(prefix="lead-migrate-") as temporary:
            for name, content in files.items():
                (Path(temporary) / name).write_bytes(content)
            _loaded[digest] = load_stitch(temporary)
    function = BatchFunction(_loaded[digest], columns, any_store)
    # A worker may pickle the function once more: it is not to save the stitch anew for that.
    function.__dict__["_saved"] = digest, files
    return function


def _values(column: Any, name: str) -> list[Any]:
    """Return a column of ids or texts as values of Python."""
    as_list = getattr(column, "to_pylist", None) or getattr(column, "tolist", None)
    return _rows_of(column if as_list is None else as_list(), name)


def _rows_of(column: Any, name: str) -> list[Any]:
    """Return a column as a list, an item for each row."""
    if isinstance(column, str) or not isinstance(column, Iterable):
        raise InputError(
            f"the batch: column {name!r} holds {column!r:.40}, and has to hold a value for each document; "
            "give an array or a list"
        )
    return [*column]


def _ids(values: Sequence[Any], name: str) -> list[str]:
    for row, value in enumerate(values):
        # `True` is an integer to Python, and would become the id "True".
        if isinstance(value, bool) or not isinstance(value, str | Integral):
            raise InputError(
                f"the batch: row {row} has no text and no integer in the column of ids {name!r}, but {value!r:.40}; "
                "give each document an id, or name another column with ids="
            )
    return [str(value) for value in values]


def _texts(values: Sequence[Any], ids: Sequence[str], name: str) -> list[str]:
    _require_rows(len(values), name, ids)
    for doc_id, value in zip(ids, values, strict=True):
        if not (isinstance(value, str) or _is_empty(value)):
            raise InputError(
                f"the batch: document {doc_id!r} has no text in column {name!r}, but {value!r:.40}; name another "
                "with texts="
            )
    return ["" if _is_empty(value) else value for value in values]


def _is_empty(value: Any) -> bool:
    # pandas has NaN where a cell is empty, in columns of texts too.
    return value is None or (isinstance(value, float) and np.isnan(value))


def _vectors(column: Any, ids: Sequence[str], dim: int, name: str) -> Vectors:
    """Return a column of vectors as float32, (n, dim)."""
    if type(column).__module__.partition(".")[0] == "pyarrow":
        _require_rows(len(column), name, ids)
        lists = lists_in(column)
        if lists is None:
            row = 0 if len(ids) else None
        else:
            row = row_without_vector(lists, dim)
        if row is not None:
            raise _no_vector(ids[row], dim, name)
        if lists is None:
            return np.empty((0, dim), np.float32)
        return vectors_of_lists(lists, dim)
    # A column of pandas has an object in each cell, which may be of any length.
    if not (isinstance(column, np.ndarray) and column.ndim == 2):
        column = _rows_of(column, name)
    _require_rows(len(column), name, ids)
    row = next((row for row, vector in enumerate(column) if _length(vector) != dim), None)
    if row is not None:
        raise _no_vector(ids[row], dim, name)
    if not len(ids):
        return np.empty((0, dim), np.float32)
    return as_vectors(column, dim=dim, source=f"the batch: column {name!r}")


def _length(vector: Any) -> int | None:
    try:
        return len(vector)
    except TypeError:
        return None


def _no_vector(doc_id: str, dim: int, name: str) -> VectorError:
    return VectorError(
        f"the batch: document {doc_id!r} has no vector of {dim} numbers in column {name!r}; remove it, or name another "
        "column with vectors="
    )
