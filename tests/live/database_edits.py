"""Records that come, change and go in a database while it serves, by its own client; vectors are not true ones."""

import uuid
from contextlib import closing

import numpy as np

VECTOR = [1.0] * 12


def edit(location, new=(), changed=(), gone=(), text="another text"):
    kind, _, rest = location.partition(":")
    place, _, name = rest.partition("#")
    texts = {**dict.fromkeys(new, "a new text"), **dict.fromkeys(changed, text)}
    own = {"lancedb": _lancedb, "milvus": _milvus, "pgvector": _pgvector, "qdrant": _qdrant, "sqlite-vec": _sqlite}
    change = own.get(kind, _chroma)
    change(place, name, texts, list(new), list(gone))


def _chroma(place, name, texts, new, gone):
    import chromadb
    from chroma_tools import server

    with closing(server()[0] if place.startswith("//") else chromadb.PersistentClient(place)) as client:
        collection = client.get_collection(name, embedding_function=None)
        for doc_id, text in texts.items():
            if doc_id in new:
                collection.add([doc_id], embeddings=[VECTOR], documents=[text])
            else:
                collection.update([doc_id], embeddings=[VECTOR], documents=[text])
        if gone:
            collection.delete(gone)


def _lancedb(place, name, texts, new, gone):
    import lancedb

    table = lancedb.connect(place).open_table(name)
    row = table.search().limit(1).to_arrow().to_pylist()[0]
    for doc_id, text in texts.items():
        if doc_id in new:
            table.add([{**row, "id": doc_id, "text": text, "vector": VECTOR}])
        else:
            table.update(f"id = '{doc_id}'", {"text": text})
    for doc_id in gone:
        table.delete(f"id = '{doc_id}'")


def _milvus(place, name, texts, new, gone):
    from milvus_server import client_of

    with client_of(place) as client:
        rows = [{"id": doc_id, "text": text, "metadata": {}, "vector": VECTOR} for doc_id, text in texts.items()]
        if rows:
            client.upsert(name, rows)
        if gone:
            client.delete(name, ids=gone)


def _pgvector(place, name, texts, new, gone):
    from postgres import as_text, connect

    with connect(place) as connection:
        for doc_id, text in texts.items():
            if doc_id in new:
                row = f"INSERT INTO {name} (id, content, embedding) VALUES (%s, %s, %s::vector)"
                connection.execute(row, (doc_id, text, as_text(VECTOR)))
            else:
                connection.execute(f"UPDATE {name} SET content = %s WHERE id = %s", (text, doc_id))
        connection.execute(f"DELETE FROM {name} WHERE id = ANY(%s)", (gone,))


def _qdrant(place, name, texts, new, gone):
    import qdrant_client
    from qdrant_client import models

    where = {"url": place, "check_compatibility": False} if place.startswith("http") else {"path": place}
    with closing(qdrant_client.QdrantClient(**where)) as client:
        numbers = {point.payload["id"]: point.id for point in client.scroll(name, limit=1_000)[0]}
        points = [
            models.PointStruct(
                id=numbers.get(doc_id) or str(uuid.uuid5(uuid.NAMESPACE_URL, doc_id)),
                vector=VECTOR,
                payload={"id": doc_id, "page_content": text, "metadata": {}},
            )
            for doc_id, text in texts.items()
        ]
        if points:
            client.upsert(name, points)
        if gone:
            client.delete(name, [numbers[doc_id] for doc_id in gone])


def _sqlite(place, name, texts, new, gone):
    import apsw
    import sqlite_vec

    with closing(apsw.Connection(f"{place}/store.db")) as connection:
        connection.enable_load_extension(True)
        connection.load_extension(sqlite_vec.loadable_path())
        for doc_id, text in texts.items():
            if doc_id in new:
                row = f"INSERT INTO {name} (id, embedding, content, metadata) VALUES (?, ?, ?, '{{}}')"
                connection.execute(row, (doc_id, np.array(VECTOR, "<f4").tobytes(), text))
            else:
                connection.execute(f"UPDATE {name} SET content = ? WHERE id = ?", (text, doc_id))
        connection.executemany(f"DELETE FROM {name} WHERE id = ?", [(doc_id,) for doc_id in gone])
