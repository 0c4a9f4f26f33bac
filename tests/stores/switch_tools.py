"""Stores of every kind that can be switched, in pairs: the old one and, of the same documents, the new one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import sync_tools as tools

from migrate.manifest import Manifest, ModelIdentity
from migrate.stores import open_store
from migrate.stores.content import content_of
from migrate.stores.outputs import Output
from migrate.testing.stores import example_documents
from migrate.work.writer import write_rows

COUNT, DIM = 40, 8
OLD_MODEL, NEW_MODEL = "openai:text-embedding-ada-002", "openai:text-embedding-3-small"


def old_vectors():
    return np.random.default_rng(1).normal(size=(COUNT, DIM)).astype(np.float32)


def new_vectors(dim=DIM):
    return np.random.default_rng(2).normal(size=(COUNT, dim)).astype(np.float32)


def records():
    return tools.records_of(example_documents(COUNT), old_vectors())


def manifest(spec):
    return Manifest(kind="store", model=ModelIdentity(spec, DIM, normalized=False))


def make_folder(folder):
    """A FAISS index with a docs.jsonl."""
    return tools.Folder().make(folder, records())


def make_sqlite(path):
    connection = tools.SqliteVec().connect(f"sqlite-vec:{path}#")
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
    writer = (output or Output(folder)).writer(store, folder, dim)
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
    old = records()
    document, vector = old[doc_id]
    after = {**old, doc_id: (replace(document, text=f"{document.text}!"), vector)}
    if kind == "pgvector":
        tools.Pgvector().change(location, old, after)
    elif kind == "sqlite-vec":
        connection = tools.SqliteVec().connect(location)
        connection.execute(f"UPDATE {name} SET content = content || '!' WHERE id = ?", (doc_id,))
        connection.close()
    elif kind == "lancedb":
        tools.Lance().change(location, old, after)
    elif kind.startswith("chroma"):
        from chroma_tools import server

        (tools.ChromaServer(*server()) if "http" in kind else tools.Chroma()).change(location, old, after)
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
