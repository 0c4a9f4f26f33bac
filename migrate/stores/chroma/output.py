"""Writes new collections of Chroma, into a folder or on a server."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from migrate.errors import StoreError
from migrate.files import output_errors
from migrate.locations import Address
from migrate.stores.base import Store, StoreWriter
from migrate.stores.chroma.client import AT_ONCE, DATABASE, NOTE, TENANT, TOKEN, URI, Server, answers, persistent
from migrate.stores.chroma.store import ChromaStore
from migrate.stores.kept import forget, keep, new_token, sync_tree, token_in
from migrate.stores.outputs import NamedServerOutput
from migrate.stores.records import WaitingWriter, import_client
from migrate.stores.switching import moved, read_noted
from migrate.vectors import Document, Vectors

_PAYLOAD: Final = 8 << 20
_BYTES_PER_NUMBER: Final = 24
_MOST: Final = (1 << 63) - 1
_RESERVED: Final = ("chroma:", "$", "#")


class _Writer(WaitingWriter):
    """Fills a new collection."""

    def fill(self, client: Any, name: str, token: Mapping[str, str]) -> None:
        """Make a collection with all records; `token` goes into its metadata."""
        source = self.source if isinstance(self.source, ChromaStore) else None
        configuration = {"hnsw": {"space": self.source.info.metric}} if source is None else configuration_of(source)
        metadata = {**(source.kept_metadata if source else {}), **token} or None
        with same_functions():
            collection = client.create_collection(
                name, configuration=configuration, metadata=metadata, embedding_function=None
            )
        most = min(client.get_max_batch_size(), max(_PAYLOAD // (self.rows.dim * _BYTES_PER_NUMBER), 1), AT_ONCE)
        for records, vectors in self._copied(source, most) if source else self._made(most):
            add_records(collection, records, vectors)
        self._check(collection)
        if source is not None and source.function is not None:
            self.remarks += (
                f"the collection still names the embedding function {source.function}: queries given to Chroma as "
                "texts are embedded by it; give it vectors of the new model, or name its function",
            )

    def _check(self, collection: Any) -> None:
        """Hold what Chroma has against what it was given."""
        count, written = self.source.info.count, collection.count()
        if written != count:
            raise StoreError(f"{collection.name}: expected {count} records once written, found {written}; run again")

    def _copied(self, source: ChromaStore, at_once: int) -> Iterator[tuple[list[_Record], Vectors]]:
        for first, vectors in self.vectors(at_once):
            ids, records_by_id = source.ids(range(first, first + len(vectors))), {}
            for part in source.read(ids, ["documents", "metadatas", "uris"]):
                records = zip(part["ids"], part["documents"], part["metadatas"], part["uris"], strict=True)
                records_by_id.update({record[0]: record for record in records})
            source._refuse_gone(ids, records_by_id)
            yield [records_by_id[doc_id] for doc_id in ids], vectors

    def _made(self, at_once: int) -> Iterator[tuple[list[_Record], Vectors]]:
        has_texts, changes = self.source.info.has_texts, _Changes()
        for documents, vectors in self.records(at_once):
            yield [changes.record(document, has_text=has_texts) for document in documents], vectors
        self.remarks += changes.remarks()


_Record = tuple[str, str | None, Mapping[str, Any] | None, str | None]
"""Id, document, metadata and URI."""


class _Changes:
    """Turns metadata of other kinds of stores into what Chroma can hold, and remembers what it changed."""

    def __init__(self) -> None:
        self._absent: set[str] = set()
        self._as_json: set[str] = set()

    def record(self, document: Document, *, has_text: bool) -> _Record:
        fields, uri = dict(document.metadata), None
        if isinstance(fields.get(URI), str):
            uri = fields.pop(URI)
        kept = {str(key): self._value(document.id, str(key), value) for key, value in fields.items()}
        kept = {key: value for key, value in kept.items() if value is not None}
        if len(kept) + len([value for value in fields.values() if value is None]) < len(fields):
            raise StoreError(f"document {document.id!r}: expected metadata with different keys, found two alike")
        reserved = next((key for key in kept if not key or key.startswith(_RESERVED)), None)
        if reserved is not None:
            raise StoreError(f"document {document.id!r}: Chroma keeps the key {reserved!r} to itself; rename it")
        if not document.id:
            raise StoreError("expected ids of a character and more, as Chroma takes them, found an empty one")
        return document.id, document.text if has_text else None, kept or None, uri

    def remarks(self) -> tuple[str, ...]:
        """What a person is told."""
        remarks = []
        if self._absent:
            remarks.append(f"Chroma has no null: where they are null, these keys are absent: {_listed(self._absent)}")
        if self._as_json:
            remarks.append(
                "Chroma holds no nested values, whole numbers beyond 64 bits, NaN or infinity: these keys have them as "
                f"JSON texts: {_listed(self._as_json)}"
            )
        return tuple(remarks)

    def _value(self, doc_id: str, key: str, value: Any) -> Any:
        if value is None:
            self._absent.add(key)
            return None
        if _is_plain(value) or (isinstance(value, list | tuple) and _is_plain_list(list(value))):
            return list(value) if isinstance(value, tuple) else value
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise StoreError(
                f"document {doc_id!r}: expected a value under {key!r} that JSON can hold, found another ({error})"
            ) from error
        self._as_json.add(key)
        return text


def _is_plain(value: Any) -> bool:
    """Whether Chroma holds it as it is; of a number that is not finite it drops the key without a word."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | bool) or (isinstance(value, int) and -_MOST <= value <= _MOST)


