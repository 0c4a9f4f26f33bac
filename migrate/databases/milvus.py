"""Collections of Milvus: `milvus:URL#COLLECTION` on a server, `milvus:FOLDER#COLLECTION` in a folder of milvus-lite.

Milvus-lite lets one process at a time open its folder, and writes to it then: a folder is read from a copy.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from migrate.databases.clients import AliasDriver, AliasNames, ClientRows
from migrate.databases.driver import DatabaseSearch, Page, check_count, clear_folder, described, in_parts, is_lossy
from migrate.databases.located import DatabaseTraits
from migrate.errors import (
    AuthenticationError,
    LeadMigrateError,
    RemoteError,
    StoreError,
    UnsupportedStoreError,
    UsageError,
)
from migrate.locations import secrets_of
from migrate.reading import MalformedError, expect, read_table
from migrate.stores.base import KindSupport, SearchSetting, StoreInfo
from migrate.stores.foreign import WRITE_BY_OLD_MILVUS, for_path
from migrate.stores.kept import sync_tree
from migrate.stores.records import Distance, as_document, choose, choose_text, import_client, metadata_as_json
from migrate.stores.serving import Hits, as_hits
from migrate.vectors import Document, Vectors

_LAYOUT: Final = ("id", "text", "metadata", "vector")
"""Fields of documents of other kinds."""
_REQUEST_BYTES: Final = 8 << 20
"""Bytes of vectors in a request: gRPC takes 64 MiB of Milvus, and texts come on top of them."""
_NUMBER_BYTES: Final = 4
"""Bytes of a number of a vector."""
_LONGEST: Final = 65_535
"""Bytes in a VARCHAR."""
_TIMEOUT_S: Final = 60
"""Seconds for a server to start to answer: ten, the client's default, may pass on a busy machine."""
_GRACE_S: Final = 5
"""Seconds for the calls to a server of milvus-lite that is ended."""
_SAMPLE: Final = 64
"""Records that are looked at for where the texts are, and for the length of vectors."""
_REASON: Final = 200
"""Characters of what Milvus says that a remark has."""
_IDS_PAGES: Final = 10
"""Pages that are read at once where records are ids alone."""
_NPROBE: Final = 8
"""Lists that Milvus looks into where a search names no number."""
_NLIST: Final = 128
"""Lists of an index that was made without a number."""
_EF: Final = 16
"""Candidates of a graph where a search names no number."""
_MOST_EF: Final = 4_096
_OWN: Final = "lead-migrate."
"""The beginning of properties of a collection that are options it is opened with."""
_INDEX_FACTS: Final = frozenset(
    {"field_name", "index_name", "index_type", "total_rows", "indexed_rows", "pending_index_rows", "state"}
)
"""Facts of an index beside those that it was made with."""
_UNREAD: Final = frozenset({"BINARY_VECTOR", "FLOAT16_VECTOR", "BFLOAT16_VECTOR", "INT8_VECTOR"})
"""Types that are refused, as nothing was there to test them with."""


