"""Stores of every kind, made, changed and read by the kind's own client alone.

`read` gives the records in the client's own order as (id, fields, vector or None), and facts of the whole: settings,
types. `tools` makes the plain ones; what only some kinds have (half precision, other vectors, rows without a vector)
is made here.
"""

import datetime
import decimal
import json
import shutil
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import faiss_tools
import golden_data
import numpy as np
import sync_tools as tools
from golden_data import OLD_DIM

from migrate.vectors import Document


def flat(records):
    """The records as they are: no field is nested or null."""
    return records


def nested(records):
    """The same with fields of any depth, and null."""
    values = ({"a": {"b": [1, None, {"c": ""}]}}, [], {}, None, [1, 2.5, "3"])
    return {
        name: (Document(d.id, d.text, {**d.metadata, "nested": values[d.metadata["page"] % 5]}), vector)
        for name, (d, vector) in records.items()
    }


def path_of(location):
    """The folder or file of a location."""
    return Path(location.partition("#")[0].rpartition(":")[2])


class Kind:
    """A kind of store.

    `needs` are the modules that have to be installed. `is_exact` tells that vectors are kept to the bit. `tolerance`
    is how far sums of vectors may be from the golden ones on another machine. `shape` gives documents the metadata
    that the kind can hold. `runs` adds the command `run`, for one kind of each family. A variant differs from another
    kind in how its vectors are kept alone: what depends on that is done with it, and no audit, check or refusal.
    """

    needs = ()
    is_exact = True
    tolerance = 1e-3
    shape = staticmethod(nested)
    maker = tools.Folder
    runs = is_variant = False

    def __init__(self, folder, ends):
        self.folder, self.ends = folder, ends
        self.tools = self.maker()
        self.start()

    def start(self):
        """Start what the kind needs."""

    def make(self, documents):
        """The old store; returns where."""
        self.records = self.shape(records_of(documents))
        return self.fill(self.folder / "old", self.records)

    def fill(self, folder, records):
        return self.tools.make(folder, records)

    def change(self, location, documents):
        """Change what differs."""
        after = self.shape(records_of(documents))
        for name, (document, vector) in after.items():
            before = self.records.get(name)
            if before is not None and before[0] == document and np.array_equal(before[1], vector):
                after[name] = before  # what is the same object is not written again
        self.alter(location, self.records, after)
        self.records = after

    def alter(self, location, before, after):
        self.tools.change(location, before, after)

    def new(self, name):
        """Where a new store goes, as `-o` takes it."""
        return self.tools.new(self.folder / name)

    def opened(self, name):
        """How a new store is opened, by migrate."""
        return self.new(name)

    def made(self):
        """Where a store of the kind goes that is made of another kind, or None."""
        return self.new("made") if ":" in self.new("made") else None

    def place(self, location):
        """The folder of files of a store, or None."""
        return path_of(location)

    def left(self):
        """What is left on a server."""
        return {}

    @classmethod
    def lacks(cls):
        """What is not installed here of what the kind needs, or None."""
        return next((f"{module} is not installed" for module in cls.needs if find_spec(module) is None), None)

    def read(self, location):
        """(records, facts)."""
        raise NotImplementedError


def records_of(documents):
    """Documents by id, with their vectors."""
    return {d.id: (d, golden_data.embed(d.text, "old", OLD_DIM)) for d in documents}


