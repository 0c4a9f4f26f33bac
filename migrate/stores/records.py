"""Documents, columns, metrics, options and clients of kinds whose stores are tables or collections of records."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.reading import MalformedError, parse_json
from migrate.stores.base import NO_TEXTS, Metric, Store
from migrate.stores.documents.names import TEXTS, first_of
from migrate.vectors import UNIT_TOLERANCE, Document, Vectors, squared_norms

Distance = Literal["l2", "ip", "cosine"]
"""The ways that databases compare; `read_metric` says what becomes of them here."""


def source_documents(source: Store, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
    """Return the documents of a store, or of some rows that follow each other; without texts if it has none."""
    if source.info.has_texts:
        return source.documents(rows)
    first = 0
    stop: int | None = None
    if rows is not None and len(rows):
        first = int(rows[0])
        stop = int(rows[-1]) + 1
    elif rows is not None:
        stop = 0
    return (Document(doc_id, "") for batch in source.scan(first, stop) for doc_id in batch.ids)


def left_behind(source: Store) -> Iterator[str]:
    """Yield remarks on what a new store of another kind lacks: records without a vector, files beside the source."""
    if source.info.without_vector:
        yield f"{source.info.without_vector:,} rows of the source have no vector: they are not in the new store"
    if names := ", ".join(source.info.unread_by_row):
        yield f"{names}: with an entry for each row of the source, but not read; the new store has nothing of it"


def read_metric(distance: Distance | None, sample: Vectors) -> tuple[Metric, tuple[str, ...]]:
    """Return how a store is searched that compares by `distance`, with a note if that is not the same.

    Cosine ranks vectors of unit length as the inner product does; `sample` are some of them, (n, dim).
    """
    if distance is None:
        return "ip", (
            "nothing says how vectors are compared: inner product is assumed; say ?distance=l2 or cosine if not",
        )
    if distance != "cosine":
        return distance, ()
    # Only the metric is found here: vectors that are not finite are named by whoever reads them.
    with np.errstate(over="ignore", invalid="ignore"):
        if len(sample):
            norms = np.sqrt(squared_norms(sample))
        else:
            norms = np.ones(1, np.float32)
    if (np.abs(norms - 1) < UNIT_TOLERANCE).all():
        return "ip", ()
    return "ip", (
        "compared by cosine; the vectors are not of unit length, so they are normalised wherever they are compared",
    )


def choose_text(location: Path | str, columns: Sequence[str], requested: str | None) -> tuple[str | None, str]:
    """Return the column of texts among those that could be, and a note that says why.

    The one that is asked for, or StoreError; else that with the likeliest usual name; else the only one.
    """
    if requested is not None:
        choose(location, "column of texts", columns, requested, "say ?text=COLUMN for one")
        return requested, f"the texts are those of column {requested}, as the location says"
    usual = first_of(TEXTS, columns)
    if usual is not None:
        return usual, f"the texts are those of column {usual}, by its name; say ?text=COLUMN for another"
    if len(columns) == 1:
        return columns[0], f"the texts are those of column {columns[0]}, the only one; say ?text=COLUMN for another"
    have = "no column holds texts"
    if columns:
        have = f"it could be {', '.join(columns)}"
    return None, f"{NO_TEXTS}{have}; say ?text=COLUMN for one"


def choose(location: Path | str, noun: str, names: Sequence[str], requested: str | None, remedy: str) -> str:
    """Return the name that is asked for, or the only one; else a StoreError lists all, with a `remedy`."""
    if requested in names:
        return str(requested)
    if not requested and len(names) == 1:
        return names[0]
    if requested:
        problem = f"there is no {noun} {requested!r}"
    else:
        problem = f"no {noun} is named"
    have = ", ".join(name or "(without name)" for name in names) or "none"
    raise StoreError(f"{location}: {problem}; there are {have}: {remedy}")


def means_several(location: object) -> UsageError:
    """Return the error of a location that means many collections, where one is taken."""
    return UsageError(
        f"{location}: a * means many collections, and this takes one; name one, or move all by `lead-migrate "
        "collections`"
    )


def as_document(
    location: str, doc_id: str, fields: dict[str, Any], key: str | None, text: str | None, nested: str | None = None
) -> Document:
    """Return a record as a document; if all but the text is a mapping under `nested`, that is the metadata.

    An id that is a text is no metadata.
    """
    if key is not None and isinstance(fields.get(key), str):
        del fields[key]
    if not text:
        content = None
    else:
        content = fields.pop(text, None)
    if content is not None and not isinstance(content, str):
        raise StoreError(
            f"{location}: {text!r} of record {doc_id} is {type(content).__name__}, not text; say ?text=FIELD for "
            "another"
        )
    # Beside other fields it stays one of them, as a name could come twice.
    if nested in fields and len(fields) == 1 and isinstance(fields[nested], dict):
        fields = fields[nested]
    return Document(doc_id, content or "", fields)


def with_nested(fields: Mapping[str, Any], nested: str | None) -> Mapping[str, Any]:
    """Return columns as metadata, with the fields of a nested one, a mapping or JSON, unless a name comes twice."""
    inner = fields.get(nested or "")
    with suppress(MalformedError):
        if isinstance(inner, str):
            inner = parse_json(inner)
    outer = {name: value for name, value in fields.items() if name != nested}
    if not isinstance(inner, dict) or inner.keys() & outer.keys():
        return fields
    return {**inner, **outer}


def import_client(module: str, extra: str) -> ModuleType:
    """Import the client library of a kind; raises UsageError if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            f"stores of the kind {extra} need the Python package {module}, which is not installed: "
            f"pip install 'lead-migrate[{extra}]'"
        ) from error


def check_options(location: str, options: Mapping[str, str], allowed: Collection[str]) -> None:
    """Make sure that a location has no option that means nothing; without `known` ones, that of a new store, none."""
    if unknown := ", ".join(sorted(options.keys() - set(allowed))):
        have = "a new store of this kind takes none"
        if allowed:
            have = f"there are {', '.join(sorted(allowed))}"
        raise UsageError(f"{location}: there is no option {unknown}; leave it out, {have}")


def metadata_as_json(document: Document) -> str:
    """Return the metadata of a document as a JSON text; raises StoreError if it holds something else."""
    try:
        return json.dumps(dict(document.metadata), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise not_json(document, error) from error


def not_json(document: Document, error: Exception) -> StoreError:
    """Return the error of a document whose metadata JSON cannot hold."""
    return StoreError(f"document {document.id!r}: JSON cannot hold its metadata ({error}); change them")