def _is_plain_list(values: list[Any]) -> bool:
    """Whether Chroma holds it as a list: of one type, and not empty."""
    return bool(values) and all(map(_is_plain, values)) and len({type(value) for value in values}) == 1


def _listed(keys: Iterable[str]) -> str:
    ordered = sorted(keys)
    return ", ".join(ordered[:10]) + (f" and {len(ordered) - 10} more" if len(ordered) > 10 else "")


def add_records(collection: Any, records: Sequence[_Record], vectors: Vectors) -> None:
    """Add records; Chroma takes those at once that have the same parts."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    for place, (_, *parts) in enumerate(records):
        groups.setdefault((parts[0] is not None, bool(parts[1]), parts[2] is not None), []).append(place)
    for (has_text, has_fields, has_uri), places in groups.items():
        ids, texts, fields, uris = zip(*(records[place] for place in places), strict=True)
        collection.add(
            ids=list(ids),
            embeddings=vectors[places],
            documents=list(texts) if has_text else None,
            metadatas=list(fields) if has_fields else None,
            uris=list(uris) if has_uri else None,
        )


class FolderWriter(_Writer):
    """A folder of a persistent client."""

    def __init__(self, source: Store, folder: Path, dim: int, name: str) -> None:
        super().__init__(source, folder, dim)
        self._name = name

    def load(self) -> None:
        """Write the folder anew."""
        module = import_client("chromadb", "chroma")
        _clear(self.folder)
        with output_errors(self.folder), answers(str(self.folder), remote=False):
            client = persistent(module, self.folder, TENANT)
            try:
                self.fill(client, self._name, {})
            finally:
                client.close()
        sync_tree(self.folder)


class _ServerWriter(_Writer):
    """A collection of a server, under a name that nobody uses."""

    def __init__(self, source: Store, folder: Path, dim: int, output: ChromaServerOutput) -> None:
        super().__init__(source, folder, dim)
        self._output = output

    def load(self) -> None:
        """Fill the collection anew."""
        output, place = self._output, self._output.place()
        if output.unfinished in place.names():
            place.client.delete_collection(output.unfinished)
        token = new_token(self.folder)
        with answers(output.location, remote=True):
            self.fill(place.client, output.unfinished, {TOKEN: token})


class ChromaServerOutput(NamedServerOutput):
    """A collection of a server. Two renames make it the final one; what it replaces is removed after them."""

    def __init__(self, location: str, address: Address) -> None:
        super().__init__(location, address)
        self.unfinished, self._old = (f"lead-migrate-{self.digest}-{what}" for what in ("unfinished", "old"))

    def place(self) -> Server:
        """The server."""
        return Server(self.location, self.address)

    def writer(self, source: Store, content: Path, dim: int) -> StoreWriter:
        """A writer of the unfinished collection."""
        return _ServerWriter(source, content, dim, self)

    def made_here(self) -> bool | None:
        """Whether it has a token."""
        place = self.place()
        return None if self.final not in place.names() else self._token(place, self.final) is not None

    def refuse_existing(self, *, force: bool) -> None:
        """As `NamedServerOutput.refuse_existing`; nor is one replaced that was switched."""
        super().refuse_existing(force=force)
        place = self.place()
        if self.final in place.names() and (text := (place.collection(self.final).metadata or {}).get(NOTE)):
            raise moved(self.location, read_noted(text, self.location, {"old": str})["old"])

    def is_published(self, content: Path) -> bool:
        """Whether the collection has its final name, and nothing is left of what it replaces."""
        place = self.place()
        names = place.names()
        if self.final not in names or self._old in names:
            return False
        return not content.is_dir() or token_in(content) == self._token(place, self.final)

    def publish(self, content: Path, *, force: bool) -> None:
        """Rename it."""
        place, token = self.place(), token_in(content)
        keep(content, str(token))
        with answers(self.location, remote=True):
            if self.unfinished in place.names():
                if self.final in place.names():
                    self.refuse_existing(force=force)
                    place.collection(self.final).modify(name=self._old)
                place.collection(self.unfinished).modify(name=self.final)
            elif self.final not in place.names():
                raise StoreError(f"{self.location}: the collection just written is gone; --restart writes it anew")
            if self._token(place, self.final) != token:
                raise StoreError(f"{self.location}: expected the collection just written, found another; run again")
            self._remove(place, self._old)

    def discard(self) -> None:
        """Remove the unfinished collection; one that stepped aside goes back."""
        place = self.place()
        with answers(self.location, remote=True):
            self._remove(place, self.unfinished)
            if self._old in place.names() and self.final not in place.names():
                place.collection(self._old).modify(name=self.final)
            self._remove(place, self._old)

    def _token(self, place: Server, name: str) -> str | None:
        return (place.collection(name).metadata or {}).get(TOKEN)

    def _remove(self, place: Server, name: str) -> None:
        if name in place.names():
            token = self._token(place, name)
            place.client.delete_collection(name)
            forget(token)


def _clear(folder: Path) -> None:
    """Remove what an earlier call has left of Chroma's."""
    with output_errors(folder):
        for path in folder.iterdir():
            if path.name.startswith(DATABASE):
                path.unlink()
            elif path.is_dir() and (path / "header.bin").exists():
                shutil.rmtree(path)


