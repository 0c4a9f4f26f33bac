"""Stores of every kind that can be switched, in pairs: the old one and, of the same documents, the new one."""

import json
from pathlib import Path

import numpy as np

from migrate.manifest import Manifest, ModelIdentity
from migrate.stores import open_store
from migrate.stores.content import content_of
from migrate.stores.outputs import FolderOutput
from migrate.testing.stores import example_documents
from migrate.work.writer import write_rows

COUNT, DIM = 40, 8
OLD_MODEL, NEW_MODEL = "openai:text-embedding-ada-002", "openai:text-embedding-3-small"


def old_vectors():
    return np.random.default_rng(1).normal(size=(COUNT, DIM)).astype(np.float32)


def new_vectors(dim=DIM):
    return np.random.default_rng(2).normal(size=(COUNT, dim)).astype(np.float32)


def manifest(spec):
    return Manifest(kind="store", model=ModelIdentity(spec, DIM, normalized=False))


def make_folder(folder):
    """A FAISS index with a docs.jsonl."""
    import faiss

    folder.mkdir(parents=True)
    index = faiss.IndexFlatL2(DIM)
    index.add(old_vectors())
    faiss.write_index(index, str(folder / "index.faiss"))
    lines = [json.dumps({"id": d.id, "text": d.text, "metadata": dict(d.metadata)}) for d in example_documents(COUNT)]
    (folder / "docs.jsonl").write_text("\n".join(lines) + "\n")
    return str(folder)


def load_extension(connection):
    import sqlite_vec

    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.enable_load_extension(False)


def make_sqlite(path):
    import apsw

    connection = apsw.Connection(str(path))
    load_extension(connection)
    with connection:
        connection.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("INSERT INTO customers VALUES (1, 'ann')")
        connection.execute(
            "CREATE TRIGGER gone AFTER DELETE ON customers BEGIN DELETE FROM items WHERE id = old.id; END"
        )
        connection.execute(
            f"CREATE VIRTUAL TABLE items USING vec0(id text primary key, e float[{DIM}], kind text, small int8[4], "
            "+content text)"
        )
        rows = zip(example_documents(COUNT), old_vectors(), strict=True)
        connection.executemany(
            "INSERT INTO items VALUES (?, ?, 'a', vec_int8(?), ?)",
            ((d.id, v.tobytes(), bytes(4), d.text) for d, v in rows),
        )
    connection.close()
    return f"sqlite-vec:{path}#items"


def translate(old, folder, dim=DIM, output=None):
    """A copy of a store, with other vectors and the manifest of the new model, in a folder."""
    store = open_store(old)
    folder.mkdir()
    writer = (output or FolderOutput(folder)).writer(store, folder, dim)
    write_rows(writer, [(0, new_vectors(dim))], COUNT)


def write_report(path, old, new, outcome="SAFE", **more):
    stores = {"source": content_of(open_store(old)), "translated": content_of(open_store(new))}
    path.write_text(json.dumps({"kind": "audit", "verdict": {"outcome": outcome}, "stores": stores, **more}))
    return path


def change_switch(call, old, new, plain):
    """Switch, roll back or forget; `plain` where the file system cannot exchange two folders."""
    from migrate.steps.switch import forget, rollback, switch
    from migrate.stores import switching

    if plain:
        switching.exchange_paths = lambda one, other: False
    if call == "switch":
        switch(old, new, unproven=True)
    elif call == "rollback":
        rollback(old)
    else:
        forget(old)


def change_text(location):
    """Change the text of one document, by the store's own client."""
    doc_id = example_documents(1)[0].id
    kind, _, rest = location.rpartition(":") if location.startswith("/") else location.partition(":")
    place, _, name = rest.partition("#")
    if kind == "pgvector":
        from postgres import connect

        with connect() as connection:
            connection.execute(f"UPDATE {name} SET content = content || '!' WHERE id = %s", (doc_id,))
    elif kind == "sqlite-vec":
        import apsw

        connection = apsw.Connection(place)
        load_extension(connection)
        connection.execute(f"UPDATE {name} SET content = content || '!' WHERE id = ?", (doc_id,))
        connection.close()
    elif kind == "lancedb":
        import lancedb

        lancedb.connect(place).open_table(name).update(f"id = '{doc_id}'", {"text": "another"})
    elif kind.startswith("chroma"):
        import chromadb
        from chroma_tools import server

        client = server()[0] if "http" in kind else chromadb.PersistentClient(place)
        collection = client.get_collection(name, embedding_function=None)
        vectors = collection.get([doc_id], include=["embeddings"])["embeddings"]
        collection.update([doc_id], embeddings=vectors, documents=["another"])
        if "http" not in kind:
            client.close()
    elif kind == "parquet":
        import pyarrow.parquet

        for path in Path(place).glob("*.parquet"):
            rows = pyarrow.parquet.read_table(path).to_pylist()
            texts = [f"{row['text']}!" if row["id"] == doc_id else row["text"] for row in rows]
            table = pyarrow.Table.from_pylist([{**row, "text": text} for row, text in zip(rows, texts, strict=True)])
            pyarrow.parquet.write_table(table, path)
    else:
        path = Path(rest, "docs.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines = [{**line, "text": f"{line['text']}!"} if line["id"] == doc_id else line for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