def read_jsonl(folder):
    with (folder / "docs.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Faiss(Kind):
    """An index with a docs.jsonl."""

    factory, labels, metric = "Flat", False, "l2"

    def fill(self, folder, records):
        shutil.rmtree(folder, ignore_errors=True)
        count = len(records)
        labels = np.random.default_rng(3).permutation(count) * 7 + 5 if self.labels else None
        vectors = np.array([vector for _, vector in records.values()])
        faiss_tools.save(faiss_tools.build(self.factory, vectors, labels=labels, metric=self.metric), folder)
        self.tools.write_documents(folder, [document for document, _ in records.values()])
        if labels is not None:
            lines = (folder / "docs.jsonl").read_text().splitlines()
            named = (f'{line[:-1]}, "faiss_id": {label}}}' for line, label in zip(lines, labels, strict=True))
            (folder / "docs.jsonl").write_text("\n".join(named) + "\n")
        return str(folder)

    def alter(self, location, before, after):
        self.fill(Path(location), after)

    def read(self, location):
        return read_faiss(Path(location), read_jsonl(Path(location)))


def read_faiss(folder, lines, name="index.faiss"):
    """Documents with the vectors of the labels that they name, or of their row."""
    import faiss

    index = faiss.read_index(str(folder / name))
    facts = {"index": describe_index(index)}
    vectors = vectors_by_label(index)
    found = []
    for row, line in enumerate(lines):
        label = line.get("faiss_id", row)
        found.append((line["id"], {key: value for key, value in line.items() if key != "id"}, vectors[label]))
    return found, facts


def vectors_by_label(index):
    """All vectors of an index, by label."""
    import faiss

    inner = faiss.downcast_index(index)
    if isinstance(inner, faiss.IndexIDMap | faiss.IndexIDMap2):
        rows = vectors_by_label(inner.index)
        labels = faiss.vector_to_array(inner.id_map)
        return {int(label): rows[row] for row, label in enumerate(labels)}
    ivf = faiss.try_extract_index_ivf(inner)
    if ivf is None:
        return dict(enumerate(inner.reconstruct_n(0, inner.ntotal)))
    lists = ivf.invlists
    labels = [faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number)).copy() for number in range(ivf.nlist)]
    ivf.set_direct_map_type(faiss.DirectMap.Hashtable)
    return {int(label): inner.reconstruct(int(label)) for part in labels for label in part}


def describe_index(index):
    """What an index is made of, outermost first."""
    import faiss

    inner = faiss.downcast_index(index)
    facts = {"class": type(inner).__name__, "count": inner.ntotal, "dim": inner.d, "metric": inner.metric_type}
    for name in ("nlist", "nprobe", "by_residual", "code_size"):
        if hasattr(inner, name):
            facts[name] = getattr(inner, name)
    if hasattr(inner, "hnsw"):
        facts["hnsw"] = [inner.hnsw.efConstruction, inner.hnsw.efSearch, inner.hnsw.nb_neighbors(1)]
    for name in ("index", "storage", "quantizer", "base_index", "refine_index"):
        if getattr(inner, name, None) is not None:
            facts[name] = describe_index(getattr(inner, name))
    return facts


class Once(Faiss):
    """What is tried once: a model of TF-IDF, which is saved beside what it made, and commands that ask for no kind."""

    tolerance = 2e-3

    def take(self, recorder):
        """Its own steps."""
        import golden_steps

        golden_steps.take_once(recorder)


class FaissVariant(Faiss):
    is_variant = True


class FaissIp(FaissVariant):
    metric = "ip"


class FaissIvf(FaissVariant):
    factory = "IVF8,Flat"


class FaissIvfPq(FaissVariant):
    factory, is_exact, tolerance = "IVF8,PQ8x4", False, 0.5


class FaissHnsw(FaissVariant):
    factory = "HNSW8,Flat"


class FaissIdMap(FaissVariant):
    factory, labels = "IDMap,Flat", True


class FaissIdMapIvf(FaissVariant):
    factory, labels, is_exact, tolerance = "IDMap2,IVF8,SQ8", True, False, 0.05


class Arrays(Kind):
    maker = tools.Arrays

    def read(self, location):
        folder = Path(location)
        (path,) = (path for path in folder.glob("*.npy") if path.name not in ("confidence.npy", "sources.npy"))
        vectors = np.load(path)
        facts = {"file": path.name, "dtype": str(vectors.dtype), "shape": list(vectors.shape)}
        lines = read_jsonl(folder)
        fields = [(line["id"], {key: value for key, value in line.items() if key != "id"}) for line in lines]
        return [(*pair, vector) for pair, vector in zip(fields, vectors, strict=True)], facts


class ArraysHalf(Arrays):
    """Vectors in half precision."""

    is_exact, is_variant = False, True

    def fill(self, folder, records):
        location = super().fill(folder, records)
        path = folder / "vectors.npy"
        np.save(path, np.load(path).astype(np.float16))
        return location

    def alter(self, location, before, after):
        self.fill(Path(location), after)


