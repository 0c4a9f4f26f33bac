"""Stores of every kind that can be switched, in pairs: the old one and, of the same documents, the new one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from kind_base import add_customers, records_of
from kind_faiss import Faiss
from kinds import kind_class
from safe_reports import safe_report

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


def new_vectors():
    return np.random.default_rng(2).normal(size=(COUNT, DIM)).astype(np.float32)


def records():
    return records_of(example_documents(COUNT), old_vectors())


def manifest(spec):
    return Manifest(kind="store", model=ModelIdentity(spec, DIM, normalized=False))


def make_sqlite(folder):
    """A table beside one of the user's own, with a trigger."""
    kind = kind_class("sqlite-vec")()
    location = kind.make(folder, records())
    with kind.opened(location) as connection:
        add_customers(connection)
        connection.execute(
            "CREATE TRIGGER gone AFTER DELETE ON customers BEGIN DELETE FROM items WHERE id = old.id; END"
        )
    return location


def make_named(client, name, vectors):
    """A collection of Chroma that names an embedding function; not made by this tool."""
    from chroma_tools import Named

    settings = {"hnsw": {"space": "l2"}}
    collection = client.create_collection(name, configuration=settings, embedding_function=Named())
    documents = example_documents(COUNT)
    collection.add([d.id for d in documents], embeddings=vectors, documents=[d.text for d in documents])


def translate(old, folder, output=None):
    folder.mkdir()
    writer = (output or Output(folder)).writer(open_store(old), folder, DIM)
    write_rows(writer, [(0, new_vectors())], COUNT)


def write_report(path, old, new, outcome="SAFE", **more):
    stores = {"source": content_of(open_store(old)), "translated": content_of(open_store(new))}
    verdict = {"outcome": outcome, **more.pop("verdict", {})}
    path.write_text(json.dumps(safe_report(more.pop("stores", stores), verdict=verdict, **more)))
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
    before = records()
    doc_id = example_documents(1)[0].id
    document, vector = before[doc_id]
    after = {**before, doc_id: (replace(document, text=f"{document.text}!"), vector)}
    scheme = location.partition(":")[0]
    if Path(location).is_dir():
        Faiss().write_documents(Path(location), [document for document, _ in after.values()])
    else:
        kind = kind_class("chroma-server" if scheme == "chroma+http" else scheme)
        kind.started(None, None).change(location, before, after)
