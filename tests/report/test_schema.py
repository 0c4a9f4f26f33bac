"""The published schema; that all documents follow it, a fixture of all tests sees to."""

import re
from pathlib import Path

import jsonschema
import pytest
from schema import SCHEMA, check_document

import migrate
from migrate.cli.terminal import show_json
from migrate.facts import document

KINDS = {name for name in SCHEMA["$defs"] if "kind" in SCHEMA["$defs"][name].get("properties", {})}
DONE = document("private encrypt", {"path": Path("there"), "vectors": 3, "dimension": 2, "bytes": 400})


def test_the_schema_is_one_and_names_every_kind():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    sources = [path.read_text(encoding="utf-8") for path in Path(migrate.__file__).parent.rglob("*.py")]
    written = {
        kind for text in sources for kind in re.findall(r'(?:document\(\s*|show_json\(.*kind=)"([a-z ]+)"', text)
    }
    assert {"audit", "check", "embed", "live run", "compare"} <= written <= {name.replace("-", " ") for name in KINDS}
    assert {ref["$ref"].removeprefix("#/$defs/") for ref in SCHEMA["anyOf"]} == KINDS


def test_a_document_is_of_one_kind():
    jsonschema.Draft202012Validator(SCHEMA).validate(DONE)
    assert DONE == {"schema_version": 1, "kind": "private encrypt", "path": "there", "vectors": 3, "dimension": 2,
                    "bytes": 400}  # fmt: skip


@pytest.mark.parametrize(
    "change", [{"kind": "private"}, {"schema_version": 2}, {"vectors": "3"}, {"bytes": None}, {"path": ...}]
)
def test_a_command_cannot_print_what_is_not_described(change):
    changed = {name: value for name, value in {**DONE, **change}.items() if value is not ...}
    with pytest.raises(jsonschema.ValidationError):
        check_document(changed)
    with pytest.raises(jsonschema.ValidationError):
        show_json(changed)
