"""The output of a sync: over the store that is there, written as that one was."""

from __future__ import annotations

from migrate.errors import UsageError
from migrate.files import refuse_overlap
from migrate.locations import options_text
from migrate.manifest import Manifest
from migrate.stores.base import Store
from migrate.stores.documents.jsonl import DOCS_NAME
from migrate.stores.file_store import INDEX_NAME, as_files
from migrate.stores.outputs import Output
from migrate.stores.registry import find_exchange, output_of, path_in
from migrate.stores.switching import strangers_beside
from migrate.stores.updates import UpdatableStore


def place_over(old: Store, new: Store, manifest: Manifest) -> Output:
    """Return the output by which `old` was translated into `new`; a folder is replaced as a whole.

    Raises UsageError: the new store is not as a translation of the old one would be, or something else lies in its
    folder.
    """
    files = as_files(new)
    location = new.info.location
    # Not the store's folder: what lies beside a table that was switched may have one of its own in that of the database
    path = path_in(location)
    if files is not None:
        path = files.index_path.parent
    if path is None or "://" in location:
        return _on_server(location, manifest)
    folder = path if path.is_dir() else path.parent
    refuse_overlap(folder, *filter(None, [path_in(old.info.location)]))
    strangers = [name for name in strangers_beside(new) if not name.startswith(".lead-migrate-")]
    if strangers:
        raise UsageError(
            f"{location}: other files lie in the folder, which is replaced as a whole: {', '.join(strangers[:5])}; "
            "move the store into a folder of its own"
        )
    written_as = manifest.store.written_as or {}
    was_faiss = written_as.get("kind") == "faiss"
    # The new number of rows may take another number of files
    if files is not None and new.info.kind == "parquet":
        return output_of(f"parquet:{folder}")
    if _is_copy(old, new) and not was_faiss:
        return Output(folder)
    if files is not None and (files.index_path.name, *files.document_files) in (
        (INDEX_NAME,),
        (INDEX_NAME, DOCS_NAME),
    ):
        index = ""
        # An index that was asked for by name is asked for again: its kind alone would come back with other settings
        if was_faiss and "index" in written_as:
            index = f"#?index={written_as['index']}"
        return output_of(f"faiss:{folder}{index}")
    if files is None and new.info.opened_as:
        if isinstance(new, UpdatableStore):
            # A name may have a `?` in it
            name = new.records.collection
        else:
            name, _, _ = new.info.opened_as.partition("?")
        return output_of(f"{new.info.kind}:{folder}#{name}")
    raise UsageError(
        f"{location}: this {new.info.kind} store with {new.info.index_type} is not as a translation of "
        f"{old.info.location} gives it; translate again"
    )


def refuse_switched(*stores: Store) -> None:
    """Make sure that none of the stores is one that another has taken the place of, or that took it.

    Raises UsageError: one is.
    """
    for store in stores:
        location = store.info.location
        exchange = find_exchange(location)
        if exchange is None:
            continue
        record = exchange.record()
        if record is not None:
            raise UsageError(
                f"{location}: the stores were switched, and {record['new']} answers in the place of {record['old']}: "
                "what is new is written there, and nothing is left to sync; to go back, run rollback first"
            )


def _on_server(location: str, manifest: Manifest) -> Output:
    server, mark, named = location.partition("#")  # a name may have a # too
    if not mark:
        raise UsageError(f"{location}: a store on object storage cannot be replaced; translate to another place")
    options = options_text(dict(manifest.store.written_as or {}))
    output = output_of(f"{server}#{named.partition('?')[0]}{options}")
    if output.is_folder:
        raise UsageError(f"{location}: this is neither a folder nor a server; translate again")
    return output


def _is_copy(old: Store, new: Store) -> bool:
    """Return whether the new store has the kind of the old one, and the names of its files or table."""
    if old.info.kind != new.info.kind:
        return False
    old_files = as_files(old)
    new_files = as_files(new)
    if old_files is not None and new_files is not None:
        return (old_files.index_path.name, old_files.document_files) == (
            new_files.index_path.name,
            new_files.document_files,
        )
    return _named(old) == _named(new)


def _named(store: Store) -> str:
    return (store.info.opened_as or "").partition("?")[0]
