"""Records that come, change and go in a database while it serves, by its own client; vectors are not true ones."""

import numpy as np
from kind_base import place_of
from kinds import kind_class

from migrate.vectors import Document

VECTOR = np.ones(12, np.float32)
METADATA = {"lancedb": {"metadata": "{}"}, "milvus": {"metadata": {}}}
"""What stands in the column of the metadata, where this tool makes one."""


def edit(location, new=(), changed=(), gone=(), text="another text"):
    scheme = location.partition(":")[0]
    texts = {**dict.fromkeys(new, "a new text"), **dict.fromkeys(changed, text)}
    after = {doc_id: (Document(doc_id, words, METADATA.get(scheme, {})), VECTOR) for doc_id, words in texts.items()}
    before = dict.fromkeys([*changed, *gone])
    if scheme in WRITTEN:
        kind = WRITTEN[scheme]()
    else:
        kind = kind_class("chroma-server" if scheme == "chroma+http" else scheme).started(None, None)
    kind.change(location, before, after)


def written_qdrant():
    """Points as this tool makes them, whose ids are looked up."""
    import qdrant_client

    class Written(kind_class("qdrant")):
        def client(self, location):
            place = place_of(location)
            where = {"url": place, "check_compatibility": False} if place.startswith("http") else {"path": place}
            return qdrant_client.QdrantClient(**where)

        def put(self, client, name, records, names, gone=()):
            self.numbers = {point.payload["id"]: point.id for point in client.scroll(name, limit=1_000)[0]}
            super().put(client, name, records, names, gone)

        def key(self, name):
            return self.numbers.get(name) or super().key(name)

        def payload(self, document):
            return {"id": document.id, "page_content": document.text, "metadata": {}}

    return Written()


def written_sqlite_vec():
    """Rows of a table as this tool makes it."""

    class Written(kind_class("sqlite-vec")):
        filled, values = "(id, embedding, content, metadata)", "?, ?, ?, ?"

        def connect(self, location):
            return super().connect(f"sqlite-vec:{place_of(location)}/store.db")

        def row(self, document, vector):
            return document.id, vector.tobytes(), document.text, "{}"

    return Written()


WRITTEN = {"qdrant": written_qdrant, "sqlite-vec": written_sqlite_vec}
"""Kinds of which this tool makes other columns than the tests do."""
