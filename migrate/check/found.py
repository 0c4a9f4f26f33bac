"""What a check has found a store to be of, kept in the user's cache folder until a stamp takes it.

It is bound to the place and the content of the store: of another store, or of one that has changed since, none is told.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from migrate.check.model import Found
from migrate.errors import OutputError, StoreError, UsageError
from migrate.files import atomic_file, cache_folder, describe_os_error, output_errors, write_json
from migrate.reading import MalformedError, expect, read_table, typed
from migrate.stores.base import Store
from migrate.stores.registry import absolute_location

_SHAPE = {"found": dict[str, Any], "store": dict[str, Any]}


def leave_finding(store: Store, found: Found | None) -> None:
    """Keep what a check has found in the place of what an earlier one has; None forgets that alone.

    Raises
    ------
    OutputError
        The cache folder cannot be written to.
    """
    path = _path(store)
    with output_errors(path):
        if found is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path, force=True) as aside:
        write_json(aside, {"found": asdict(found), "store": store.snapshot().as_json()})


def read_finding(store: Store) -> Found:
    """What the last check of a store has found.

    Raises
    ------
    UsageError
        It has found nothing, or there was no check.
    StoreError
        The store is not what it was then.
    OutputError
        The operating system refused.
    """
    path, location = _path(store), store.info.location
    try:
        kept = expect(read_table(path), _SHAPE)
        found = typed(Found, kept["found"])
    except (FileNotFoundError, MalformedError) as error:
        raise UsageError(
            f"{location}: no check has found what it is of; run `lead-migrate check` on it with --model first"
        ) from error
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the permissions") from error
    if kept["store"] != json.loads(json.dumps(store.snapshot().as_json())):
        raise StoreError(f"{location}: the store changed since it was found to be of {found.spec}; check it again")
    return found


def _path(store: Store) -> Path:
    location = absolute_location(store.info.location)
    return cache_folder() / "checks" / f"{hashlib.sha256(location.encode()).hexdigest()[:32]}.json"
