"""Ends a process, as `kill -9` or Ctrl-C would, at a moment of a run: before or after calls that it makes.

A `MOMENT:n` is the n-th time that a run comes there.
"""

import functools
import os
from importlib import import_module
from itertools import count

STATUS = 137
_STATE, _DISK = "migrate.work.outputs:RunState.write", "migrate.stores.parquet.output:RemoteFiles"

MOMENTS = {
    "begun": [("after", _STATE)],
    "synced": [("before", "migrate.work.shards:ShardFolder.write")],
    "written": [("before", "os:rename")],
    "recorded": [("after", "migrate.work.shards:ShardFolder.add")],
    "filled": [("before", _STATE)],
    "complete": [("after", _STATE)],
    "aside": [("after", "migrate.files:exchange_paths")],
    "published": [("before", "migrate.work.outputs:_tidy_shards")],
    "ended": [("before", "migrate.work.outputs:remove_last")],
    "told": [("before", "migrate.cli.translate:show"), ("before", "migrate.lab.embed.action:show")],
    "one published": [("after", "migrate.databases.server_names:ServerNames.publish")],
    "audited": [("after", "migrate.collections.auditing:_write_report")],
    "gathered": [("after", "migrate.collections.switching:_write_into")],
    "claimed": [("after", "migrate.stores.parquet.output:ObjectOutput.claim")],
    "put": [("after", f"{_DISK}.put")],
    "listed": [("before", f"{_DISK}.remove")],
    "noted": [
        ("after", "migrate.stores.switching:Folders.note"),
        ("after", "migrate.databases.server_names:TradedNames.note"),
    ],
    "moved": [
        ("after", "os:rename"),
        ("after", "migrate.stores.switching:exchange_paths"),
        ("after", "chromadb.api.models.Collection:Collection.modify"),
    ],
    "exchanged": [
        ("after", "migrate.stores.switching:Folders.swap"),
        ("after", "migrate.databases.server_names:TradedNames.swap"),
    ],
    "set aside": [
        ("after", "migrate.stores.switching:Folders.drop"),
        ("after", "migrate.databases.server_names:ServerNames.drop"),
    ],
    "field noted": [
        ("after", "migrate.stores.added_fields:VectorFields.begin"),
        ("after", "migrate.stores.added_fields:FieldFolders.begin"),
    ],
    "batch written": [("before", "migrate.databases.fields:FieldOutput._report")],
    "field kept": [
        ("after", "migrate.stores.added_fields:VectorFields.keep"),
        ("after", "migrate.stores.added_fields:FieldFolders.keep"),
    ],
    "column kept": [("after", "migrate.stores.added_fields:FieldFolders.keep")],
    "column exchanged": [("after", "migrate.stores.parquet.columns:exchange_paths")],
    "field dropped": [("after", "migrate.stores.added_fields:VectorFields.drop")],
    "embedded": [("before", "migrate.live.worker:put_true_vectors")],
    "vectors written": [("after", "migrate.live.writing:replace_vectors")],
}
"""The calls that are one moment; a method is that of subclasses too."""

_EARLIER = {"filled": 1, "complete": 1}
"""The state is written when work begins, too."""

STEPS = ["os:fsync", "os:rename", "os:replace", "os:rmdir", "migrate.files:exchange_paths"]
"""The calls that change what a later run finds on the disk."""


def die_at(moment):
    """Let this process die at `MOMENT:n`."""
    _end(*_calls_of(moment), _die, setattr)


def die_at_step(number):
    """Let this process die after so many steps on the disk."""
    _end([("after", step) for step in STEPS], number, _die, setattr)


def interrupt_at(moment, patch):
    """Raise what Ctrl-C raises at `MOMENT:n`, as long as a pytest patch holds."""
    _end(*_calls_of(moment), _interrupt, patch.setattr)


def _calls_of(moment):
    name, _, number = moment.partition(":")
    return MOMENTS[name], int(number or 1) + _EARLIER.get(name, 0)


def _die():
    os._exit(STATUS)


def _interrupt():
    raise KeyboardInterrupt


def _end(calls, number, end, replace):
    import migrate.databases
    import migrate.stores.registry  # noqa: F401 - with all subclasses

    numbers = count(1)

    def come():
        if next(numbers) == number:
            end()

    for when, call in calls:
        module, _, path = call.partition(":")
        try:
            owner = import_module(module)
        except ImportError:  # a database that is not installed
            continue
        *classes, name = path.split(".")
        for part in classes:
            owner = getattr(owner, part)
        for one in [owner, *(_below(owner) if classes else [])]:
            if one is owner or name in vars(one):
                replace(one, name, _wrapped(getattr(one, name), when, come))


def _below(owner):
    return [one for direct in owner.__subclasses__() for one in [direct, *_below(direct)]]


def _wrapped(function, when, come):
    @functools.wraps(function)
    def wrapped(*arguments, **options):
        if when == "before":
            come()
        returned = function(*arguments, **options)
        if when == "after":
            come()
        return returned

    return wrapped
