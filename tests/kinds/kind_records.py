"""A file of JSON, or a pickle, with an object for each record."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
from kind_base import Kind


class Records(Kind):
    """Objects with a text, metadata and a list of numbers."""

    name = "embeddings.json"

    def make(self, folder, records):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        found = [
            {
                "id": document.id,
                "text": document.text,
                "metadata": dict(document.metadata),
                "embedding": self.numbers(vector),
            }
            for document, vector in records.values()
        ]
        (folder / self.name).write_bytes(self.dumps(found))
        return str(folder)

    def read(self, location):
        found = self.loads(Path(location, self.name).read_bytes())
        return [(record.pop("id"), record, np.array(record.pop("embedding"), np.float32)) for record in found], {}

    def numbers(self, vector):
        return vector.tolist()

    def dumps(self, records):
        return json.dumps(records, ensure_ascii=False).encode()

    def loads(self, content):
        return json.loads(content)


class Pickle(Records):
    """The same with an array of numbers, pickled."""

    name = "embeddings.pkl"

    def numbers(self, vector):
        return vector

    def dumps(self, records):
        return pickle.dumps(records)

    def loads(self, content):
        return pickle.loads(content)
