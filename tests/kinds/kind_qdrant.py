"""Collections of Qdrant."""

import uuid

import numpy as np
import qdrant_client
from kind_base import Collections, ServerCollections, name_of, place_of, vectors_of
from qdrant_client import models

DISTANCES = {"l2": models.Distance.EUCLID, "ip": models.Distance.DOT}


class Qdrant(Collections):
    """A folder of the local mode; the ids of documents are in the payload."""

    scheme, options = "qdrant", "?id=key&text=text"
    vector = ""
    """The name of the vector, if it has one."""

    def client(self, location):
        return qdrant_client.QdrantClient(path=place_of(location))

    def key(self, name):
        return str(uuid.uuid5(uuid.NAMESPACE_URL, name))

    def create(self, client, name, records, metric="l2"):
        if client.collection_exists(name):
            client.delete_collection(name)
        client.create_collection(name, **self.settings(vectors_of(records).shape[1], metric))
        collections = getattr(client._client, "collections", None)  # of the local mode, which would wait for the disk
        storage = getattr(collections[name].storage, "storage", None) if isinstance(collections, dict) else None
        if storage is not None:
            storage.execute("PRAGMA synchronous = OFF")
        self.put(client, name, records, list(records))

    def settings(self, dim, metric):
        params = models.VectorParams(size=dim, distance=DISTANCES[metric])
        return {"vectors_config": {self.vector: params} if self.vector else params}

    def put(self, client, name, records, names, gone=()):
        points = [self.point(*records[one]) for one in names]
        if points:
            client.upsert(name, points)
        if gone:
            client.delete(name, [self.key(one) for one in gone])

    def point(self, document, vector):
        named = self.vectors(document, vector)
        return models.PointStruct(id=self.key(document.id), vector=named, payload=self.payload(document))

    def payload(self, document):
        return {**document.metadata, "text": document.text, "key": document.id}

    def vectors(self, document, vector):
        return {self.vector: vector.tolist()} if self.vector else vector.tolist()

    def read(self, location):
        name = name_of(location)
        with self.opened(location) as client:
            facts = {"params": client.get_collection(name).config.params.model_dump(mode="json")}
            points, _ = client.scroll(name, limit=10_000, with_vectors=True)
        found = []
        for point in points:
            vectors = point.vector if isinstance(point.vector, dict) else {"": point.vector}
            main = vectors.pop("text", vectors.pop("", None))
            rest = {f"vector {name}": repr(value) for name, value in vectors.items()}
            payload = {f"payload {name}": value for name, value in point.payload.items()}
            found.append((repr(point.id), {**payload, **rest}, None if main is None else np.array(main, np.float32)))
        return found, facts


class TypedQdrant(Qdrant):
    """Named and sparse vectors, points without one, payload of any depth."""

    options = "?id=key&text=text&vector=text"

    def create(self, client, name, records, metric="l2"):
        super().create(client, name, records, metric)
        points = []
        for key in ("no vector 0", "no vector 1", "no vector 2"):
            payload = {"text": "no vector", "key": key}
            points.append(models.PointStruct(id=self.key(key), vector={"other": [1] * 8}, payload=payload))
        client.upsert(name, points)

    def settings(self, dim, metric):
        sizes = {"text": dim, "other": 8}
        params = {name: models.VectorParams(size=size, distance=DISTANCES[metric]) for name, size in sizes.items()}
        return {"vectors_config": params, "sparse_vectors_config": {"words": models.SparseVectorParams()}}

    def vectors(self, document, vector):
        row = document.metadata["page"]
        vectors = {"text": vector.tolist()}
        if row % 3:
            vectors["other"] = vector[:8].tolist()
        if row % 5:
            vectors["words"] = models.SparseVector(indices=[row % 50, 60], values=[0.5, -1.0])
        return vectors


class QdrantServer(ServerCollections, Qdrant):
    """A collection of a server, which is Qdrant's own engine behind HTTP."""

    @classmethod
    def started(cls, ends, folder):
        from qdrant_server import serving

        url = ends.enter_context(serving(folder))
        client = qdrant_client.QdrantClient(url=url, check_compatibility=False)
        ends.callback(client.close)
        return cls(client, f"qdrant:{url}")


class TypedQdrantServer(QdrantServer, TypedQdrant):
    """The same with an alias, by which programs name the collection; new ones are named after their folders."""

    options = TypedQdrant.options

    def make(self, folder, records):
        self.create(self.server, "first", records)
        alias = models.CreateAlias(collection_name="first", alias_name=folder.name)
        self.server.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
        return self.location(folder, folder.name) + self.options

    def place(self, folder):
        return self.location(folder, folder.name)

    def left(self):
        """Collections and aliases."""
        names = {one.name: "collection" for one in self.server.get_collections().collections}
        return names | {one.alias_name: one.collection_name for one in self.server.get_aliases().aliases}
