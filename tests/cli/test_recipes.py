"""The recipes: each command of the page, as it stands there, on stores as the applications write them.

Their schemas and calls are those of Open WebUI 0.6, AnythingLLM 1.8, llama-index-vector-stores-postgres 0.7,
langchain-postgres 0.0.19 (LibreChat), LightRAG 1.5, GraphRAG 3.3, PrivateGPT 1.0 with
llama-index-vector-stores-qdrant 0.10, Flowise 3.1, Dify 1.16, mem0 2.2, n8n's nodes 2.41, and what @langchain/community
1.1 asks for on Supabase. The model is a local server's.
"""

import base64
import json
import re
import shlex
import uuid
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from openai_server import KEY

from migrate.cli.main import run
from migrate.collections.members import find_collections
from migrate.stores import open_store

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
SIZES = {"handbook": 60, "minutes": 40, "tickets": 25}
DIM, NEW_DIM = 16, 1536
COUNT = 90
"""Documents of a store that is moved by itself: too few for `fit` to load the local model, which takes seconds."""


def commands_of(title):
    """Return the commands below a heading, as words."""
    section = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    blocks = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))
    return [shlex.split(line) for line in blocks.replace("\\\n", " ").splitlines() if line.startswith("lead-migrate")]


def program_of(title):
    """Return the program below a heading."""
    section = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return section.partition("```python\n")[2].partition("```")[0]


def text_of(name, row):
    return f"text {row} of the {name}, about {name} {row % 9}"


