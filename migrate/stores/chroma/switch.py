"""Two collections of Chroma that trade names, with a note of it in the metadata of both.

A collection is known by its id whatever it is called, and both the ids and the names are in the note: it is found again
wherever a kill has left the names. In a folder both change in one transaction of Chroma's database; a server takes two
calls, between which nothing has the old name. The embedding function that the new one names changes with its name.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from migrate.errors import LeadMigrateError, StoreError, UsageError
from migrate.files import output_errors, output_lock, reach
from migrate.locations import options_text
from migrate.manifest import ModelIdentity
from migrate.stores.base import Store
from migrate.stores.chroma.client import (
    AT_ONCE,
    DATABASE,
    NOTE,
    TENANT,
    TOKEN,
    Folder,
    Place,
    Server,
    answers,
    beside_collection,
    own_files,
    persistent,
)
from migrate.stores.chroma.output import add_records, configuration_of, kept_function, same_functions
from migrate.stores.chroma.store import ChromaStore
from migrate.stores.kept import forget
from migrate.stores.records import import_client
from migrate.stores.switching import (
    ASIDE,
    RECORD_SHAPE,
    Exchange,
    FolderExchange,
    Record,
    keep_beside,
    moved,
    others,
    read_noted,
    unfinished,
)

_SHAPE: Final = {
    "old": str,
    "new": str,
    "ids": tuple[str, str],
    "brought": bool,
    "function": Mapping[str, Any] | None,
    "former": Any,
    "record": RECORD_SHAPE,
}
_WAIT_S: Final = 10
_IN_ONE_TRANSACTION: Final = """
import json, sqlite3, sys
path, wait_s, steps = json.load(sys.stdin)
connection = sqlite3.connect(path, wait_s, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
for step, values in steps:
    connection.execute(step, values)
connection.execute("COMMIT")
"""
_NO_FUNCTION: Final[Mapping[str, Any]] = {"type": "legacy"}
_REDUCIBLE: Final = "text-embedding-3"
"""The models of OpenAI that are asked for a dimension."""

_Function = Mapping[str, Any]
"""What a collection notes of its embedding function."""


@dataclass(frozen=True, slots=True)
class _Collection:
    """A collection, by what a switch changes."""

    id: str
    name: str
    note: str | None
    function: _Function | None = None


class _Catalog(ABC):
    """The collections of a folder or a server."""

    @abstractmethod
    def listed(self) -> list[_Collection]:
        """All of them."""

    @abstractmethod
    def change(self, collections: Sequence[_Collection]) -> None:
        """Bring name, note and, where there is one, function of some collections about, in this order."""

    @abstractmethod
    def delete(self, collection: _Collection) -> None:
        """Delete one, with what belongs to it."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nobody else switches here."""
        yield


class _ServerCatalog(_Catalog):
    """Those of a server: a call changes one."""

    def __init__(self, place: Server) -> None:
        self.place = place

    def listed(self) -> list[_Collection]:
        models: list[Any] = []
        with self._answers():
            while page := self.place.client.list_collections(limit=AT_ONCE, offset=len(models)):
                models += [collection._model for collection in page]
        return [
            _Collection(
                str(model.id),
                model.name,
                (model.metadata or {}).get(NOTE),
                model.configuration_json.get("embedding_function"),
            )
            for model in models
        ]

    def change(self, collections: Sequence[_Collection]) -> None:
        for collection in collections:
            with self._answers(), same_functions():
                client = self.place.client
                there = client.get_collection_by_id(collection.id, embedding_function=None)
                metadata = {key: value for key, value in (there.metadata or {}).items() if key != NOTE}
                if not metadata or collection.note is not None:
                    # Chroma takes no empty metadata, and leaves out what is null
                    metadata[NOTE] = collection.note
                function = None if collection.function is None else _as_chroma_has_it(collection.function)
                # `Collection.modify` would refuse, after the server has done it, a function of another name
                there._client._modify(
                    id=there.id,
                    new_name=collection.name,
                    new_metadata=metadata,
                    new_configuration=None if function is None else {"embedding_function": function},
                    **self.place.tenant,
                )
            reach("moved")

    def delete(self, collection: _Collection) -> None:
        with self._answers():
            token = (self.place.collection(collection.name).metadata or {}).get(TOKEN)
            self.place.client.delete_collection(collection.name)
        forget(token)

    def _answers(self) -> Any:
        return answers(self.place.location, remote=True)


class _FolderCatalog(_Catalog):
    """Those of a folder: all change in one transaction of its database."""

    def __init__(self, place: Folder) -> None:
        self.place, self.path = place, place.path

    def listed(self) -> list[_Collection]:
        question = (
            "SELECT c.id, c.name, m.str_value, c.config_json_str, c.schema_str FROM collections c "
            "JOIN databases d ON d.id = c.database_id AND d.name = ? AND d.tenant_id = ? "
            "LEFT JOIN collection_metadata m ON m.collection_id = c.id AND m.key = ?"
        )
        tenant = self.place.tenant
        rows = self.place.ask(question, [tenant["database"], tenant["tenant"], NOTE])
        return [
            _Collection(
                row[0], row[1], row[2], next((function for text in row[3:] for function in _functions(text)), None)
            )
            for row in rows
        ]

    def change(self, collections: Sequence[_Collection]) -> None:
        steps: list[tuple[str, list[str]]] = []
        for collection in collections:
            steps.append(("UPDATE collections SET name = ? WHERE id = ?", [collection.name, collection.id]))
            steps.append(("DELETE FROM collection_metadata WHERE collection_id = ? AND key = ?", [collection.id, NOTE]))
            if collection.note is not None:
                into = "INSERT INTO collection_metadata (collection_id, key, str_value) VALUES (?, ?, ?)"
                steps.append((into, [collection.id, NOTE, collection.note]))
            if collection.function is not None:
                steps.append(self._function_step(collection.id, collection.function))
        # Chroma has a SQLite of its own in this process: what one of the two closes takes the locks of the other away
        done = subprocess.run(  # noqa: S603 - this Python, with the lines above
            [sys.executable, "-I", "-c", _IN_ONE_TRANSACTION],
            input=json.dumps([str(self.path / DATABASE), _WAIT_S, steps]),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            message = (done.stderr.strip().splitlines() or ["it was ended"])[-1]
            raise StoreError(f"{self.place.location}: SQLite refused ({message}); nothing was done: run again")
        reach("moved")

    def _function_step(self, collection: str, function: _Function) -> tuple[str, list[str]]:
        texts = self.place.ask("SELECT config_json_str, schema_str FROM collections WHERE id = ?", [collection])[0]
        changed = []
        for text in texts:
            stored = None if text is None else json.loads(text)
            for place in _places(stored or {}):
                place["embedding_function"] = dict(function)
            changed.append(text if stored is None else json.dumps(stored, separators=(",", ":")))
        return "UPDATE collections SET config_json_str = ?, schema_str = ? WHERE id = ?", [*changed, collection]

    def delete(self, collection: _Collection) -> None:
        with answers(self.place.location, remote=False), self.client() as client:
            client.delete_collection(collection.name)
        shutil.rmtree(beside_collection(self.path, collection.id), ignore_errors=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        with output_lock(self.path):
            yield

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Chroma's own, which writes to the folder."""
        client = persistent(import_client("chromadb", "chroma"), self.path, self.place.tenant)
        try:
            yield client
        finally:
            client.close()


def _catalog_of(place: Place) -> _Catalog:
    if isinstance(place, Server):
        return _ServerCatalog(place)
    assert isinstance(place, Folder)  # noqa: S101 - there is no third
    return _FolderCatalog(place)


class CollectionExchange(Exchange):
    """Two collections of one server or folder.

    Parameters
    ----------
    place
        Where they are.
    old
        The name that one is to take over from the other.
    stores
        Both, where nothing was switched yet.
    """

    def __init__(self, place: Place, old: str, stores: tuple[ChromaStore, ChromaStore] | None = None) -> None:
        self.location = f"{place.location.partition('#')[0]}#{old}"
        self.old, self._stores = old, stores
        self._options = options_text({key: value for key, value in place.tenant.items() if value != TENANT[key]})
        self._catalog = _catalog_of(place)

    @classmethod
    def left(cls, place: Place, name: str) -> CollectionExchange | None:
        """The one that is noted of a name, whether a collection has it or not."""
        made = cls(place, name)
        return None if made._noted() is None else made

    def aside(self, new: str) -> str:
        """The collection beside the new one."""
        return f"{self.location}{ASIDE}{self._options}"

    def record(self) -> Record | None:
        """What the collections have noted."""
        noted = self._noted()
        return None if noted is None else noted["record"]

    def switch(self, record: Record) -> None:
        """Bring the new collection in, if it is elsewhere; then change names, notes and function."""
        with self._catalog.alone():
            noted = self._noted()
            if noted is None:
                noted = self._begin(record)
                try:
                    self.check()
                except LeadMigrateError:
                    if noted["brought"]:
                        self._catalog.delete(_Collection(noted["ids"][1], noted["new"], None))
                    raise
            text = json.dumps(noted, sort_keys=True)
            old, new = noted["ids"]
            names = (f"{self.old}{ASIDE}", self.old)
            self._arrange(_Collection(old, names[0], text), _Collection(new, names[1], text, noted["function"]))

    def rollback(self) -> None:
        """Change them back; a collection that was brought in is deleted."""
        with self._catalog.alone():
            noted = self._noted()
            if noted is None:
                return
            old, new = noted["ids"]
            text = json.dumps(noted, sort_keys=True) if noted["brought"] else None
            former = _Collection(new, noted["new"], text, noted["former"] if noted["function"] else None)
            self._arrange(former, _Collection(old, self.old, None))
            if noted["brought"]:
                self._catalog.delete(former)

    def forget(self) -> None:
        """Delete the collection that stepped aside, then the note."""
        with self._catalog.alone():
            noted, names = self._noted(), self._names()
            if noted is None or names.get(noted["ids"][1]) != self.old:
                raise unfinished(self.location)
            aside = _Collection(noted["ids"][0], f"{self.old}{ASIDE}", None)
            if aside.id in names:
                if names[aside.id] != aside.name:
                    raise unfinished(self.location)
                self._catalog.delete(aside)
                reach("set aside")
            self._arrange(_Collection(noted["ids"][1], self.old, None))

    def _begin(self, record: Record) -> dict[str, Any]:
        assert self._stores is not None  # noqa: S101 - nothing is noted only where `exchange_of` has made it
        stores, catalog = self._stores, self._catalog
        old, new = (str(store.collection.id) for store in stores)
        name, is_elsewhere = stores[1].name, False
        if isinstance(catalog, _FolderCatalog):
            is_elsewhere = not catalog.path.samefile(_path(stores[1]))
            if is_elsewhere:
                name = f"{self.old}-new{ASIDE}"
                new = _bring_in(catalog, stores[1], name)
            for store, collection in zip(stores, (old, new), strict=True):
                keep_beside(store, beside_collection(catalog.path, collection), store.name)
        reach("brought")
        return {
            "old": self.old,
            "new": name,
            "ids": [old, new],
            "brought": is_elsewhere,
            "function": new_function(*stores),
            "former": stores[1].configuration.get("embedding_function"),
            "record": dict(record),
        }

    def _arrange(self, *wanted: _Collection) -> None:
        there = {collection.id: collection for collection in self._catalog.listed()}
        if not {one.id for one in wanted} <= there.keys():
            raise others(self.location)
        changes = [one for one in wanted if (there[one.id].name, there[one.id].note) != (one.name, one.note)]
        self._catalog.change(changes)
        reach("exchanged")

    def _names(self) -> dict[str, str]:
        return {collection.id: collection.name for collection in self._catalog.listed()}

    def _noted(self) -> dict[str, Any] | None:
        for collection in self._catalog.listed():
            if not collection.note:
                continue
            noted = read_noted(collection.note, f"{self.location}, {NOTE!r} of {collection.name}", _SHAPE)
            if noted["old"] == self.old:
                return noted
        return None


class _WholeFolder(FolderExchange):
    """Two folders with one collection each, of which the new one gets the function of its model first."""

    function: _Function | None = None

    def switch(self, record: Record) -> None:
        """See `FolderExchange`."""
        if self.function is not None and self.record() is None:
            catalog = _FolderCatalog(Folder(f"chroma:{self.new}", self.new, {}))
            catalog.change(
                [
                    _Collection(collection.id, collection.name, collection.note, self.function)
                    for collection in catalog.listed()
                ]
            )
        super().switch(record)


def exchange_left(place: Place, name: str) -> Exchange | None:
    """The switch of a name, which no collection may have just then."""
    whole = FolderExchange.at(str(place.path)) if isinstance(place, Folder) else None
    return whole or CollectionExchange.left(place, name)


def exchange_of(old: ChromaStore, new: Store) -> Exchange:
    """See `Switchable.exchange`: whole folders where each has one collection of the same name, else collections."""
    if not isinstance(new, ChromaStore) or isinstance(old.place, Server) != isinstance(new.place, Server):
        raise UsageError(
            f"{new.info.location}: expected a collection of Chroma, in a folder or on a server as the old one, found "
            "another kind of store"
        )
    if isinstance(old.place, Server):
        servers = [(store.place.location.partition("#")[0], store.place.tenant) for store in (old, new)]
        if servers[0] != servers[1]:
            raise UsageError(f"{new.info.location}: expected a collection of {servers[0][0]}, found another server")
    elif _is_alone(old) and _is_alone(new) and old.name == new.name:
        made = _WholeFolder.of(_path(old), _path(new), own=own_files(_path(old)))
        made.function = new_function(old, new)
        return made
    for store in (old, new):
        if (text := (store.collection.metadata or {}).get(NOTE)) is not None:
            raise moved(store.info.location, read_noted(text, store.info.location, _SHAPE)["old"])
    if str(old.collection.id) == str(new.collection.id):
        raise UsageError(f"{new.info.location}: this is the old collection itself; name the new one")
    return CollectionExchange(old.place, old.name, (old, new))


def new_function(old: ChromaStore, new: ChromaStore) -> _Function | None:
    """What the new collection is to note of its embedding function; None where it stays as it is.

    One that it has of the old collection would embed queries with the old model. Where Chroma has no function for the
    new one, it is to name none.
    """
    stored = new.configuration.get("embedding_function") or {}
    if stored.get("type") != "known" or stored != old.configuration.get("embedding_function"):
        return None
    manifest = new.info.manifest
    return _function_of(None if manifest is None else manifest.model, stored)


def _function_of(model: ModelIdentity | None, stored: _Function) -> _Function:
    if model is None or model.query_prefix or model.document_prefix:
        return _NO_FUNCTION
    kind, _, name = model.spec.partition(":")
    if kind == "openai":
        config = dict(stored["config"]) if stored["name"] == "openai" else {"api_key_env_var": "OPENAI_API_KEY"}
        config["model_name"] = name
        config["dimensions"] = model.dim if name.startswith(_REDUCIBLE) else None
        return {"type": "known", "name": "openai", "config": config}
    if kind == "sentence-transformers":
        config = {"model_name": name, "device": "cpu", "normalize_embeddings": model.normalized, "kwargs": {}}
        return {"type": "known", "name": "sentence_transformer", "config": config}
    return _NO_FUNCTION


def _as_chroma_has_it(function: _Function) -> Any:
    return kept_function(function) if function["type"] == "known" else SimpleNamespace(is_legacy=lambda: True)


def _is_alone(store: ChromaStore) -> bool:
    return store.place.names() == [store.name]


def _path(store: ChromaStore) -> Path:
    assert isinstance(store.place, Folder)  # noqa: S101 - servers have none, and are told apart before
    return store.place.path


def _bring_in(catalog: _FolderCatalog, source: ChromaStore, name: str) -> str:
    """Copy a collection of another folder; what a killed run has brought is deleted."""
    gone = [listed for listed in catalog.listed() if listed.name == name]
    with answers(catalog.place.location, remote=False), output_errors(catalog.path), catalog.client() as client:
        for left in gone:
            client.delete_collection(name)
            shutil.rmtree(beside_collection(catalog.path, left.id), ignore_errors=True)
        with same_functions():
            collection = client.create_collection(
                name,
                configuration=configuration_of(source),
                metadata=source.kept_metadata or None,
                embedding_function=None,
            )
        for first in range(0, source.info.count, AT_ONCE):
            ids = source.ids(range(first, min(first + AT_ONCE, source.info.count)))
            for part in source.read(ids, ["embeddings", "documents", "metadatas", "uris"]):
                records = zip(part["ids"], part["documents"], part["metadatas"], part["uris"], strict=True)
                add_records(collection, list(records), part["embeddings"])
        if collection.count() != source.info.count:
            raise StoreError(f"{name}: expected {source.info.count} records once brought in, found others; run again")
        return str(collection.id)


def _functions(text: str | None) -> Iterator[Any]:
    """All embedding functions of vectors that the JSON of a collection notes."""
    return (there["embedding_function"] for there in _places(json.loads(text or "{}")) if "embedding_function" in there)


def _places(stored: Any) -> Iterator[dict[str, Any]]:
    """The parts of a collection's JSON that note the function of its vectors: of a schema, or of a configuration."""
    if "embedding_function" in stored:
        yield stored
    for part in (stored.get("defaults"), *(stored.get("keys") or {}).values()):
        config = (((part or {}).get("float_list") or {}).get("vector_index") or {}).get("config")
        if config is not None:
            yield config