class Langchain(Kind):
    """What LangChain's `save_local` writes."""

    needs = ("langchain_community",)
    maker = tools.Langchain
    runs = True

    def read(self, location):
        import langchain_tools

        store = langchain_tools.load(location, 0)
        facts = {"index": describe_index(store.index), "normalize": store._normalize_L2}
        facts["strategy"] = str(store.distance_strategy)
        vectors = vectors_by_label(store.index)
        found = []
        for row, doc_id in store.index_to_docstore_id.items():
            document = store.docstore.search(doc_id)
            fields = {"text": document.page_content, "metadata": document.metadata, "own id": document.id}
            found.append((doc_id, fields, vectors[row]))
        return found, facts


class LangchainIvf(Langchain):
    """LangChain's folder around an index with lists."""

    runs, is_variant = False, True

    def fill(self, folder, records):
        location = super().fill(folder, records)
        vectors = np.array([vector for _, vector in records.values()])
        faiss_tools.save(faiss_tools.build("IVF8,Flat", vectors), folder)
        return location

    def alter(self, location, before, after):
        self.fill(Path(location), after)


class LlamaIndex(Kind):
    """What LlamaIndex persists of a `FaissVectorStore`; nodes are embedded with their metadata."""

    needs = ("llama_index.core",)

    def fill(self, folder, records):
        from llama_index.core.data_structs import IndexDict
        from llama_index.core.schema import MetadataMode, TextNode
        from llama_index.core.storage.docstore import SimpleDocumentStore
        from llama_index.core.storage.index_store import SimpleIndexStore

        shutil.rmtree(folder, ignore_errors=True)
        nodes = [TextNode(id_=d.id, text=d.text, metadata=dict(d.metadata)) for d, _ in records.values()]
        texts = [node.get_content(MetadataMode.EMBED) for node in nodes]
        vectors = np.array([golden_data.embed(text, "old", OLD_DIM) for text in texts])
        faiss_tools.save(faiss_tools.build("Flat", vectors), folder, "default__vector_store.json")
        documents, indexes = SimpleDocumentStore(), SimpleIndexStore()
        documents.add_documents(nodes)
        named = {str(row): node.node_id for row, node in enumerate(nodes)}
        indexes.add_index_struct(IndexDict(index_id="golden", nodes_dict=named))
        documents.persist(str(folder / "docstore.json"))
        indexes.persist(str(folder / "index_store.json"))
        return str(folder)

    def alter(self, location, before, after):
        self.fill(Path(location), after)

    def read(self, location):
        import faiss
        from llama_index.core.storage.docstore import SimpleDocumentStore
        from llama_index.core.storage.index_store import SimpleIndexStore

        folder = Path(location)
        documents = SimpleDocumentStore.from_persist_path(str(folder / "docstore.json")).docs
        (struct,) = SimpleIndexStore.from_persist_path(str(folder / "index_store.json")).index_structs()
        index = faiss.read_index(str(folder / "default__vector_store.json"))
        vectors = vectors_by_label(index)
        found = [
            (node_id, {"text": documents[node_id].text, "metadata": documents[node_id].metadata}, vectors[int(row)])
            for row, node_id in struct.nodes_dict.items()
        ]
        return found, {"index": describe_index(index), "struct": struct.index_id}


def columns_of(document, vector):
    """Columns of many types, nulls among them."""
    row = document.metadata["page"]
    moment = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=row)
    return {
        "id": document.id,
        "text": document.text,
        "page": None if row % 17 == 0 else row,
        "source": document.metadata.get("source"),
        "small": row % 256,
        "score": document.metadata["score"],
        "price": decimal.Decimal(row) / 4,
        "made": None if row % 7 == 0 else moment,
        "raw": bytes([row % 256, 0]),
        "nested": (None, {"a": None, "b": []}, {"a": row, "b": ["", None]})[row % 3],
        "flag": (None, True, False)[row % 3],
        "half": vector[:8].astype(np.float16),
        "key \u00fc": row * 2**40,
        "vector": vector,
    }


