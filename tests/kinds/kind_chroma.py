"""Collections of Chroma."""

import chromadb
from chromadb.config import Settings
from kind_base import Collections, ServerCollections, name_of, place_of


class Chroma(Collections):
    """A folder of the persistent client."""

    scheme = "chroma"

    def client(self, location):
        return chromadb.PersistentClient(place_of(location), settings=Settings(anonymized_telemetry=False))

    def create(self, client, name, records, metric="l2"):
        if name in [found.name for found in client.list_collections()]:
            client.delete_collection(name)
        client.create_collection(name, **self.settings(metric), embedding_function=None)
        self.put(client, name, records, list(records))

    def settings(self, metric):
        return {"configuration": {"hnsw": {"space": metric}}}

    def put(self, client, name, records, names, gone=()):
        collection = client.get_collection(name, embedding_function=None)
        documents = [records[name][0] for name in names]
        if names:
            collection.upsert(
                names,
                embeddings=[records[name][1] for name in names],
                documents=[document.text for document in documents],
                metadatas=[dict(document.metadata) or None for document in documents],
            )
        if gone:
            collection.delete(list(gone))

    def read(self, location):
        with self.opened(location) as client:
            name = name_of(location)
            collection = client.get_collection(name, embedding_function=None)
            facts = {"name": name, "settings": collection._model.configuration_json}
            own = (collection.metadata or {}).items()
            facts["metadata"] = {key: value for key, value in own if not key.startswith("lead-migrate")}
            page = collection.get(include=["embeddings", "documents", "metadatas", "uris"])
        columns = [page[key] for key in ("ids", "embeddings", "documents", "metadatas", "uris")]
        return [
            (doc_id, {"document": text, "uri": uri, "metadata": fields}, vector)
            for doc_id, vector, text, fields, uri in zip(*columns, strict=True)
        ], facts


class TypedChroma(Chroma):
    """Metadata of each type, none at all, and URIs."""

    def settings(self, metric):
        hnsw = {"space": metric, "ef_construction": 64, "max_neighbors": 8}
        return {"configuration": {"hnsw": hnsw}, "metadata": {"owner": "\u00fc", "number": 2**40, "flag": True}}

    def put(self, client, name, records, names, gone=()):
        collection = client.get_collection(name, embedding_function=None)
        # an update would keep what a record has no longer
        old = [*gone, *collection.get(names, include=[])["ids"]]
        if old:
            collection.delete(old)
        for part in range(3):
            chosen = [records[name] for name in names if records[name][0].metadata["page"] % 3 == part]
            if chosen:
                collection.upsert(
                    [document.id for document, _ in chosen],
                    embeddings=[vector for _, vector in chosen],
                    documents=[document.text for document, _ in chosen],
                    metadatas=None if part == 2 else [self.fields(document) for document, _ in chosen],
                    uris=[f"file://{number}" for number in range(len(chosen))] if part == 1 else None,
                )

    def fields(self, document):
        more = [[1, 2], ["a", ""], [0.5], [True, False]][document.metadata["page"] % 4]
        return {**document.metadata, "list": more}


class ChromaServer(ServerCollections, Chroma):
    """A collection of a server, of which a process has one."""

    @classmethod
    def started(cls, ends, folder):
        from chroma_tools import server

        return cls(*server())
