"""Documents of a store whose vectors are not a model's, found by embedding every text, and the file that lists them.

check --rows FILE ──▶ FILE: a line on the store, the model and the count; a line for each document, in store order
reembed --rows FILE ──▶ the same documents, after the store was held against the first line
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from migrate.check.model import Cause, Compatibility
from migrate.embedders.base import Embedder
from migrate.embedders.cache import with_choosers
from migrate.errors import InputError, OutputError, StoreError, UsageError
from migrate.files import atomic_file, describe_os_error, read_file, write_bytes
from migrate.manifest import ModelIdentity
from migrate.reading import MalformedError, expect, parse_json, typed
from migrate.selection.model_match import Mask, agree, tolerance_of
from migrate.stores.all_true import is_all_true
from migrate.stores.base import Store
from migrate.stores.content import content_difference, content_of, is_content
from migrate.vectors import Document, Progress, no_progress

_FORMAT: Final = "lead-migrate rows 1"
_BATCH: Final = 1_024
"""Documents that are embedded at once."""

_MIXABLE: Final = (Cause.COMPATIBLE, Cause.MIXED, Cause.MANIFEST, Cause.CHANGED)
"""Causes of a store of which some documents are the model's."""


@dataclass(frozen=True, slots=True, eq=False)
class OtherRows:
    """The documents whose stored vector is not the one that `model` gives to their text.

    Attributes
    ----------
    content
        Hashes of the store that they are of (`migrate.stores.content.content_of`).
    rows, ids
        The documents, (n,), in the order of the store.
    blank
        How many documents have no text, of which nothing is known.
    """

    model: ModelIdentity
    content: Mapping[str, Any]
    rows: NDArray[np.int64]
    ids: tuple[str, ...]
    blank: int

    def write(self, path: Path, *, force: bool = False) -> None:
        """Write the file of JSON lines; raises UsageError where it exists and `force` is not given."""
        head = {
            "format": _FORMAT,
            "model": asdict(self.model),
            "store": dict(self.content),
            "documents": len(self.ids),
            "blank": self.blank,
        }
        documents = ({"id": doc_id, "row": row} for doc_id, row in zip(self.ids, self.rows.tolist(), strict=True))
        lines = [json.dumps(line) for line in (head, *documents)]
        with atomic_file(path, force=force) as unfinished:
            write_bytes(unfinished, "".join(f"{line}\n" for line in lines).encode())

    def require(self, store: Store, model: ModelIdentity, *, source: str) -> None:
        """Make sure that they are of a store as it is now and of a model; `source` begins the messages.

        Raises UsageError: another model. StoreError: another store, or it changed since.
        """
        if model != self.model:
            raise UsageError(
                f"{source}: the documents were held against {_described(self.model)}, and not {_described(model)}; "
                "leave out `target=`, or check the store for that model"
            )
        content = content_of(store)
        if not is_content(self.content, content, store):
            raise StoreError(
                f"{source}: is of another store than {store.info.location}, or it changed since "
                f"({content_difference(self.content, content)}); check it again with --rows"
            )
        if tuple(store.ids(self.rows)) != self.ids:
            raise StoreError(f"{source}: names other documents than its rows have; check the store again with --rows")


def read_rows(path: Path) -> OtherRows:
    """Read the file that `OtherRows.write` wrote.

    Raises InputError: it is empty, damaged, or another file. OutputError: the operating system refused.
    """
    try:
        lines = read_file(path).splitlines()
        head = expect(parse_json(lines[0] if lines else b"null"), _HEAD)
        model = typed(ModelIdentity, head["model"])
        documents = [expect(parse_json(line), {"id": str, "row": int}) for line in lines[1:]]
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(f"{path}: there is no such file; write it with `lead-migrate check --rows`") from error
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the permissions") from error
    except MalformedError as error:
        reason = str(error) if lines else "it is empty"
        raise InputError(
            f"{path}: not a file of rows ({reason}); write it anew with `lead-migrate check --rows`"
        ) from error
    rows = np.array([document["row"] for document in documents], np.int64)
    is_ordered = bool((np.diff(rows) > 0).all()) and bool((rows >= 0).all())
    n_stored = head["store"].get("count")
    is_within = not len(rows) or (isinstance(n_stored, int) and int(rows[-1]) < n_stored)
    if len(rows) != head["documents"] or not is_ordered or not is_within:
        raise InputError(
            f"{path}: the {len(rows):,} documents in it are not the {head['documents']:,} that were written; it was "
            "cut off or edited: write it anew with `lead-migrate check --rows`"
        )
    return OtherRows(model, head["store"], rows, tuple(document["id"] for document in documents), head["blank"])