class MilvusDriver(AliasDriver):
    """Collections on a server, or in a folder of milvus-lite."""

    traits = DatabaseTraits(
        kind="milvus",
        support=KindSupport(
            "Milvus",
            ("milvus:http://HOST:19530#COLLECTION", "milvus:FOLDER#COLLECTION"),
            "milvus",
            "ids, scalar, JSON, array and dynamic fields, nulls, defaults, functions, other float and sparse vectors, "
            "partitions, properties, index types and parameters",
            "automatic ids become given ones; binary, half-precision, int8 and nullable vectors are refused; users, "
            "load settings and replicas",
            "bounded on a server; a folder as milvus-lite needs",
        ),
        options=("text", "vector"),
    )
    # Milvus takes no hyphen in a name
    joint = "_"
    lock = "LOCK"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return whether milvus-lite has written there."""
        return path.is_dir() and next(path.glob("collections/*/schema.json"), None) is not None

    def connect(self) -> Any:
        """Return a client of the server; its token is that of the location, or MILVUS_TOKEN."""
        url = self.address.place
        token = self.secret("MILVUS_TOKEN")
        password = secrets_of(self.location).get("password")
        user = urlsplit(url).username
        # the client takes user and password as a token alone, and not in the URL
        if user and password is not None:
            token = f"{user}:{password}"
            url = url.replace(f"{user}@", "", 1)
        return _client().MilvusClient(uri=url, token=token or "", timeout=_TIMEOUT_S)

    def collections(self) -> list[str]:
        """Return the collections."""
        return list(self.client.list_collections())

    def aliases(self) -> dict[str, str]:
        """Return the collection that each alias leads to."""
        # the empty name stands for all collections
        aliases = self.client.list_aliases("")["aliases"]
        return {alias: self.client.describe_alias(alias)["collection_name"] for alias in aliases}

    def explain(self, error: BaseException, message: str) -> LeadMigrateError:
        """Tell what a server refused from a server that failed."""
        if self.is_server and re.search("auth|permission|privilege", message, re.IGNORECASE):
            return AuthenticationError(f"{self.location}: the server refused: {message}; set MILVUS_TOKEN")
        # 2 is a connection that failed, and errors of gRPC itself have no such code
        if self.is_server and getattr(error, "code", None) in (2, None):
            return RemoteError(f"{self.location}: the server of Milvus failed: {message}; check that it runs")
        return super().explain(error, message)

    def open(self) -> MilvusRows:
        """Find the collection or alias."""
        self.name = self.choose_name(self.names())
        self.collection_name = self.collection_of(self.name)
        if not self.is_server:
            _refuse_missing(self.storage)
        return MilvusRows(self)

    @property
    def server_names(self) -> MilvusNames:
        """Collections and aliases."""
        return MilvusNames(self)

    @property
    def storage(self) -> Path:
        """The collection's own folder."""
        return self.folder / "collections" / self.collection_name

    def versions(self) -> dict[str, Any]:
        """Return names, sizes and times of the files, but for indexes, which are made of these."""
        root = self.folder / "collections"
        states: dict[str, Any] = {folder.name: [] for folder in root.iterdir()}
        for path in _files_in(root):
            # a file may have been merged into another meanwhile
            with suppress(FileNotFoundError):
                status = path.stat()
                collection, *names = path.relative_to(root).parts
                if path.suffix != ".idx" and names:
                    states.setdefault(collection, []).append(["/".join(names), status.st_size, status.st_mtime_ns])
        return {name: sorted(files) for name, files in states.items()}

    def files(self) -> Collection[str]:
        """Return what milvus-lite writes; databases beside the default one are not among it."""
        names = ["LOCK", ".database-staging", "aliases.json", "collections", "database_properties.json"]
        databases = self.folder / "databases"
        if not databases.is_dir() or not any(databases.iterdir()):
            names.append(databases.name)
        return names

    def open_folder(self, folder: Path) -> tuple[Any, Callable[[], object]]:
        """Return a client of milvus-lite on a folder, and what ends both. All is in this process."""
        # silences gRPC, so it comes before the server that imports it
        library = _client()
        module = import_client("milvus_lite.adapter.grpc.server", "milvus")
        server, database, port = module.start_server_in_thread(str(folder))
        client = library.MilvusClient(uri=f"http://127.0.0.1:{port}", dedicated=True, timeout=_TIMEOUT_S)
        # the client knows schemas by address and name for as long as the process lives, and ports come again
        import_client("pymilvus.client.cache", "milvus").GlobalCache.schema.invalidate_db(f"127.0.0.1:{port}", "")

        def end() -> None:
            client.close()
            # without a grace it cancels, and gRPC's core writes that on the screen where a connection is still closing
            server.stop(grace=_GRACE_S).wait()
            database.close()

        return client, end

    def require_folder(self) -> None:
        """Make sure that the folder is one of milvus-lite's newer versions."""
        if self.folder.is_file():
            raise StoreError(
                f"{self.location}: this is a file of milvus-lite before 3, which later ones do not read; "
                f"{for_path(WRITE_BY_OLD_MILVUS, self.folder)}"
            )
        super().require_folder()

    def stored(self) -> Iterable[Path]:
        """Return the files of every collection."""
        return [*_files_in(self.folder / "collections"), *self.folder.glob("aliases.json")]

    def write_new(self, name: str, dim: int, source: StoreInfo, pages: Iterator[Page]) -> Iterable[str]:
        """Write records of documents."""
        # milvus-lite would make a graph where it finds faiss, and none elsewhere
        kind = "AUTOINDEX" if self.is_server else "FLAT"
        index = {"field_name": _LAYOUT[3], "index_type": kind, "metric_type": source.metric.upper()}
        batches = ((None, _records_of_documents(self.location, page)) for page in pages)
        settings = _settings_of_documents(dim)
        return _write_records(self, name, dim, settings, partitions=[None], batches=batches, indices=[index])

    def write_copy(self, name: str, dim: int, old: MilvusRows, pages: Iterator[Page]) -> Iterable[str]:
        """Write schema, partitions, records and indexes of another collection."""
        settings, remarks = old.settings(dim)
        batches = map(old.new_rows, pages)
        remarks += _write_records(self, name, dim, settings, old.partitions, batches, old.indices)
        return remarks

    def delete(self, name: str) -> None:
        """Delete a collection and its aliases."""
        collection = self.collection_of(name)
        # Milvus drops no collection that an alias leads to
        for alias in self.client.list_aliases(collection)["aliases"]:
            self.client.drop_alias(alias)
        self.client.drop_collection(collection)

    def lead(self, targets: Mapping[str, str]) -> None:
        """Let aliases lead to collections, each in one step; a run that is killed between two does both again."""
        aliases = self.aliases()
        for alias, collection in targets.items():
            if aliases.get(alias) == collection:
                continue
            lead = self.client.create_alias
            if alias in aliases:
                lead = self.client.alter_alias
            lead(collection_name=collection, alias=alias)