def schema_of(vector):
    """Their types, with that of the vectors."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            ("text", pa.string()),
            ("page", pa.int64()),
            ("source", pa.string()),
            ("small", pa.uint8()),
            ("score", pa.float64()),
            ("price", pa.decimal128(20, 4)),
            ("made", pa.timestamp("us", "UTC")),
            ("raw", pa.binary()),
            ("nested", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
            ("flag", pa.bool_()),
            ("half", pa.list_(pa.float16(), 8)),
            ("key \u00fc", pa.int64()),
            pa.field("vector", vector, metadata={"why": "\u00fc"}),
        ],
        metadata={"owner": "\u00fc"},
    )


def arrow_facts(schema):
    """Types, nullability and metadata, without the note of ours."""
    return {
        "columns": {
            one.name: f"{one.type}{'' if one.nullable else ', not null'}{one.metadata or ''}" for one in schema
        },
        "metadata": {k.decode(): v.decode() for k, v in (schema.metadata or {}).items() if k != b"lead-migrate"},
    }


def rows_of(rows):
    """Records of dictionaries with a column `vector`."""
    found = []
    for row in rows:
        vector = row.pop("vector")
        found.append((row.pop("id"), row, None if vector is None else np.array(vector, np.float32)))
    return found


class Parquet(Kind):
    """Three files with columns of many types; two, once something has changed."""

    needs = ("pyarrow",)
    maker = tools.Parquet
    runs = True
    files = 3
    options = "#?distance=l2&vector=vector&text=text"

    def _schema(self):
        import pyarrow as pa

        return schema_of(pa.list_(pa.float32()))

    def fill(self, folder, records):
        import pyarrow as pa
        from pyarrow import parquet

        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        rows = [columns_of(*pair) for pair in records.values()]
        for number in range(self.files):
            own = rows[number * len(rows) // self.files : (number + 1) * len(rows) // self.files]
            table = pa.Table.from_pylist(own, schema=self._schema())
            parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=37)
        return f"parquet:{folder}{self.options}"

    def alter(self, location, before, after):
        self.files = 2
        self.fill(path_of(location), after)

    def read(self, location):
        from pyarrow import parquet

        place = path_of(location)
        paths = [place] if place.is_file() else sorted(place.glob("*.parquet"))
        found, facts = [], {}
        for path in paths:
            table = parquet.read_table(path)
            groups = parquet.ParquetFile(path).metadata
            facts[path.name] = {**arrow_facts(table.schema), "rows": table.num_rows}
            facts[path.name]["compression"] = groups.row_group(0).column(0).compression
            found += rows_of(table.to_pylist())
        return found, facts


class ParquetFile(Parquet):
    """One file, with vectors of half precision."""

    runs, is_exact, is_variant = False, False, True
    options = ""

    def _schema(self):
        import pyarrow as pa

        return schema_of(pa.list_(pa.float16(), OLD_DIM)).remove(11)

    def fill(self, folder, records):
        import pyarrow as pa
        from pyarrow import parquet

        halves = [columns_of(d, vector.astype(np.float16)) for d, vector in records.values()]
        table = pa.Table.from_pylist(halves, schema=self._schema())
        parquet.write_table(table, f"{folder}.parquet")
        return f"{folder}.parquet"

    def alter(self, location, before, after):
        self.fill(Path(location).with_suffix(""), after)

    def new(self, name):
        return str(self.folder / name)


class Lance(Kind):
    """A table of LanceDB with columns of many types, and rows without a vector."""

    needs = ("lancedb",)
    runs = True
    dtype = "float"

    def _rows(self, pairs):
        import pyarrow as pa

        exact = pa.float16() if self.dtype == "halffloat" else pa.float32()
        schema = schema_of(pa.list_(exact, OLD_DIM))
        kind = np.float16 if self.dtype == "halffloat" else np.float32
        rows = [columns_of(document, vector.astype(kind)) for document, vector in pairs]
        return pa.Table.from_pylist(rows, schema=schema)

    def fill(self, folder, records):
        import lancedb
        import pyarrow as pa

        rows = self._rows(records.values())
        empty = [{**rows.slice(0, 1).to_pylist()[0], "id": f"no vector {row}", "vector": None} for row in range(3)]
        rows = pa.concat_tables([rows, pa.Table.from_pylist(empty, schema=rows.schema)])
        table = lancedb.connect(str(folder)).create_table("docs", rows, on_bad_vectors="null")
        table.create_scalar_index("page")
        return f"lancedb:{folder}#docs?vector=vector&text=text"

    def alter(self, location, before, after):
        import lancedb

        names, gone = tools.parts(before, after)
        table = lancedb.connect(str(path_of(location))).open_table("docs")
        old = ", ".join("'" + name.replace("'", "''") + "'" for name in [*gone, *names] if name in before)
        table.delete(f"id in ({old})")
        table.add(self._rows([after[name] for name in names]))

    def new(self, name):
        return f"lancedb:{self.folder / name}#docs"

    def read(self, location):
        import lancedb

        table = lancedb.connect(str(path_of(location))).open_table("docs")
        facts = arrow_facts(table.schema)
        facts["indices"] = {index.name: f"{index.index_type} {index.columns}" for index in table.list_indices()}
        return rows_of(row for batch in table.search().to_batches() for row in batch.to_pylist()), facts


class LanceHalf(Lance):
    """Vectors of half precision."""

    dtype, is_exact, runs, is_variant = "halffloat", False, False, True


class Chroma(Kind):
    """A folder of the persistent client: metadata of each type, none at all, and URIs."""

    needs = ("chromadb",)
    maker = tools.Chroma
    shape = staticmethod(flat)

    def fill(self, folder, records):
        location = f"chroma:{folder}#docs"
        with closing(self.tools.client(location)) as client:
            settings = {"hnsw": {"space": "l2", "ef_construction": 64, "max_neighbors": 8}}
            facts = {"owner": "\u00fc", "number": 2**40, "flag": True}
            client.create_collection("docs", configuration=settings, metadata=facts, embedding_function=None)
        self._put(location, records.values())
        return location

    def _put(self, location, pairs):
        with closing(self.tools.client(location)) as client:
            collection = client.get_collection("docs", embedding_function=None)
            for part in range(3):
                chosen = [pair for pair in pairs if pair[0].metadata["page"] % 3 == part]
                if chosen:
                    collection.upsert(
                        [document.id for document, _ in chosen],
                        embeddings=[vector for _, vector in chosen],
                        documents=[document.text for document, _ in chosen],
                        metadatas=None if part == 2 else [self._fields(document) for document, _ in chosen],
                        uris=[f"file://{number}" for number in range(len(chosen))] if part == 1 else None,
                    )

    def _fields(self, document):
        return {
            **document.metadata,
            "list": [[1, 2], ["a", ""], [0.5], [True, False]][document.metadata["page"] % 4],
        }

    def alter(self, location, before, after):
        names, gone = tools.parts(before, after)
        with closing(self.tools.client(location)) as client:
            collection = client.get_collection("docs", embedding_function=None)
            collection.delete(gone + [name for name in names if name in before])
        self._put(location, [after[name] for name in names])

    def read(self, location):
        with closing(self.tools.client(location)) as client:
            (name,) = [one.name for one in client.list_collections()]
            collection = client.get_collection(name, embedding_function=None)
            facts = {"name": name, "settings": collection._model.configuration_json}
            own = (collection.metadata or {}).items()
            facts["metadata"] = {key: value for key, value in own if not key.startswith("lead-migrate")}
            page = collection.get(include=["embeddings", "documents", "metadatas", "uris"])
        parts = [page[key] for key in ("ids", "embeddings", "documents", "metadatas", "uris")]
        return [
            (doc_id, {"document": text, "uri": uri, "metadata": fields}, vector)
            for doc_id, vector, text, fields, uri in zip(*parts, strict=True)
        ], facts


class Qdrant(Kind):
    """A folder of the local mode: named and sparse vectors, points without one, payload of any depth."""

    needs = ("qdrant_client",)
    maker = tools.Qdrant
    options = "?id=key&text=text&vector=text"

    def client(self, location):
        return closing(self.tools.client(location))

    def name(self, location):
        return location.partition("#")[2].partition("?")[0]

    def fill(self, folder, records):
        return self._create(f"qdrant:{folder}#docs{self.options}", records)

    def _create(self, location, records):
        from qdrant_client import models

        sizes = {"text": OLD_DIM, "other": 8}
        with self.client(location) as client:
            client.create_collection(
                self.name(location),
                {name: models.VectorParams(size=size, distance=models.Distance.EUCLID) for name, size in sizes.items()},
                {"words": models.SparseVectorParams()},
            )
            points = [self._point(*pair) for pair in records.values()]
            for key in ("no vector 0", "no vector 1", "no vector 2"):
                payload = {"text": "no vector", "key": key}
                points.append(models.PointStruct(id=self.tools.key(key), vector={"other": [1] * 8}, payload=payload))
            client.upsert(self.name(location), points)
        return location

    def _point(self, document, vector):
        from qdrant_client import models

        row = document.metadata["page"]
        vectors = {"text": vector.tolist()}
        if row % 3:
            vectors["other"] = vector[:8].tolist()
        if row % 5:
            vectors["words"] = models.SparseVector(indices=[row % 50, 60], values=[0.5, -1.0])
        payload = {**document.metadata, "text": document.text, "key": document.id}
        return models.PointStruct(id=self.tools.key(document.id), vector=vectors, payload=payload)

    def alter(self, location, before, after):
        names, gone = tools.parts(before, after)
        with self.client(location) as client:
            client.upsert(self.name(location), [self._point(*after[name]) for name in names])
            client.delete(self.name(location), [self.tools.key(name) for name in gone])

    def new(self, name):
        return f"qdrant:{self.folder / name}#docs"

    def opened(self, name):
        return f"{self.new(name)}{self.options}"

    def read(self, location):
        with self.client(location) as client:
            facts = {"params": client.get_collection(self.name(location)).config.params.model_dump(mode="json")}
            points, _ = client.scroll(self.name(location), limit=10_000, with_vectors=True)
        found = []
        for point in points:
            vectors = point.vector if isinstance(point.vector, dict) else {"": point.vector}
            main = vectors.pop("text", vectors.pop("", None))
            rest = {f"vector {name}": repr(value) for name, value in vectors.items()}
            payload = {f"payload {name}": value for name, value in point.payload.items()}
            found.append((repr(point.id), {**payload, **rest}, None if main is None else np.array(main, np.float32)))
        return found, facts


class QdrantServer(Qdrant):
    """A collection of a server, which is Qdrant's own engine behind HTTP."""

    needs = ("qdrant_client", "qdrant_edge")

    def start(self):
        from qdrant_server import serving

        place = Path("server").absolute()
        place.mkdir()
        self.url = self.ends.enter_context(serving(place))

    def client(self, location):
        from qdrant_client import QdrantClient

        return closing(QdrantClient(url=self.url, check_compatibility=False))

    def fill(self, folder, records):
        from qdrant_client import models

        self._create(f"qdrant:{self.url}#first{self.options}", records)
        alias = models.CreateAlias(collection_name="first", alias_name="old")
        with self.client("") as client:
            client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
        return f"qdrant:{self.url}#old{self.options}"

    def new(self, name):
        return f"qdrant:{self.url}#{name}"

    def place(self, location):
        return None

    def left(self):
        """Collections and aliases."""
        with self.client("") as client:
            names = {one.name: "collection" for one in client.get_collections().collections}
            return names | {one.alias_name: one.collection_name for one in client.get_aliases().aliases}