_HEAD: Final[Mapping[str, Any]] = {
    "format": Literal["lead-migrate rows 1"],
    "model": {},
    "store": {},
    "documents": int,
    "blank": int,
}


def require_rows(store: Store) -> None:
    """Make sure that the vectors of a store can be told apart; raises a StoreError."""
    location = store.info.location
    manifest = store.info.manifest
    if not store.info.has_texts:
        raise StoreError(f"{location}: the store has no texts, so nothing tells which of its vectors are the model's")
    if manifest is not None and manifest.store.made_by == "translate" and not is_all_true(store):
        raise StoreError(
            f"{location}: the store was translated, so its vectors are near the model's by design and few are its own; "
            f"`lead-migrate live run {location}` puts in true ones"
        )


def find_rows(store: Store, embedder: Embedder, *, progress: Progress = no_progress) -> OtherRows:
    """Embed every text of a store, and list the documents whose vector differs.

    Raises StoreError: `require_rows` does, or the store changed meanwhile. RemoteError, SpendingError, InputError: as
    the embedder.
    """
    require_rows(store)
    before = store.snapshot()
    model = with_choosers(embedder, ())
    others: list[NDArray[np.int64]] = []
    start = 0
    n_blank = 0
    for batch in store.scan(batch_size=_BATCH):
        documents = list(store.documents(np.arange(start, start + len(batch))))
        has_text = np.array([bool(document.text.strip()) for document in documents])
        worded = np.flatnonzero(has_text)
        n_blank += len(documents) - len(worded)
        is_other = _differ(store, batch.vectors[worded], [documents[row] for row in worded], model)
        others.append(start + worded[is_other])
        start += len(batch)
        progress("embed every text", start, store.info.count)
    store.check_unchanged(before)
    rows = np.concatenate(others) if others else np.empty(0, np.int64)
    ids = tuple(store.ids(rows)) if len(rows) else ()
    return OtherRows(embedder.identity, content_of(store), rows, ids, n_blank)


def _differ(store: Store, stored: NDArray[np.float32], documents: list[Document], model: Embedder) -> Mask:
    """Return which stored vectors, (n, dim), are not those of the texts."""
    if not documents:
        return np.zeros(0, bool)
    vectors = model.embed_documents(documents)
    # A stored vector that is NaN or zero agrees with none, and is embedded anew like any other
    with np.errstate(invalid="ignore", over="ignore"):
        differs: Mask = ~agree(stored, vectors, tolerance_of(store.info))
    return differs


def list_rows(
    store: Store,
    embedder: Embedder,
    result: Compatibility,
    path: Path,
    *,
    force: bool = False,
    progress: Progress = no_progress,
) -> Compatibility:
    """Write the documents that are not of the model to a file; return the result of the check with what was found.

    Where not one sampled document is the model's, nothing is embedded or written, and a note says so.
    """
    scaled = any(finding.name == "norms" and not finding.ok for finding in result.findings)
    if result.cause not in _MIXABLE or scaled:
        why = "vectors of the model's own length would not go with the others" if scaled else "all of it is of another"
        return replace(result, notes=(f"{path} was not written: {why}", *result.notes))
    others = find_rows(store, embedder, progress=progress)
    others.write(path, force=force)
    counted = f"{len(others.ids):,} of {store.info.count:,} documents do not have the model's vectors"
    note = f"{path}: {counted}"
    if others.blank:
        note += f"; {others.blank:,} without text were not looked at"
    notes = (note, *result.notes)
    if not len(others.ids) or not result.compatible:
        return replace(result, notes=notes)
    # The sample had none of them
    return replace(
        result, cause=Cause.MIXED, sentence=f"a part of the store is of another model: {counted}", notes=notes
    )


def _described(model: ModelIdentity) -> str:
    """Return the model with what tells two of one name apart."""
    words = [model.spec, f"{model.dim:,} dimensions"]
    words += [f"prefix {model.document_prefix!r}"] if model.document_prefix else []
    words += [f"revision {model.revision[:12]}"] if model.revision else []
    return ", ".join(words)