def configuration_of(source: ChromaStore) -> dict[str, Any]:
    """What `create_collection` takes for a collection as `source` is."""
    configuration = {key: dict(source.configuration[key]) for key in ("hnsw", "spann") if source.configuration.get(key)}
    function = source.configuration.get("embedding_function") or {}
    if function.get("type") == "known":
        configuration["embedding_function"] = kept_function(function)
    return configuration


def kept_function(stored: Mapping[str, Any]) -> Any:
    """An embedding function that says what a collection has noted, and embeds nothing."""
    from chromadb.api.types import EmbeddingFunction

    class Kept(EmbeddingFunction[Any]):
        def __init__(self) -> None:
            """Nothing is loaded."""

        def __call__(self, input: Any) -> Any:  # noqa: A002
            raise TypeError("only its name is kept")

        @staticmethod
        def name() -> str:
            return str(stored["name"])

        def get_config(self) -> dict[str, Any]:
            return dict(stored.get("config") or {})

        @staticmethod
        def build_from_config(config: Mapping[str, Any]) -> Any:  # noqa: ARG004
            return Kept()

        def supported_spaces(self) -> list[Any]:
            return ["cosine", "l2", "ip"]

    return Kept()


@contextmanager
def same_functions() -> Iterator[None]:
    """Chroma registers the function of a new collection by its name: the one that it had before has it again."""
    from chromadb.utils.embedding_functions import known_embedding_functions as functions

    before = dict(functions)
    try:
        yield
    finally:
        functions.clear()
        functions.update(before)
