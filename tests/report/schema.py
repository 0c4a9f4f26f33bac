"""The published schema of all documents, for tests."""

import json
from functools import cache
from pathlib import Path

import jsonschema

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schema.json").read_text(encoding="utf-8"))


@cache
def validator(name):
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})


def check_document(document):
    """Raise a `ValidationError` for a document that is not as its kind is described."""
    name = "nothing-to-migrate" if "nothing_to_migrate" in document else document.get("kind", "").replace(" ", "-")
    if name not in SCHEMA["$defs"]:
        raise jsonschema.ValidationError(f"no schema of {name!r}")
    validator(name).validate(document)