class MilvusRows(ClientRows):
    """The records of a collection, read by one of its fields of dense vectors."""

    driver: MilvusDriver

    def __init__(self, driver: MilvusDriver) -> None:
        super().__init__(driver)
        client = driver.client
        collection = driver.collection_name
        self.description = client.describe_collection(collection)
        self.settings_of = {field["name"]: field for field in self.description["fields"]}
        # types are members of an enumeration, or numbers of types that the client does not know
        self.types = {
            name: str(getattr(field["type"], "name", field["type"])) for name, field in self.settings_of.items()
        }
        properties = self.description.get("properties") or {}
        stored = {option: properties[_OWN + option] for option in driver.traits.options if _OWN + option in properties}
        self._options = {**stored, **driver.address.options}
        self.key_field = next(name for name, field in self.settings_of.items() if field.get("is_primary"))
        self._refuse_fields()
        dense = [name for name, kind in self.types.items() if kind == "FLOAT_VECTOR"]
        remedy = "say #COLLECTION?vector=FIELD for one"
        self.vector = choose(self.location, "vector", dense, self._options.get("vector"), remedy)
        self.dim = int(self.settings_of[self.vector]["params"]["dim"])
        self.indices = [client.describe_index(collection, name) for name in client.list_indexes(collection)]
        indexes = [index for index in self.indices if index["field_name"] == self.vector]
        if not indexes:
            reason = "has no index, which would say how its vectors are compared; create one"
            raise StoreError(f"{self.location}: field {self.vector} {reason}")
        self.index = indexes[0]
        distances = {"COSINE": "cosine", "IP": "ip", "L2": "l2"}
        self.distance = cast("Distance", distances[str(self.index["metric_type"])])
        self.partitions: list[str | None] = [None]
        # Milvus itself chooses the partition where a field is their key, and takes no name of one
        if not any(field.get("is_partition_key") for field in self.settings_of.values()):
            self.partitions = sorted(client.list_partitions(collection))
        # only a collection that is loaded answers
        client.load_collection(collection)

    def describe(self) -> StoreInfo:
        """Describe the collection; a sample shows where texts are."""
        count = _count(self.driver.client, self.name)
        fields = {"output_fields": [*self._plain_fields, self.vector]}
        sample = self.driver.client.query(self.name, limit=_SAMPLE, consistency_level="Strong", **fields)
        texts = dict.fromkeys(name for name, kind in self.types.items() if kind == "VARCHAR")
        # dynamic fields are in no schema
        texts |= dict.fromkeys(key for row in sample for key, value in row.items() if isinstance(value, str))
        texts.pop(self.key_field, None)
        self.text, why = choose_text(self.location, list(texts), self._options.get("text"))
        notes = [why]
        other_vectors = [name for name, kind in self.types.items() if kind.endswith("VECTOR") and name != self.vector]
        if other_vectors:
            notes.append(f"records have other vectors too, which stay as they are: {', '.join(other_vectors)}")
        details = {
            "collection": self.name,
            "distance": self.index["metric_type"],
            "vector": self.vector,
            "text": self.text,
        }
        vectors = [row[self.vector] for row in sample]
        return described(self, str(self.index["index_type"]), count, vectors, details=details, notes=notes)

    @property
    def key(self) -> str:
        """Server or folder, collection and vector."""
        return f"{self.driver.whole_place}#{self.name}?vector={self.vector}"

    def records(self) -> Iterator[Any]:
        """Read all fields but vectors, by partition."""
        for partition in self.partitions:
            for rows in self._batches(self._plain_fields, partition, self.at_once):
                yield partition, rows

    @property
    def _plain_fields(self) -> list[str]:
        """All fields but vectors."""
        return [name for name in self._written_fields if not self.types.get(name, "").endswith("VECTOR")]

    @property
    def _written_fields(self) -> list[str]:
        """All fields but those that functions fill; `$meta` is what Milvus calls the dynamic ones."""
        names = [name for name, field in self.settings_of.items() if not field.get("is_function_output")]
        if self.description.get("enable_dynamic_field"):
            names.append("$meta")
        return names

    def _batches(self, fields: list[str], partition: str | None, at_once: int) -> Iterator[list[dict[str, Any]]]:
        iterator = self.driver.client.query_iterator(
            self.name, batch_size=at_once, output_fields=fields, **_read_settings(partition)
        )
        try:
            while rows := iterator.next():
                yield [_plain(row) for row in rows]
        finally:
            iterator.close()

    def pages(self, *, vectors: bool = True, records: bool = False) -> Iterator[Page]:
        """Read records by partition, in each by id; `raw` is a partition and its rows without the vector."""
        fields = [self.key_field]
        at_once = self.at_once
        if records:
            fields = [name for name in self._written_fields if name != self.vector]
        if vectors:
            fields.append(self.vector)
        if not vectors and not records:
            at_once = _IDS_PAGES * self.at_once
        for partition in self.partitions:
            for rows in self._batches(fields, partition, at_once):
                values = [row.pop(self.vector) for row in rows] if vectors else []
                ids = [str(row[self.key_field]) for row in rows]
                yield Page(ids, values, (partition, rows))

    def _find(self, ids: Sequence[str], fields: list[str], partition: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield records by their ids."""
        keys: list[Any] = list(ids)
        # "07" is no id of a record whose key is the number 7
        if self.types[self.key_field] != "VARCHAR":
            keys = [int(doc_id) for doc_id in ids if re.fullmatch(r"0|-?[1-9][0-9]{0,18}", doc_id)]
        if not keys:
            return iter(())
        chosen = f"{self.key_field} in {_literal(keys)}"
        settings = _read_settings(partition)
        return map(_plain, self.driver.client.query(self.name, filter=chosen, output_fields=fields, **settings))

    def documents(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Return fields as documents."""
        for row in self._find(ids, self._plain_fields):
            yield as_document(self.location, str(row[self.key_field]), row, self.key_field, self.text, _LAYOUT[2])

    def vectors(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Page:
        """Return vectors by ids."""
        rows = self._find(ids, [self.key_field, self.vector])
        vector_of = {str(row[self.key_field]): row[self.vector] for row in rows}
        return Page([*vector_of], [*vector_of.values()])

    def _refuse_fields(self) -> None:
        for name, kind in self.types.items():
            if kind in _UNREAD:
                raise UnsupportedStoreError(
                    f"{self.location}: field {name} is a {kind}, which is not kept; copy the collection without it"
                )
            if kind.endswith("VECTOR") and self.settings_of[name].get("nullable"):
                raise UnsupportedStoreError(
                    f"{self.location}: vectors of field {name} may be null, which is not kept; copy the collection "
                    "with a field of vectors that may not"
                )
        if self.description.get("struct_array_fields"):
            raise UnsupportedStoreError(f"{self.location}: fields of structs are not kept; copy it without them")

    def update(self, new: Mapping[str, Vectors]) -> int:
        """Replace vectors by writing whole records; a folder is in use by this process alone from then on."""
        if self.settings_of[self.key_field].get("auto_id"):
            raise StoreError(
                f"{self.location}: Milvus gives the ids of this collection (auto_id), and would give new ones; copy it "
                "to a collection with ids of your own"
            )
        count = 0
        # Milvus changes no field alone: a record that is written again needs all of them
        with self.driver.turn:
            self.driver.leave_copy()
            self.driver.client.load_collection(self.driver.collection_name)
            for partition in self.partitions:
                for names in in_parts(list(new)):
                    rows = list(self._find(names, self._written_fields, partition))
                    for row in rows:
                        row[self.vector] = new[str(row[self.key_field])].tolist()
                    if rows:
                        self.driver.client.upsert(self.driver.collection_name, rows, partition_name=partition or "")
                    count += len(rows)
        if not self.driver.is_server:
            sync_tree(self.driver.folder / "collections")
        return count

    @property
    def search(self) -> MilvusSearch:
        """The search of the field."""
        return MilvusSearch(self)

    def settings(self, dim: int) -> tuple[dict[str, Any], list[str]]:
        """Return how to create a collection as this one, for vectors of another dimension, with remarks."""
        remarks = []
        fields = []
        for field in self.description["fields"]:
            changed = dict(field)
            # Milvus would give other ids than those that programs know
            if field.get("is_primary"):
                changed["auto_id"] = False
            if field["name"] == self.vector:
                changed["params"] = {**field["params"], "dim": dim}
            fields.append(changed)
        if self.settings_of[self.key_field].get("auto_id"):
            remarks.append("Milvus gave the ids (auto_id); they stay, so new records need ids from your programs")
        # the client describes names as sequences of its own, which it does not take back
        functions = [
            {**function, **{key: list(function[key]) for key in ("input_field_names", "output_field_names")}}
            for function in self.description.get("functions") or []
        ]
        make = _client().CollectionSchema.construct_from_dict
        schema = make({**self.description, "fields": fields, "functions": functions})
        properties = {key: str(value) for key, value in (self.description.get("properties") or {}).items()}
        properties |= {_OWN + option: value for option, value in self._options.items()}
        settings: dict[str, Any] = {"schema": schema, "properties": properties or None}
        # of a partition key
        if None in self.partitions:
            settings["num_partitions"] = self.description["num_partitions"]
        if (shards := self.description.get("num_shards")) and int(shards) > 1:
            settings["num_shards"] = int(shards)
        settings["consistency_level"] = self.description.get("consistency_level_name") or "Bounded"
        return settings, remarks

    def new_rows(self, page: Page) -> tuple[str | None, list[dict[str, Any]]]:
        """Return the records of a page with their new vectors, and their partition."""
        partition, rows = page.raw
        pairs = zip(rows, page.vectors, strict=True)
        return partition, [{**row, self.vector: vector.tolist()} for row, vector in pairs]


class MilvusSearch(DatabaseSearch):
    """The search of a field of vectors."""

    rows: MilvusRows

    def search(self, queries: Vectors, k: int, where: Any) -> list[Hits]:
        """DatabaseSearch; `where` is an expression of Milvus, or a mapping of fields to values."""
        return self._search(queries, k, self._filter(where), {})

    @property
    def setting(self) -> SearchSetting | None:
        """The lists that are looked into, or the candidates of a graph, with the value where a search names none."""
        kind = str(self.rows.index["index_type"]).upper()
        if kind.startswith("IVF"):
            most = int(self.rows.index.get("nlist", _NLIST))
            return SearchSetting("nprobe", min(_NPROBE, most), most, 'search_params={"params": {"nprobe": {}}}')
        if kind.startswith("HNSW"):
            return SearchSetting("ef", _EF, _MOST_EF, 'search_params={"params": {"ef": {}}}')
        return None

    def search_index(self, queries: Vectors, k: int, effort: int | None) -> list[Hits]:
        """DatabaseSearch, with another value of the setting where one is given."""
        setting = self.setting
        if setting is None or effort is None:
            return self.search(queries, k, None)
        # Milvus refuses fewer candidates than answers
        if setting.name == "ef":
            effort = max(effort, k)
        return self._search(queries, k, "", {"params": {setting.name: effort}})

    def _search(self, queries: Vectors, k: int, condition: str, parameters: Mapping[str, Any]) -> list[Hits]:
        rows = self.rows
        with rows.driver.turn:
            hits_of = rows.driver.client.search(
                rows.name,
                data=queries.tolist(),
                anns_field=rows.vector,
                filter=condition,
                limit=k,
                search_params={"metric_type": rows.index["metric_type"], **parameters},
                consistency_level="Strong",
            )
        return [as_hits([*map(self._id_of, hits)], [hit["distance"] for hit in hits]) for hits in hits_of]

    def _id_of(self, hit: Mapping[str, Any]) -> str:
        # clients call the key by its field today, and called it "id" before
        return str(hit["id"] if "id" in hit else hit[self.rows.key_field])

    def _filter(self, where: Any) -> str:
        if where is None or isinstance(where, str):
            return where or ""
        if not isinstance(where, Mapping):
            raise UsageError(
                f'{self.rows.location}: the filter is no expression of Milvus, such as "page < 3", but '
                f"{type(where).__name__}"
            )
        metadata = _LAYOUT[2]
        has_metadata = self.rows.types.get(metadata) == "JSON"
        terms = []
        for name, value in where.items():
            field = name
            if has_metadata and name not in self.rows.types:
                field = f"{metadata}[{_literal(name)}]"
            terms.append(f"{field} == {_literal(value)}")
        return " and ".join(terms)


class MilvusNames(AliasNames):
    """The collections and aliases of a server."""

    def successor(self, ending: str) -> str:
        """Return a location on the same server."""
        # Milvus takes no hyphen in a name
        name = f"{self.driver.name}_{ending}".replace("-", "_")
        return f"{self.driver.server}#{name}"


def _client() -> Any:
    """Import the client library, silent: what fails is told in one line."""
    # a word of its core on a server that ends is one line too many
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    module = import_client("pymilvus", "milvus")
    for name in ("pymilvus", "milvus_lite", "grpc._server"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return module


def _settings_of_documents(dim: int) -> dict[str, Any]:
    module = _client()
    schema = module.MilvusClient.create_schema()
    kinds = module.DataType
    schema.add_field(_LAYOUT[0], kinds.VARCHAR, is_primary=True, max_length=_LONGEST)
    schema.add_field(_LAYOUT[1], kinds.VARCHAR, max_length=_LONGEST)
    schema.add_field(_LAYOUT[2], kinds.JSON)
    schema.add_field(_LAYOUT[3], kinds.FLOAT_VECTOR, dim=dim)
    return {"schema": schema}


def _records_of_documents(location: str, page: Page) -> list[dict[str, Any]]:
    """Return the documents of a page as records of this tool's own layout."""
    records = []
    for document, vector in zip(page.documents, page.vectors, strict=True):
        size = len(document.text.encode(errors="surrogatepass"))
        if size > _LONGEST:
            raise StoreError(
                f"{location}: the text of document {document.id!r} has {size:,} bytes, and Milvus holds "
                f"{_LONGEST:,}; split it, or choose another kind of store"
            )
        values = (document.id, document.text, json.loads(metadata_as_json(document)), vector.tolist())
        records.append(dict(zip(_LAYOUT, values, strict=True)))
    return records


def _write_records(
    driver: MilvusDriver,
    name: str,
    dim: int,
    settings: Mapping[str, Any],
    partitions: Iterable[str | None],
    batches: Iterable[tuple[str | None, list[dict[str, Any]]]],
    indices: Iterable[Mapping[str, Any]],
) -> list[str]:
    """Make a collection anew, with records by partition and indexes; return remarks."""
    clear_folder(driver)
    at_once = max(_REQUEST_BYTES // (_NUMBER_BYTES * dim), 1)
    written = 0
    remarks: list[str] = []
    with driver.written_client() as client:
        if client.has_collection(name):
            client.drop_collection(name)
        client.create_collection(name, **settings)
        for partition in partitions:
            if partition and not client.has_partition(name, partition):
                client.create_partition(name, partition)
        for partition, rows in batches:
            for chunk in in_parts(rows, at_once):
                client.insert(name, chunk, partition_name=partition or "")
            written += len(rows)
        client.flush(name)
        # over all records at once, where one that is there before them is built a part at a time
        for index in indices:
            remarks += _index_again(client, name, index)
        # only a collection that is loaded answers
        client.load_collection(name)
        count = _count(client, name)
    check_count(driver.location, written, count)
    return remarks


def _index_again(client: Any, name: str, index: Mapping[str, Any]) -> list[str]:
    """Make an index as another collection has it; if that fails for vectors, one of Milvus's own choice.

    Returns remarks.
    """
    kind = str(index["index_type"])
    field = index["field_name"]
    config = {key: value for key, value in index.items() if key not in _INDEX_FACTS}
    remarks: list[str] = []
    for attempt, settings in ((kind, config), ("AUTOINDEX", {"metric_type": config.get("metric_type")})):
        indices = client.prepare_index_params()
        indices.add_index(field, index_type=attempt, index_name=index.get("index_name", ""), params=settings)
        try:
            client.create_index(name, indices)
        except Exception as error:
            if attempt == "AUTOINDEX":
                raise
            reason = " ".join(str(error).split())[:_REASON]
            remarks.append(f"the index {kind} of field {field} is now one of Milvus's own choice: {reason}")
            continue
        if is_lossy(attempt):
            remarks.append(f"the index {kind} was rebuilt and is lossy: check its recall against exact search")
        break
    return remarks


def _refuse_missing(collection: Path) -> None:
    """Refuse a collection's folder without one of the files that it lists: milvus-lite leaves out their rows."""
    try:
        shape = {"partitions": dict[str, Any]}
        partitions = expect(read_table(collection / "manifest.json"), shape)["partitions"]
        listed = [expect(files, {"data_files": list[str], "delta_files": list[str]}) for files in partitions.values()]
    # milvus-lite has its own way with those
    except (OSError, MalformedError):
        return
    for partition, files in zip(partitions, listed, strict=True):
        for name in (*files["data_files"], *files["delta_files"]):
            path = collection / "partitions" / partition / name
            if not path.is_file():
                raise StoreError(f"{path}: this file of the collection is missing; copy the whole folder again")


def _read_settings(partition: str | None) -> dict[str, Any]:
    """Return how a partition is read, or all of them; by itself, Milvus leaves out what was written just before."""
    return {"partition_names": [partition] if partition else None, "consistency_level": "Strong"}


def _count(client: Any, name: str) -> int:
    rows = client.query(name, filter="", output_fields=["count(*)"], consistency_level="Strong")
    return int(rows[0]["count(*)"])


def _files_in(folder: Path) -> list[Path]:
    return [Path(parent) / name for parent, _, names in os.walk(folder) for name in names]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with lists in the place of the client's own sequences."""
    return {
        name: value if value is None or isinstance(value, str | int | float | dict | list) else list(value)
        for name, value in row.items()
    }


def _literal(value: Any) -> str:
    """Return a value as it stands in an expression of Milvus."""
    return json.dumps(value, ensure_ascii=False)
