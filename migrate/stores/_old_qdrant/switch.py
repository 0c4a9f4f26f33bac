"""Two collections of Qdrant that change places: two aliases of a server."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from migrate.errors import UsageError
from migrate.files import atomic_file, output_errors, reach, state_folder, write_json
from migrate.stores.qdrant.client import Place, answers, models_of_client
from migrate.stores.qdrant.store import QdrantStore
from migrate.stores.switching import RECORD_SHAPE, Exchange, Record, moved, others, read_notes, unfinished

_SHAPE: Final = {"aliases": tuple[str, str], "old": str, "new": str, "server": str, "record": RECORD_SHAPE}


class AliasExchange(Exchange):
    """Two aliases of a server that trade collections, in one call.

    A server has no place for a record: it is kept in a folder of this machine.

    Parameters
    ----------
    place
        The server.
    old, new
        The aliases.
    """

    def __init__(self, place: Place, old: str, new: str) -> None:
        self.place, self.old, self.new = place, old, new
        digest = hashlib.sha256(f"{_server(place)}#{old}".encode()).hexdigest()[:32]
        self.notes = _notes_folder() / f"{digest}.json"

    @classmethod
    def of(cls, old: QdrantStore, new: QdrantStore) -> AliasExchange:
        """The exchange of two names that are aliases.

        Raises
        ------
        UsageError
            One of them is a collection, which Qdrant cannot rename; or they are on two servers.
        """
        places = [store.place.location.partition("#")[0] for store in (old, new)]
        if places[0] != places[1]:
            raise UsageError(f"{new.info.location}: expected a collection of {places[0]}, found another server")
        aliases = old.place.aliases()
        for store in (old, new):
            if store.name not in aliases:
                raise UsageError(
                    f"{store.info.location}: expected an alias, found a collection, which Qdrant cannot rename; give "
                    "it an alias, let your programs ask that, and switch the alias"
                )
        return cls(old.place, old.name, new.name)

    @classmethod
    def at(cls, store: QdrantStore) -> AliasExchange | None:
        """The exchange that this machine has noted of an alias."""
        made = cls(store.place, store.name, "")
        noted = made._noted()
        if noted is None:
            return None
        made.new = noted["aliases"][1]
        return made

    def record(self) -> Record | None:
        """What this machine has noted."""
        noted = self._noted()
        return None if noted is None else noted["record"]

    def switch(self, record: Record) -> None:
        """Note which collection is which, and change both aliases in one call."""
        aliases, noted = self.place.aliases(), self._noted()
        if noted is None:
            for alias in (self.old, self.new):
                if (old := switched_with(self.place, alias)) is not None:
                    raise moved(f"{_server(self.place)}#{alias}", old)
            self.check()
            noted = {"aliases": [self.old, self.new], "old": aliases[self.old], "new": aliases[self.new]}
        with output_errors(self.notes):
            self.notes.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(self.notes, force=True) as aside:
            write_json(aside, {**noted, "server": _server(self.place), "record": dict(record)})
        reach("noted")
        self._lead({self.old: noted["new"], self.new: noted["old"]})
        reach("exchanged")

    def rollback(self) -> None:
        """Change both aliases back."""
        noted = self._noted()
        if noted is not None:
            self._lead({self.old: noted["old"], self.new: noted["new"]})
            reach("exchanged")
            self.notes.unlink(missing_ok=True)

    def forget(self) -> None:
        """Delete the collection that stepped aside, with its alias."""
        noted = self._noted()
        aliases = self.place.aliases()
        if noted is None or aliases.get(self.old) != noted["new"]:
            raise unfinished(self.place.location)
        if self.new in aliases:
            if aliases[self.new] != noted["old"]:
                raise others(self.place.location)
            with answers(self.place):
                self.place.client.delete_collection(noted["old"])
            reach("exchanged")
        self.notes.unlink(missing_ok=True)

    def _lead(self, wanted: Mapping[str, str]) -> None:
        models, aliases = models_of_client(), self.place.aliases()
        if {aliases.get(alias) for alias in wanted} != set(wanted.values()):
            raise others(self.place.location)
        steps: list[Any] = []
        for alias, collection in wanted.items():
            gone = models.DeleteAlias(alias_name=alias)
            made = models.CreateAlias(collection_name=collection, alias_name=alias)
            steps += [models.DeleteAliasOperation(delete_alias=gone), models.CreateAliasOperation(create_alias=made)]
        with answers(self.place):
            self.place.client.update_collection_aliases(steps)

    def _noted(self) -> dict[str, Any] | None:
        return read_notes(self.notes, _SHAPE) if self.notes.is_file() else None


def switched_with(place: Place, alias: str) -> str | None:
    """The old alias of the switch that this machine has noted an alias of; None where there is none."""
    for path in sorted(_notes_folder().glob("*.json")):
        noted = read_notes(path, _SHAPE)
        if noted["server"] == _server(place) and alias in noted["aliases"]:
            return str(noted["aliases"][0])
    return None


def _server(place: Place) -> str:
    return place.location.partition("#")[0]


def _notes_folder() -> Path:
    return state_folder() / "switches"