def vectors_of(name, count, dim=DIM):
    vectors = np.random.default_rng(len(name)).normal(size=(count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def cook(server, monkeypatch):
    """Run the commands of a recipe; `url` is a database in the place of the page's."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    Path("queries.txt").write_text("".join(f"what is {row} about {name}?\n" for name in SIZES for row in range(4)))

    def follow(title, url="", expected=("fit", "translate", "audit"), sizes=SIZES):
        commands = commands_of(title)
        is_many = commands[0][1] == "collections"
        assert tuple(words[1 + is_many] for words in commands) == expected
        for _, *words in commands:
            words = [word.replace("postgresql://ann@db/app", url) for word in words]
            assert run(words) in ((0, 1, 3) if "audit" in words else (0,)), words
        if is_many:
            assert all(name in Path("reports/report.html").read_text() for name in sizes)

    return follow


def test_each_recipe_is_tested():
    titles = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
    tested = re.findall(r'(?:cook|commands_of)\("(.*?)"', Path(__file__).read_text())
    assert [title for title in titles if commands_of(title) and title not in tested] == []


# Open WebUI


def open_webui(folder):
    """Return the client with which Open WebUI opens its folder."""
    chromadb = pytest.importorskip("chromadb")
    settings = chromadb.config.Settings(allow_reset=True, anonymized_telemetry=False)
    tenant = {"tenant": "default_tenant", "database": "default_database"}
    return chromadb.PersistentClient(path=str(folder), settings=settings, **tenant)


def upload(client, collection_name, name, count):
    """Write a collection as Open WebUI does for a file, and for a knowledge base with that file."""
    config = json.dumps({"engine": "", "model": "sentence-transformers/all-MiniLM-L6-v2"})
    collection = client.get_or_create_collection(name=collection_name, metadata={"hnsw:space": "cosine"})
    metadata = [{"name": f"{name}.md", "source": f"{name}.md", "file_id": collection_name, "start_index": row,
                 "embedding_config": config} for row in range(count)]  # fmt: skip
    ids = [str(uuid.uuid5(uuid.NAMESPACE_URL, f"{collection_name} {row}")) for row in range(count)]
    texts = [text_of(name, row) for row in range(count)]
    collection.add(ids, vectors_of(name, count).tolist(), metadata, texts)


def content_of(client):
    """Return what the collections hold, without the vectors, and how long these are."""
    found = {}
    for listed in client.list_collections():
        collection = client.get_collection(listed.name, embedding_function=None)
        everything = collection.get(include=["documents", "metadatas", "embeddings"])
        rows = zip(everything["ids"], everything["documents"], everything["metadatas"], strict=True)
        found[listed.name] = sorted(rows, key=lambda row: row[0]), np.shape(everything["embeddings"])[1:]
    return found


def test_open_webui(cook):
    names = [f"file-{uuid.UUID(int=number)}" for number in range(2)] + [str(uuid.UUID(int=77))]
    sizes = SIZES.values()
    with closing(open_webui("vector_db")) as client:
        for number, (name, count) in enumerate(zip(names, sizes, strict=True)):
            upload(client, name, f"file {number}", count)
        for name in (f"user-memory-{uuid.UUID(int=5)}", f"user-memory-{uuid.UUID(int=6)}"):
            client.get_or_create_collection(name=name, metadata={"hnsw:space": "cosine"})
        before = content_of(client)
    assert len(before) == 5
    cook("Open WebUI", expected=("fit", "translate", "audit", "switch"), sizes=names)
    with closing(open_webui("vector_db")) as client:
        after = content_of(client)
        assert {name: rows for name, (rows, _) in after.items()} == {name: rows for name, (rows, _) in before.items()}
        assert {shape for rows, shape in after.values() if rows} == {(NEW_DIM,)}
        query = client.get_collection(names[0]).query(query_embeddings=[[1.0] * NEW_DIM], n_results=3)
        assert len(query["ids"][0]) == 3
        upload_new = client.get_or_create_collection(name=f"user-memory-{uuid.UUID(int=5)}")
        upload_new.add(["new"], [[1.0] * NEW_DIM], documents=["a memory"])


# AnythingLLM


def test_anythingllm(cook):
    lancedb = pytest.importorskip("lancedb")
    database = lancedb.connect("lancedb")
    for name, count in SIZES.items():
        rows = [{"id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {row}")), "vector": vector,
                 "url": f"file:///{name}.md", "title": f"{name}.md", "docAuthor": "", "description": "",
                 "docSource": "", "chunkSource": "localfile://", "published": "", "wordCount": 900.0,
                 "token_count_estimate": 1200.0, "text": text_of(name, row)}
                for row, vector in enumerate(vectors_of(name, count))]  # fmt: skip
        database.create_table(name, rows)
    before = {name: database.open_table(name).to_arrow().drop_columns("vector") for name in SIZES}
    cook("AnythingLLM", expected=("fit", "translate", "audit", "switch"))
    database = lancedb.connect("lancedb")
    assert sorted(path.stem for path in Path("lancedb").glob("*.lance")) == sorted(SIZES)
    for name, count in SIZES.items():
        table = database.open_table(name)
        assert table.to_arrow().drop_columns("vector").equals(before[name])
        found = table.search(np.ones(NEW_DIM)).distance_type("cosine").limit(4).to_list()
        assert (table.count_rows(), len(found)) == (count, 4)


# Files of nano-vectordb


def test_lightrag(cook):
    nano = pytest.importorskip("nano_vectordb")
    Path("rag_storage").mkdir()
    names = {"chunks": "handbook", "entities": "minutes", "relationships": "tickets"}
    for kind, name in names.items():
        client = nano.NanoVectorDB(DIM, storage_file=f"rag_storage/vdb_{kind}.json")
        client.upsert([
            {"__id__": f"{kind}-{row}", "__created_at__": 1_760_000_000, "content": text_of(name, row),
             "vector": packed(vector), "file_path": f"{name}.md", "__vector__": vector}
            for row, vector in enumerate(vectors_of(name, SIZES[name]))
        ])  # fmt: skip
        client.save()
    cook("LightRAG", sizes=[f"vdb_{kind}" for kind in names])
    for kind, name in names.items():
        (path,) = Path("new").glob(f"*/vdb_{kind}.json")
        client = nano.NanoVectorDB(NEW_DIM, storage_file=str(path))
        assert len(client) == SIZES[name]
        (found,) = client.query(np.ones(NEW_DIM, np.float32), top_k=1)
        assert found["file_path"] == f"{name}.md"
        assert len(base64.b64decode(found["vector"])) and found["vector"] != packed(vectors_of(name, 1)[0])


def packed(vector):
    """A vector as LightRAG keeps it in a record."""
    return base64.b64encode(zlib.compress(vector.astype(np.float16).tobytes())).decode()


# GraphRAG


def make_graphrag(database, name, ids, vectors):
    """Write a table as GraphRAG does: made with one row and its index, which is then deleted, and filled."""
    import pyarrow as pa

    def rows(ids, vectors):
        columns = {"id": pa.array(ids, pa.string()),
                   "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), DIM),
                   "create_date": pa.array(["2026-08-01T10:00:00"] * len(ids)),
                   "update_date": pa.array([None] * len(ids), pa.string())}  # fmt: skip
        return pa.table(columns)

    dummy = rows(["__DUMMY__"], np.zeros((1, DIM), np.float32))
    table = database.create_table(name, dummy, mode="overwrite", schema=dummy.schema)
    table.create_index(vector_column_name="vector", index_type="IVF_FLAT")
    table.delete("id = '__DUMMY__'")
    table.add(rows(ids, vectors))


@pytest.mark.filterwarnings("ignore:The create_index")
def test_graphrag(cook):
    lancedb = pytest.importorskip("lancedb")
    pandas = pytest.importorskip("pandas")
    Path("output").mkdir()
    database = lancedb.connect("output/lancedb")
    tables = {"entity_description": "minutes", "community_full_content": "tickets", "text_unit_text": "handbook"}
    ids = {name: [str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {row}")) for row in range(SIZES[name])] for name in SIZES}
    for table, name in tables.items():
        make_graphrag(database, table, ids[name], vectors_of(name, SIZES[name]))
    texts = {name: [text_of(name, row) for row in range(count)] for name, count in SIZES.items()}
    described = [*texts["minutes"][1:], None]
    frames = {"entities": {"id": ids["minutes"], "title": texts["minutes"], "description": described},
              "community_reports": {"id": ids["tickets"], "full_content": texts["tickets"]},
              "text_units": {"id": ids["handbook"][::-1], "text": texts["handbook"][::-1]}}  # fmt: skip
    for file, columns in frames.items():
        pandas.DataFrame(columns).to_parquet(f"output/{file}.parquet")
    before = {table: database.open_table(table).to_arrow().drop_columns("vector") for table in tables}
    exec(program_of("GraphRAG"), {})
    cook("GraphRAG", expected=("fit", "translate", "audit", "switch"), sizes=tables)
    database = lancedb.connect("with_texts")
    for table, name in tables.items():
        moved = database.open_table(table)
        assert moved.to_arrow().select(before[table].column_names).equals(before[table])
        found = moved.search(np.ones(NEW_DIM, np.float32), vector_column_name="vector").limit(3).to_list()
        assert len(found) == 3
        text = dict(zip(ids[name], texts[name], strict=True))
        whole = [row["text"].partition(":")[0] == text[row["id"]] for row in moved.to_arrow().to_pylist()]
        assert all(whole)


# Qdrant


def test_privategpt(cook):
    schema = pytest.importorskip("llama_index.core.schema")
    qdrant = pytest.importorskip("qdrant_client")
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

    models = qdrant.models
    parent = schema.RelatedNodeInfo(node_id=str(uuid.UUID(int=7)))
    nodes = [
        schema.TextNode(
            id_=str(uuid.uuid5(uuid.NAMESPACE_URL, f"node {row}")),
            text=text_of("handbook", row),
            metadata={"collection": "ann", "artifact_id": f"a{row % 5}", "file_name": f"{row % 5}.md", "hash": "0"},
            excluded_embed_metadata_keys=["collection", "artifact_id", "hash"],
            relationships={schema.NodeRelationship.SOURCE: parent},
        )
        for row in range(40)
    ]
    with closing(qdrant.QdrantClient(path="local_data/qdrant")) as client:
        client.create_collection("zgptvector", on_disk_payload=True,
            vectors_config=models.VectorParams(size=DIM, distance=models.Distance.COSINE, on_disk=True),
            hnsw_config=models.HnswConfigDiff(m=0, payload_m=16, on_disk=True))  # fmt: skip
        points = [
            models.PointStruct(id=node.node_id, payload=node_to_metadata_dict(node), vector={"": vector.tolist()})
            for node, vector in zip(nodes, vectors_of("handbook", len(nodes)), strict=True)
        ]
        client.upload_points("zgptvector", points, batch_size=64, wait=True)
    texts = {document.id: document.text for document in open_store("qdrant:local_data/qdrant#zgptvector").documents()}
    assert texts == {node.node_id: node.get_content(schema.MetadataMode.EMBED) for node in nodes}
    cook("PrivateGPT", expected=("fit", "translate", "audit", "switch"))
    with closing(qdrant.QdrantClient(path="local_data/qdrant")) as client:
        only = models.Filter(must=[models.FieldCondition(key="artifact_id", match=models.MatchValue(value="a3"))])
        found = client.query_points("zgptvector", [1.0] * NEW_DIM, query_filter=only, limit=4).points
        read = {node.node_id: node for node in (metadata_dict_to_node(point.payload) for point in found)}
        assert len(read) == 4 and {node.metadata["file_name"] for node in read.values()} == {"3.md"}
        assert client.get_collection("zgptvector").config.params.vectors.size == NEW_DIM


# PostgreSQL

LIGHTRAG = """
CREATE TABLE LIGHTRAG_VDB_{name} (
    id VARCHAR(255), workspace VARCHAR(255), {columns} content TEXT, content_vector VECTOR({dim}), {last}
    CONSTRAINT LIGHTRAG_VDB_{name}_PK PRIMARY KEY (workspace, id)
);
CREATE INDEX idx_lightrag_vdb_{name}_id ON LIGHTRAG_VDB_{name}(id);
CREATE INDEX idx_lightrag_vdb_{name}_workspace_id ON LIGHTRAG_VDB_{name}(workspace, id);
CREATE INDEX idx_lightrag_vdb_{name}_hnsw_cosine ON LIGHTRAG_VDB_{name} USING hnsw (content_vector vector_cosine_ops)
    WITH (m = 16, ef_construction = 200);
"""
TIMES = "create_time TIMESTAMP(0) DEFAULT CURRENT_TIMESTAMP, update_time TIMESTAMP(0) DEFAULT CURRENT_TIMESTAMP,"
LIGHTRAG_COLUMNS = {
    "chunks": (
        "full_doc_id VARCHAR(256), chunk_order_index INTEGER, tokens INTEGER,",
        f"file_path TEXT NULL, {TIMES}",
    ),
    "entity": ("entity_name VARCHAR(512),", f"{TIMES} chunk_ids VARCHAR(255)[] NULL, file_path TEXT NULL,"),
    "relation": (
        "source_id VARCHAR(512), target_id VARCHAR(512),",
        f"{TIMES} chunk_ids VARCHAR(255)[] NULL, file_path TEXT NULL,",
    ),
}


def test_lightrag_on_postgresql(cook, database):
    url, connection = database
    kinds = dict(zip(LIGHTRAG_COLUMNS, SIZES, strict=True))
    for kind, name in kinds.items():
        table = f"{kind}_all_minilm_l6_v2_384d"
        columns, last = LIGHTRAG_COLUMNS[kind]
        connection.execute(LIGHTRAG.format(name=table, columns=columns, last=last, dim=384))
        insert = f"INSERT INTO lightrag_vdb_{table} (id, workspace, content, content_vector) VALUES (%s, %s, %s, %s)"
        for workspace in ("default", "sales"):
            for row, vector in enumerate(vectors_of(name, SIZES[name], 384)):
                values = (f"{kind}-{row}", workspace, f"{text_of(name, row)} ({workspace})", as_text(vector))
                connection.execute(insert, values)
    cook("LightRAG on PostgreSQL", url, sizes=[f"lightrag_vdb_{kind}_all_minilm" for kind in kinds])
    # The same for the other workspace, into tables of its own
    own = {"=default": "=sales", "stitches": "others", "text_embedding_3_small_1536d": "sales"}
    for _, *words in commands_of("LightRAG on PostgreSQL")[:2]:
        for old, new in {**own, "postgresql://ann@db/app": url}.items():
            words = [word if word.startswith("openai:") else word.replace(old, new) for word in words]
        assert run(words) == 0, words
    (insert,) = [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    INSERT INTO lightrag")]
    for kind in kinds:
        assert connection.execute(insert.replace("_chunks_", f"_{kind}_")).rowcount == SIZES[kinds[kind]]
    near = ("SELECT id, content, file_path FROM {} WHERE workspace = %s AND content_vector <=> %s::vector < 2 "
            "ORDER BY content_vector <=> %s::vector LIMIT 4")  # fmt: skip
    vector = as_text(np.ones(NEW_DIM))
    for table in (f"lightrag_vdb_{kind}_text_embedding_3_small_{NEW_DIM}d" for kind in kinds):
        for workspace in ("default", "sales"):
            found = connection.execute(near.format(table), (workspace, vector, vector)).fetchall()
            assert len(found) == 4 and all(content.endswith(f"({workspace})") for _, content, _ in found)


LLAMAINDEX = """
CREATE TABLE data_{name} (
    id bigserial PRIMARY KEY, text varchar NOT NULL, metadata_ json, node_id varchar, embedding vector({dim})
);
CREATE INDEX {name}_idx_1 ON data_{name} ((metadata_ ->> 'ref_doc_id'));
CREATE INDEX data_{name}_embedding_idx ON data_{name} USING hnsw (embedding vector_cosine_ops)
    WITH (m = 16, ef_construction = 64);
"""


@pytest.fixture
def database():
    """A database with nothing in it, and a connection."""
    psycopg = pytest.importorskip("psycopg")
    from postgres import server_url

    name = f"app_{uuid.uuid4().hex[:8]}"
    with closing(psycopg.connect(server_url(), autocommit=True)) as server:
        server.execute(f"CREATE DATABASE {name}")
    url = re.sub(r"/postgres(?=\?|$)", f"/{name}", server_url())
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        yield url, connection


def as_text(vector):
    return "[" + ",".join(map(str, vector.tolist())) + "]"


def test_llamaindex_pgvectorstore(cook, database):
    url, connection = database
    for name, count in SIZES.items():
        connection.execute(LLAMAINDEX.format(name=name, dim=DIM))
        for row, vector in enumerate(vectors_of(name, count)):
            node = str(uuid.uuid4())
            metadata = {"page": row, "_node_type": "TextNode", "ref_doc_id": "None",
                        "_node_content": json.dumps({"id_": node, "text": "", "class_name": "TextNode"})}  # fmt: skip
            record = text_of(name, row), json.dumps(metadata), node, as_text(vector)
            insert = f"INSERT INTO data_{name} (text, metadata_, node_id, embedding) VALUES (%s, %s, %s, %s)"
            connection.execute(insert, record)
    cook("LlamaIndex PGVectorStore", url)
    for name in SIZES:
        columns = "id, text, metadata_::text, node_id"
        old, new = (connection.execute(f"SELECT {columns} FROM {table} ORDER BY id").fetchall()
                    for table in (f"data_{name}", f"data_{name}_new"))  # fmt: skip
        assert old == new
        near = f"SELECT text FROM data_{name}_new ORDER BY embedding <=> %s::vector LIMIT 3"
        assert len(connection.execute(near, [as_text(np.ones(NEW_DIM))]).fetchall()) == 3
    one = open_store(f"pgvector:{url}#data_minutes_new")
    assert one.info.manifest.counts["documents"] == one.info.count == SIZES["minutes"]
    source = find_collections(f"pgvector:{url}#data_*")
    assert [member.name for member in source.members] == sorted(f"data_{name}" for name in SIZES)
    assert set(source.left_out.values()) == {"made of an older store by lead-migrate"}


LANGCHAIN = """
CREATE TABLE langchain_pg_collection (uuid uuid PRIMARY KEY, name varchar UNIQUE NOT NULL, cmetadata json);
CREATE TABLE langchain_pg_embedding (
    id varchar PRIMARY KEY, collection_id uuid REFERENCES langchain_pg_collection (uuid) ON DELETE CASCADE,
    embedding vector, document varchar, cmetadata jsonb
);
CREATE INDEX ix_cmetadata_gin ON langchain_pg_embedding USING gin (cmetadata jsonb_path_ops);
"""


def test_librechat(cook, database):
    url, connection = database
    connection.execute(LANGCHAIN)
    collection = str(uuid.UUID(int=1))
    connection.execute("INSERT INTO langchain_pg_collection VALUES (%s, 'testcollection', NULL)", (collection,))
    for row, vector in enumerate(vectors_of("files", COUNT)):
        metadata = {"file_id": f"file-{row % 5}", "user_id": "ann", "digest": f"{row:032x}", "page": row}
        values = (f"chunk-{row}", collection, as_text(vector), text_of("handbook", row), json.dumps(metadata))
        connection.execute("INSERT INTO langchain_pg_embedding VALUES (%s, %s, %s, %s, %s)", values)
    cook("LibreChat", url)
    (update,) = [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    UPDATE langchain")]
    assert connection.execute(update).rowcount == COUNT
    near = ("SELECT e.document, e.cmetadata FROM langchain_pg_embedding e JOIN langchain_pg_collection c "
            "ON e.collection_id = c.uuid WHERE c.name = 'testcollection' AND e.cmetadata ->> 'file_id' = 'file-2' "
            "ORDER BY embedding <=> %s::vector LIMIT 4")  # fmt: skip
    found = connection.execute(near, (as_text(np.ones(NEW_DIM)),)).fetchall()
    assert len(found) == 4 and {row["page"] % 5 for _, row in found} == {2}


SUPABASE = """
CREATE TABLE documents (id bigserial PRIMARY KEY, content text, metadata jsonb, embedding vector(16));
CREATE FUNCTION match_documents (query_embedding vector(16), match_count int DEFAULT NULL, filter jsonb DEFAULT '{}')
RETURNS TABLE (id bigint, content text, metadata jsonb, embedding jsonb, similarity float) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT id, content, metadata, (embedding::text)::jsonb AS embedding,
    1 - (documents.embedding <=> query_embedding) AS similarity
  FROM documents WHERE metadata @> filter ORDER BY documents.embedding <=> query_embedding LIMIT match_count;
END; $$;
"""


def test_supabase(cook, database):
    url, connection = database
    connection.execute(SUPABASE)
    for row, vector in enumerate(vectors_of("documents", COUNT)):
        insert = "INSERT INTO documents (content, metadata, embedding) VALUES (%s, %s, %s)"
        metadata = json.dumps({"source": "blob", "blobType": "text/plain", "page": row % 3})
        connection.execute(insert, (text_of("handbook", row), metadata, as_text(vector)))
    cook("Supabase with n8n or LangChain", url, expected=("fit", "translate", "audit", "switch"))
    # As the client calls it, by the names of the parameters
    match = "SELECT * FROM match_documents(query_embedding => %s, filter => %s, match_count => 6)"
    found = connection.execute(match, (as_text(np.ones(NEW_DIM)), json.dumps({"page": 1}))).fetchall()
    assert len(found) == 6
    assert all(metadata["page"] == 1 and len(vector) == NEW_DIM for _, _, metadata, vector, _ in found)
    add = "INSERT INTO documents (content, metadata, embedding) VALUES ('new', '{}', %s) RETURNING id"
    assert connection.execute(add, [as_text(np.ones(NEW_DIM))]).fetchone() == (COUNT + 1,)


LANGCHAIN_JS = """
CREATE TABLE "{table}" (
    "id" uuid NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY, "{text}" text, metadata jsonb, embedding vector
)
"""
"""What TypeORMVectorStore (Flowise) and PGVectorStore (n8n) create: vectors of any dimension."""


def write_langchain_js(connection, table, text, count):
    """Return the ids and metadata of the documents that are written."""
    connection.execute(LANGCHAIN_JS.format(table=table, text=text))
    for row, vector in enumerate(vectors_of("documents", count)):
        metadata = json.dumps({"source": "a.md", "loc": {"lines": {"from": row, "to": row + 1}}})
        insert = f'INSERT INTO {table} ("{text}", metadata, embedding) VALUES (%s, %s, %s)'
        connection.execute(insert, (text_of("handbook", row), metadata, as_text(vector)))
    return connection.execute(f"SELECT id, metadata FROM {table} ORDER BY id").fetchall()


def test_flowise(cook, database):
    url, connection = database
    before = write_langchain_js(connection, "documents", "pageContent", COUNT)
    cook("Flowise", url, expected=("fit", "translate", "audit", "switch"))
    assert connection.execute("SELECT id, metadata FROM documents ORDER BY id").fetchall() == before
    search = """SELECT *, embedding <=> %s as "_distance" FROM "documents" WHERE ((metadata @> %s)
        AND NOT (metadata ? 'flowise_chatId')) ORDER BY "_distance" ASC LIMIT 4"""
    found = connection.execute(search, (as_text(np.ones(NEW_DIM)), json.dumps({"source": "a.md"}))).fetchall()
    assert len(found) == 4 and all("text" in row[1] for row in found)
    write_again = """INSERT INTO documents ("pageContent", metadata, embedding) VALUES ('new', '{}', %s)"""
    connection.execute(write_again, [as_text(np.ones(NEW_DIM))])


def test_a_table_of_n8n_is_read(database):
    url, connection = database
    write_langchain_js(connection, "n8n_vectors", "text", 3)
    documents = list(open_store(f"pgvector:{url}#n8n_vectors").documents())
    assert sorted(document.text for document in documents) == [text_of("handbook", row) for row in range(3)]
    assert all(document.metadata["source"] == "a.md" for document in documents)


def test_flowise_with_faiss(cook):
    import faiss

    Path("vectorstore").mkdir()
    index = faiss.IndexFlatL2(DIM)
    index.add(vectors_of("documents", COUNT))
    faiss.write_index(index, "vectorstore/faiss.index")
    names = [str(uuid.UUID(int=row)) for row in range(COUNT)]
    documents = [[name, {"pageContent": text_of("handbook", row), "metadata": {"source": "a.md"}}]
                 for row, name in enumerate(names)]  # fmt: skip
    docstore = json.dumps([documents, {str(row): name for row, name in enumerate(names)}])
    Path("vectorstore/docstore.json").write_text(docstore)
    cook("Flowise with Faiss", expected=("fit", "translate", "audit", "switch"))
    assert json.loads(Path("vectorstore/docstore.json").read_text()) == json.loads(docstore)
    index = faiss.read_index("vectorstore/faiss.index")
    assert (type(index), index.ntotal, index.d) == (faiss.IndexFlatL2, COUNT, NEW_DIM)


DIFY = """
CREATE TABLE IF NOT EXISTS {table} (
    id UUID PRIMARY KEY, text TEXT NOT NULL, meta JSONB NOT NULL, embedding vector({dim}) NOT NULL
) using heap;
CREATE INDEX IF NOT EXISTS embedding_cosine_v1_idx_{digest} ON {table}
USING hnsw (embedding vector_cosine_ops) WITH (m = 16, ef_construction = 64);
"""


def test_dify(cook, database):
    url, connection = database
    connection.execute("CREATE TABLE datasets (id uuid, embedding_model varchar(255))")
    # Dify does not quote the name, which PostgreSQL cuts off
    tables = {name: f"embedding_Vector_index_{uuid.uuid4()}_Node".replace("-", "_") for name in SIZES}
    for name, table in tables.items():
        connection.execute(DIFY.format(table=table, dim=DIM, digest=name))
        connection.execute("INSERT INTO datasets VALUES (gen_random_uuid(), 'text-embedding-ada-002')")
        for row, vector in enumerate(vectors_of(name, SIZES[name])):
            chunk = str(uuid.uuid4())
            meta = json.dumps({"doc_id": chunk, "document_id": f"{name}-{row % 2}", "dataset_id": name})
            insert = f"INSERT INTO {table} (id, text, meta, embedding) VALUES (%s, %s, %s, %s)"
            connection.execute(insert, (chunk, text_of(name, row), meta, as_text(vector)))
    cook("Dify with pgvector", url, expected=("fit", "translate", "audit", "switch"),
         sizes=[table.lower()[:63] for table in tables.values()])  # fmt: skip
    (update,) = [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    UPDATE datasets")]
    assert connection.execute(update).rowcount == len(SIZES)
    for name, table in tables.items():
        search = (f"SELECT meta, text, embedding <=> %s AS distance FROM {table} "
                  "WHERE meta->>'document_id' in (%s) ORDER BY distance LIMIT 4")  # fmt: skip
        found = connection.execute(search, (as_text(np.ones(NEW_DIM)), f"{name}-1")).fetchall()
        assert len(found) == 4 and all(name in text for _, text, _ in found)
        # What Dify does before it adds a document
        connection.execute(DIFY.format(table=table, dim=NEW_DIM, digest=name))


# mem0


def memory_of(row):
    """A payload as mem0 writes it."""
    text = text_of("handbook", row)
    return {"user_id": f"ann-{row % 3}", "data": text, "text_lemmatized": text, "hash": f"{row:032x}",
            "created_at": "2026-01-01T00:00:00+00:00", "updated_at": "2026-01-01T00:00:00+00:00"}  # fmt: skip


def entity_of(row):
    return {"data": f"thing {row}", "entity_type": "PROPER", "linked_memory_ids": [str(uuid.UUID(int=row))],
            "user_id": "ann-0"}  # fmt: skip


def test_mem0_in_qdrant(cook):
    qdrant = pytest.importorskip("qdrant_client")
    models = qdrant.models
    sizes = {"mem0": 60, "mem0_entities": 20}
    payload_of = {"mem0": memory_of, "mem0_entities": entity_of}
    with closing(qdrant.QdrantClient(path="qdrant")) as client:
        for name, count in sizes.items():
            client.create_collection(
                name,
                vectors_config=models.VectorParams(size=DIM, distance=models.Distance.COSINE, on_disk=False),
                sparse_vectors_config={"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)},
            )
            words = models.SparseVector(indices=[3, 8], values=[1.0, 0.5])
            points = [models.PointStruct(id=str(uuid.UUID(int=row)), vector={"": vector.tolist(), "bm25": words},
                                         payload=payload_of[name](row))
                      for row, vector in enumerate(vectors_of(name, count))]  # fmt: skip
            client.upsert(name, points)
    cook("mem0 with Qdrant", expected=("fit", "translate", "audit", "switch"), sizes=sizes)
    with closing(qdrant.QdrantClient(path="qdrant")) as client:
        assert {collection.name for collection in client.get_collections().collections} == {*sizes}
        for name, count in sizes.items():
            points, _ = client.scroll(name, limit=100, with_vectors=True)
            assert sorted(point.id for point in points) == [str(uuid.UUID(int=row)) for row in range(count)]
            assert all(point.payload == payload_of[name](uuid.UUID(point.id).int) for point in points)
            assert all(point.vector["bm25"].indices == [3, 8] for point in points)
            found = client.query_points(name, query=[1.0] * NEW_DIM, limit=5).points
            assert len(found) == 5


MEM0 = """
CREATE TABLE IF NOT EXISTS {name} (id UUID PRIMARY KEY, vector vector({dim}), payload JSONB);
CREATE INDEX IF NOT EXISTS {name}_hnsw_idx ON {name} USING hnsw (vector vector_cosine_ops);
CREATE INDEX IF NOT EXISTS {name}_text_lemmatized_idx ON {name}
USING gin(to_tsvector('simple', payload->>'text_lemmatized'));
"""


def test_mem0_in_postgresql(cook, database):
    url, connection = database
    rows = {"mem0": [memory_of(row) for row in range(COUNT)], "mem0_entities": [entity_of(row) for row in range(20)],
            "mem0migrations": [{"user_id": "1", "type": "user_identity"}]}  # fmt: skip
    for name, payloads in rows.items():
        connection.execute(MEM0.format(name=name, dim=DIM))
        for row, (payload, vector) in enumerate(zip(payloads, vectors_of(name, len(payloads)), strict=True)):
            insert = f"INSERT INTO {name} (id, vector, payload) VALUES (%s, %s, %s)"
            connection.execute(insert, (str(uuid.UUID(int=row)), as_text(vector), json.dumps(payload)))
    cook("mem0 with pgvector", url, expected=("fit", "translate", "audit", "switch", "reembed", "switch"))
    for name in ("mem0", "mem0_entities"):
        held = connection.execute(f"SELECT payload FROM {name} ORDER BY id").fetchall()
        assert [payload for (payload,) in held] == rows[name]
        search = f"SELECT id, vector <=> %s::vector AS distance FROM {name} ORDER BY distance LIMIT 5"
        assert len(connection.execute(search, [as_text(np.ones(NEW_DIM))]).fetchall()) == 5


# SQLite and FAISS


def test_sqlite_vec(cook):
    pytest.importorskip("sqlite_vec")
    apsw = pytest.importorskip("apsw")
    import sqlite_vec

    def opened(path):
        connection = apsw.Connection(path)
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        return closing(connection)

    with opened("app.db") as database:
        for name, count in SIZES.items():
            database.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, title TEXT, content TEXT)")
            database.execute(
                f"CREATE VIRTUAL TABLE vec_{name} USING vec0(embedding float[{DIM}] distance_metric=cosine)"
            )
            for row, vector in enumerate(vectors_of(name, count), start=1):
                database.execute(f"INSERT INTO {name} VALUES (?, ?, ?)", (row, "a title", text_of(name, row)))
                database.execute(f"INSERT INTO vec_{name} (rowid, embedding) VALUES (?, ?)", (row, vector.tobytes()))
        database.execute("CREATE TABLE settings (key TEXT, value TEXT)")
        database.execute("INSERT INTO settings VALUES ('theme', 'dark')")
    cook("A desktop program with sqlite-vec")
    for name, count in SIZES.items():
        with opened(f"new/vec_{name}/app.db") as database:
            assert list(database.execute("SELECT * FROM settings")) == [("theme", "dark")]
            question = (f"SELECT t.content FROM vec_{name} v JOIN {name} t ON t.id = v.rowid "
                        "WHERE v.embedding MATCH ? AND k = 500 ORDER BY distance")  # fmt: skip
            near = [text for (text,) in database.execute(question, [np.ones(NEW_DIM, np.float32).tobytes()])]
            assert sorted(near) == sorted(text_of(name, row) for row in range(1, count + 1))


def test_a_folder_of_indexes(cook):
    import faiss

    for name, count in SIZES.items():
        Path("indexes", name).mkdir(parents=True)
        index = faiss.IndexFlatIP(DIM)
        index.add(vectors_of(name, count))
        faiss.write_index(index, f"indexes/{name}/index.faiss")
        lines = [json.dumps({"id": str(row), "text": text_of(name, row)}) for row in range(count)]
        Path("indexes", name, "docs.jsonl").write_text("\n".join(lines) + "\n")
    cook("A folder of FAISS indexes")
    for name, count in SIZES.items():
        index = faiss.read_index(f"new/{name}/index.faiss")
        assert (index.ntotal, index.d) == (count, NEW_DIM)
        assert Path("new", name, "docs.jsonl").read_bytes() == Path("indexes", name, "docs.jsonl").read_bytes()


# Images


def test_images():
    """The vectors of two encoders are those of two maps of one space: no model of images is packaged."""
    lancedb = pytest.importorskip("lancedb")
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(300, 8))
    images = topics[rng.integers(0, 300, 2_500)] + 0.3 * rng.normal(size=(2_500, 8))
    old, new = rng.normal(size=(8, 12)), rng.normal(size=(8, 20))
    ids = [f"{row:04d}.jpg" for row in range(len(images))]
    rows = [{"id": name, "vector": vector} for name, vector in zip(ids, images @ old, strict=True)]
    lancedb.connect("photos").create_table("images", rows)
    queries = [f"a photo of topic {row}" for row in range(30)]
    Path("queries.txt").write_text("\n".join(queries) + "\n")

    def encode(chosen):
        arrays = {"ids": [ids[row] for row in chosen], "image_vectors": images[chosen] @ new}
        exec(program_of("Images"), {**arrays, "queries": queries, "query_vectors": topics[:30] @ new})

    chosen = rng.permutation(len(images))[:200].tolist()
    encode(chosen)
    for _, *words in commands_of("Images"):
        code = run(words)
        while code == 4 and words[0] == "audit":
            lacking = [ids.index(name) for name in Path("clip.npz.missing.txt").read_text().splitlines()]
            assert lacking and not set(lacking) & set(chosen)
            chosen += lacking
            encode(chosen)
            code = run(words)
        assert code in ((0, 1, 3) if words[0] == "audit" else (0,)), words
    assert 200 < len(chosen) < len(images)
    table = lancedb.connect("new").open_table("images")
    moved = dict(zip(table.to_arrow()["id"].to_pylist(), table.to_arrow()["vector"].to_pylist(), strict=True))
    assert list(moved) == ids
    assert np.allclose([moved[ids[row]] for row in chosen[:200]], (images @ new)[chosen[:200]], atol=1e-4)
