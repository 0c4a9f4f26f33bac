"""Small stores of each framework, in the place of the store; and what spoils them."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import faiss
import numpy as np
from fault_index import then
from fault_place import Place, Spoiler

from migrate.stores.create import create_store
from migrate.stores.documents.langchain import current_state, write_docstore
from migrate.vectors import Document

COUNT = 12
DIM = 8
IDS = [f"id-{row}" for row in range(COUNT)]
DOCUMENTS = [Document(doc_id, f"the text of {doc_id}", {"page": row}) for row, doc_id in enumerate(IDS)]


def fresh(place: Place) -> Path:
    shutil.rmtree(place / "store")
    (place / "store").mkdir()
    return place / "store"


def save_index(path: Path, labels: list[int] | None = None) -> None:
    rows = np.random.default_rng(1).normal(size=(COUNT, DIM)).astype(np.float32)
    index: faiss.Index = faiss.IndexFlatIP(DIM)
    if labels is None:
        index.add(rows)
    else:
        index = faiss.IndexIDMap(index)
        index.add_with_ids(rows, np.array(labels, np.int64))
    faiss.write_index(index, str(path))


def langchain(place: Place) -> None:
    rows = np.random.default_rng(1).normal(size=(COUNT, DIM)).astype(np.float32)
    writer = create_store(fresh(place), format="langchain", dim=DIM)
    writer.append(DOCUMENTS, rows)
    writer.finish()


def llamaindex(place: Place) -> None:
    folder = fresh(place)
    save_index(folder / "default__vector_store.json")
    nodes = {d.id: {"__data__": {"id_": d.id, "text": d.text, "metadata": {}}, "__type__": "1"} for d in DOCUMENTS}
    write_json(folder / "docstore.json", {"docstore/data": nodes})
    data = {"index_id": "i", "nodes_dict": {str(row): doc_id for row, doc_id in enumerate(IDS)}}
    struct_ = {"i": {"__type__": "vector_store", "__data__": json.dumps(data)}}
    write_json(folder / "index_store.json", {"index_store/data": struct_})


def parquet(place: Place) -> None:
    import pyarrow.parquet

    folder = fresh(place)
    save_index(folder / "index.faiss")
    table = pyarrow.table({"id": IDS, "text": [d.text for d in DOCUMENTS]})
    pyarrow.parquet.write_table(table, folder / "docs.parquet", row_group_size=5)


def dataset(place: Place) -> None:
    """What `Dataset.save_to_disk` of Hugging Face writes."""
    import pyarrow.ipc

    folder = fresh(place)
    save_index(folder / "my.faiss")
    table = pyarrow.table({"id": IDS, "text": [d.text for d in DOCUMENTS]})
    with pyarrow.ipc.new_stream(str(folder / "data-0.arrow"), table.schema) as stream:
        stream.write_table(table, max_chunksize=5)
    write_json(folder / "state.json", {"_data_files": [{"filename": "data-0.arrow"}], "_fingerprint": "0"})
    write_json(folder / "dataset_info.json", {"citation": "", "features": {}})


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def edit_json(name: str, change: Callable[[dict], object]) -> Spoiler:
    """Change a JSON object in a file."""

    def spoil(place: Place) -> None:
        fields = json.loads((place / name).read_text())
        change(fields)
        write_json(place / name, fields)

    return spoil


def execute(name: str, *statements: str) -> Spoiler:
    """Change an SQLite database."""

    def spoil(place: Place) -> None:
        with closing(sqlite3.connect(place / name)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    return spoil


def write(name: str, content: bytes) -> Spoiler:
    """Write a file; what has its name goes."""

    def spoil(place: Place) -> None:
        path = place / name
        if path.is_dir():
            shutil.rmtree(path)
        path.write_bytes(content)

    return spoil


def remove(*names: str) -> Spoiler:
    """Remove files and folders."""

    def spoil(place: Place) -> None:
        for name in names:
            path = place / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return spoil


def move(name: str, to: str) -> Spoiler:
    """Move a file out of the way."""

    def spoil(place: Place) -> None:
        (place / to).parent.mkdir(parents=True, exist_ok=True)
        (place / name).rename(place / to)

    return spoil


def link(name: str, to: str) -> Spoiler:
    """Move a file, and leave a link in its place."""

    def spoil(place: Place) -> None:
        move(name, to)(place)
        (place / name).symlink_to(place / to)

    return spoil


class Command:
    """What runs a command where pickles are loaded as they are."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch executed",)


class Evaluation:
    def __reduce__(self) -> tuple[object, ...]:
        return eval, ("open('executed', 'w')",)


def pickled(content: bytes) -> Spoiler:
    """A LangChain store with another pickle."""
    return then(langchain, write("store/index.pkl", content))


def docstore_with(
    metadata: Mapping[str, object] | None = None, row_ids: Mapping[int, str] | None = None, ids: list[str] = IDS
) -> Spoiler:
    """A LangChain store with these documents and rows."""

    def spoil(place: Place) -> None:
        langchain(place)
        fields = {doc_id: {"page_content": "text", "metadata": metadata or {}} for doc_id in ids}
        states = {doc_id: current_state(given, frozenset(given)) for doc_id, given in fields.items()}
        write_docstore(place / "store/index.pkl", states, dict(enumerate(IDS)) if row_ids is None else row_ids)

    return spoil


def with_dates(place: Place) -> None:
    docstore_with({"day": datetime.date(2026, 1, 2)})(place)


def edit_index_store(change: Callable[[dict], object]) -> Spoiler:
    """Change the rows of LlamaIndex's index store, which are JSON inside JSON."""

    def spoil(place: Place) -> None:
        path = place / "store/index_store.json"
        facts = json.loads(path.read_text())
        struct_ = facts["index_store/data"]["i"]
        data = json.loads(struct_["__data__"])
        change(data["nodes_dict"])
        struct_["__data__"] = json.dumps(data)
        write_json(path, facts)

    return spoil


def large_docstore(place: Place) -> None:
    """A docstore that takes more than 100 MB of memory."""
    llamaindex(place)
    edit_json("store/docstore.json", lambda f: f["docstore/data"]["id-3"]["__data__"].update(text="tea " * 20_000_000))(
        place
    )


def large_pickle(place: Place) -> None:
    """Documents of more than 100 MB."""
    docstore_with({"long": "tea " * 30_000_000})(place)
