"""Small stores of each framework, in the place of the store; and what spoils them."""

import json
import shutil

import faiss
import numpy as np
from fault_place import spoiler

from migrate.stores.create import create_store
from migrate.stores.documents.langchain import current_state, write_docstore
from migrate.vectors import Document

COUNT = 5
DIM = 8
IDS = [f"id-{row}" for row in range(COUNT)]
DOCUMENTS = [Document(doc_id, f"the text of {doc_id}", {"page": row}) for row, doc_id in enumerate(IDS)]
ROWS = np.random.default_rng(1).normal(size=(COUNT, DIM)).astype(np.float32)


def fresh(place):
    shutil.rmtree(place / "store")
    (place / "store").mkdir()
    return place / "store"


def save_index(path):
    index = faiss.IndexFlatIP(DIM)
    index.add(ROWS)
    faiss.write_index(index, str(path))


def langchain(place):
    writer = create_store(fresh(place), format="langchain", dim=DIM)
    writer.append(DOCUMENTS, ROWS)
    writer.finish()


def llamaindex(place):
    folder = fresh(place)
    save_index(folder / "default__vector_store.json")
    nodes = {d.id: {"__data__": {"id_": d.id, "text": d.text, "metadata": {}}, "__type__": "1"} for d in DOCUMENTS}
    write_json(folder / "docstore.json", {"docstore/data": nodes})
    data = {"index_id": "i", "nodes_dict": {str(row): doc_id for row, doc_id in enumerate(IDS)}}
    struct_ = {"i": {"__type__": "vector_store", "__data__": json.dumps(data)}}
    write_json(folder / "index_store.json", {"index_store/data": struct_})


def table():
    import pyarrow

    return pyarrow.table({"id": IDS, "text": [d.text for d in DOCUMENTS]})


def parquet(place):
    import pyarrow.parquet

    folder = fresh(place)
    save_index(folder / "index.faiss")
    pyarrow.parquet.write_table(table(), folder / "docs.parquet", row_group_size=2)


def dataset(place):
    """What `Dataset.save_to_disk` of Hugging Face writes."""
    import pyarrow.ipc

    folder = fresh(place)
    save_index(folder / "my.faiss")
    with pyarrow.ipc.new_stream(str(folder / "data-0.arrow"), table().schema) as stream:
        stream.write_table(table(), max_chunksize=2)
    write_json(folder / "state.json", {"_data_files": [{"filename": "data-0.arrow"}], "_fingerprint": "0"})
    write_json(folder / "dataset_info.json", {"citation": "", "features": {}})


def write_json(path, value):
    path.write_text(json.dumps(value))


@spoiler
def edit_json(place, name, change):
    fields = json.loads((place / name).read_text())
    change(fields)
    write_json(place / name, fields)


@spoiler
def write(place, name, content):
    """Write a file; what has its name goes."""
    path = place / name
    if path.is_dir():
        shutil.rmtree(path)
    path.write_bytes(content)


@spoiler
def remove(place, *names):
    for path in map(place.folder.joinpath, names):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@spoiler
def move(place, name, to):
    """Move a file out of the way."""
    (place / to).parent.mkdir(parents=True, exist_ok=True)
    (place / name).rename(place / to)


@spoiler
def link(place, name, to):
    """Move a file, and leave a link in its place."""
    move(name, to)(place)
    (place / name).symlink_to(place / to)


@spoiler
def docstore_with(place, metadata=(), ids=IDS):
    """A LangChain store whose documents have these metadata and ids."""
    langchain(place)
    states = {doc_id: current_state("text", dict(metadata), None) for doc_id in ids}
    write_docstore(place / "store/index.pkl", states, dict(enumerate(IDS)))


def large_docstore(place):
    llamaindex(place)
    text = "tea " * 20_000_000
    edit_json("store/docstore.json", lambda f: f["docstore/data"]["id-3"]["__data__"].update(text=text))(place)
