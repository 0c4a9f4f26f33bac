"""A file of JSON with an object for each record."""

import json
import shutil
from pathlib import Path

import numpy as np
from kind_base import Kind

NAME = "embeddings.json"


class Records(Kind):
    """Objects with a text, metadata and a list of numbers."""

    def make(self, folder, records):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        found = [
            {
                "id": document.id,
                "text": document.text,
                "metadata": dict(document.metadata),
                "embedding": vector.tolist(),
            }
            for document, vector in records.values()
        ]
        (folder / NAME).write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
        return str(folder)

    def read(self, location):
        found = json.loads(Path(location, NAME).read_text(encoding="utf-8"))
        return [(record.pop("id"), record, np.array(record.pop("embedding"), np.float32)) for record in found], {}