class SqliteVec(Kind):
    """A table with columns of each type that the extension has, beside a table of the user's own."""

    needs = ("apsw", "sqlite_vec")
    maker = tools.SqliteVec
    runs = True

    def fill(self, folder, records):
        folder.mkdir()
        location = f"sqlite-vec:{folder}/my.db#items"
        with closing(self.tools.connect(location)) as connection:
            connection.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
            connection.execute("INSERT INTO customers VALUES (1, 'ann')")
            connection.execute("CREATE VIEW names AS SELECT name FROM customers")
            connection.execute(
                f"CREATE VIRTUAL TABLE items USING vec0(id text primary key, tenant integer partition key, "
                f"e float[{OLD_DIM}], small int8[8], number integer, float float, flag boolean, kind text, "
                "+content text, +meta text, +raw blob, +size integer)"
            )
            self._insert(connection, records.values())
        return location

    def _insert(self, connection, pairs):
        rows = []
        for document, vector in pairs:
            fields, row = document.metadata, document.metadata["page"]
            rows.append(
                (
                    document.id,
                    row % 3,
                    vector.tobytes(),
                    bytes(range(row % 100, row % 100 + 8)),
                    row,
                    fields["score"],
                    row % 2,
                    fields.get("source", ""),
                    document.text,
                    json.dumps(dict(fields)),
                    None if row % 7 == 0 else bytes([row % 256, 0]),
                    None if row % 5 == 0 else row,
                )
            )
        with connection:
            connection.executemany("INSERT INTO items VALUES (?, ?, ?, vec_int8(?), ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def alter(self, location, before, after):
        names, gone = tools.parts(before, after)
        with closing(self.tools.connect(location)) as connection:
            for name in [*gone, *(name for name in names if name in before)]:
                connection.execute("DELETE FROM items WHERE id = ?", (name,))
            self._insert(connection, [after[name] for name in names])

    def made(self):
        return f"sqlite-vec:{self.folder / 'made'}#docs"

    def place(self, location):
        found = path_of(location)
        return found if found.is_dir() else found.parent

    def read(self, location):
        (path,) = sorted(self.place(location).glob("*.db"))
        with closing(self.tools.connect(f"sqlite-vec:{path}#")) as connection:
            made = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql NOTNULL").fetchall())
            made = {name: sql for name, sql in made.items() if not name.startswith(("items_", "docs_", "lead_"))}
            (table,) = [name for name, sql in made.items() if "vec0" in sql]
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            rows = [dict(zip(names, row, strict=False)) for row in connection.execute(f"SELECT * FROM {table}")]
            facts = {"made": made}
            if "customers" in made:
                facts["customers"] = repr(connection.execute("SELECT * FROM customers").fetchall())
        column = "e" if "e" in names else "embedding"
        found = []
        for row in rows:
            vector = np.frombuffer(row.pop(column), np.float32)
            found.append((row.pop("id"), row, vector))
        return found, facts


class Sqlite(Kind):
    """An ordinary table beside another one, with an index, a view, a trigger and a row without a vector."""

    maker = tools.Sqlite
    runs = True

    def fill(self, folder, records):
        location = self.tools.make(folder, records)
        with closing(self.tools.connect(location)) as connection:
            connection.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
            connection.execute("INSERT INTO customers VALUES (1, 'ann')")
            connection.execute("CREATE VIEW names AS SELECT name FROM customers")
            connection.execute("CREATE INDEX contents ON items (content)")
            connection.execute(
                "CREATE TRIGGER noted AFTER UPDATE ON items BEGIN INSERT INTO customers (name) VALUES ('x'); END"
            )
            connection.execute("INSERT INTO items VALUES ('no vector', 'x', NULL, NULL)")
        return location

    def made(self):
        return f"sqlite:{self.folder / 'made'}#docs"

    def place(self, location):
        found = path_of(location)
        return found if found.is_dir() else found.parent

    def read(self, location):
        (path,) = sorted(self.place(location).glob("*.db"))
        with closing(self.tools.connect(f"sqlite:{path}#")) as connection:
            made = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql NOTNULL").fetchall())
            facts = {"made": made}
            table = "items" if "items" in made else "docs"
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            rows = [dict(zip(names, row, strict=True)) for row in connection.execute(f"SELECT * FROM {table}")]
            if "customers" in made:
                facts["customers"] = repr(connection.execute("SELECT * FROM customers").fetchall())
        column = "e" if "e" in names else "embedding"
        found = []
        for row in rows:
            vector = row.pop(column)
            found.append((row.pop("id"), row, None if vector is None else np.frombuffer(vector, np.float32)))
        return found, facts


class Pgvector(Kind):
    """A table of PostgreSQL with columns of many types, keys, indexes, and rows without a vector."""

    needs = ("psycopg", "pgserver")
    runs = True

    def start(self):
        """Make a database of its own: what other tests leave on the server is not listed with this."""
        from postgres import connect, server_url

        with connect() as connection:
            connection.execute("DROP DATABASE IF EXISTS golden WITH (FORCE)")
            connection.execute("CREATE DATABASE golden")
        self.url = urlsplit(server_url())._replace(path="/golden").geturl()
        with connect(self.url) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")

    def fill(self, folder, records):
        from postgres import connect

        with connect(self.url) as connection:
            connection.execute(
                "CREATE TABLE golden_old (tenant int NOT NULL, id text PRIMARY KEY, content text, nested jsonb, "
                "number bigint CHECK (number < 1000000), float double precision DEFAULT 0.5, price numeric, "
                "tags text[], flag boolean, made timestamptz, raw bytea, "
                "twice bigint GENERATED ALWAYS AS (number * 2) STORED, "
                f"small vector(8), embedding vector({OLD_DIM}))"
            )
            connection.execute("CREATE INDEX ON golden_old USING hnsw (embedding vector_l2_ops) WITH (m = 12)")
            connection.execute("CREATE INDEX ON golden_old (tenant, number)")
            connection.execute("COMMENT ON TABLE golden_old IS 'of \u00fc'")
        self._put(list(records.values()))
        with connect(self.url) as connection:
            connection.execute(
                "INSERT INTO golden_old (tenant, id) SELECT 0, 'no vector ' || n FROM generate_series(0, 2) n"
            )
        return f"pgvector:{self.url}#golden_old.embedding"

    def _put(self, pairs, gone=()):
        from postgres import as_text, connect
        from psycopg.types.json import Jsonb

        rows = []
        for document, vector in pairs:
            fields, row = document.metadata, document.metadata["page"]
            rows.append(
                (
                    row % 3,
                    document.id,
                    document.text,
                    Jsonb(fields.get("nested")),
                    None if row % 17 == 0 else row,
                    fields["score"],
                    decimal.Decimal(row) / 7,
                    [fields.get("source", ""), "b"] if row % 5 else [],
                    (None, True, False)[row % 3],
                    None if row % 7 == 0 else fields["made"],
                    bytes([row % 256, 0, 255]),
                    as_text(vector[:8]) if row % 4 else None,
                    as_text(vector),
                )
            )
        columns = "tenant, id, content, nested, number, float, price, tags, flag, made, raw, small, embedding"
        with connect(self.url) as connection, connection.cursor() as cursor:
            cursor.execute("DELETE FROM golden_old WHERE id = ANY(%s)", [[*gone, *(row[1] for row in rows)]])
            cursor.executemany(f"INSERT INTO golden_old ({columns}) VALUES ({', '.join(['%s'] * 13)})", rows)

    def alter(self, location, before, after):
        names, gone = tools.parts(before, after)
        self._put([after[name] for name in names], gone)

    def new(self, name):
        return f"pgvector:{self.url}#golden_{name}.embedding"

    def place(self, location):
        return None

    def left(self):
        """All tables."""
        from postgres import connect

        with connect(self.url) as connection:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return {name: True for (name,) in found}

    def read(self, location):
        from postgres import connect

        table = location.rpartition("#")[2].partition(".")[0]
        with connect(self.url) as connection:
            columns = connection.execute(
                "SELECT attname, format_type(atttypid, atttypmod), attnotnull, attgenerated FROM pg_attribute "
                "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
                [table],
            ).fetchall()
            indexes = connection.execute("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = %s", [table])
            facts = {"columns": {name: " ".join(map(str, rest)) for name, *rest in columns}}
            facts["indexes"] = {name: f"{made} ;" for name, made in indexes.fetchall()}
            checks = connection.execute(
                "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass", [table]
            )
            facts["checks"] = {name: f"{made} ;" for name, made in checks.fetchall()}
            facts["comment"] = connection.execute("SELECT obj_description(%s::regclass)", [table]).fetchone()[0]
            cursor = connection.execute(f'SELECT * FROM {table} ORDER BY id COLLATE "C"')
            names = [column.name for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor]
        found = []
        for row in rows:
            vector = row.pop("embedding")
            made = None if vector is None else np.array(json.loads(str(vector)), np.float32)
            row = {key: str(value) if isinstance(value, datetime.datetime) else value for key, value in row.items()}
            found.append((row.pop("id"), row, made))
        return found, facts


KINDS = {
    "once": Once,
    "faiss-flat": Faiss,
    "faiss-ip": FaissIp,
    "faiss-ivf": FaissIvf,
    "faiss-ivfpq": FaissIvfPq,
    "faiss-hnsw": FaissHnsw,
    "faiss-idmap": FaissIdMap,
    "faiss-idmap-ivf": FaissIdMapIvf,
    "arrays": Arrays,
    "arrays-half": ArraysHalf,
    "langchain": Langchain,
    "langchain-ivf": LangchainIvf,
    "llamaindex": LlamaIndex,
    "parquet": Parquet,
    "parquet-file": ParquetFile,
    "lancedb": Lance,
    "lancedb-half": LanceHalf,
    "chroma": Chroma,
    "qdrant": Qdrant,
    "qdrant-server": QdrantServer,
    "sqlite-vec": SqliteVec,
    "sqlite": Sqlite,
    "pgvector": Pgvector,
}
"""Kinds by name."""
