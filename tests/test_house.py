"""The house: floors, homes of outside libraries, metadata, what the package says of itself."""

import ast
import configparser
import gc
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import house
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "migrate"

# A module imports from floors below its own, and from its own room.
FLOORS = {
    "errors": 0, "plugins": 0, "work": 0, "vectors": 0, "files": 0, "manifest": 0, "threads": 0,
    "reading": 0, "progress": 0, "pace": 0, "command_notes": 0, "outcome": 0, "facts": 0,
    "redirects": 0, "digests": 0, "display": 0, "locations": 0, "hashes": 0, "version": 0, "removed": 0,
    "stores": 1, "embedders": 1, "datasets": 1, "audit_report": 1,
    "databases": 2, "stitch": 2, "search": 2,
    "selection": 3, "translate": 3,
    "cost": 4,
    "embed": 5, "langchain": 5, "check": 5,
    "steps": 6, "testing": 6,
    "audit": 7, "batch": 7,
    "report": 8,
    "finished": 9, "inspect": 9,
    "pipeline": 10,
    "cli": 12,
    "live": 13, "lab": 13, "engines": 13, "collections": 13,
    "__main__": 14,
    "__init__": 14,
}  # fmt: skip

# Rooms that the core never imports; entry points load their commands.
OUTSIDE = ("live", "lab", "engines", "collections")

# On the ground floor, where modules are single files, these may use those.
GROUND_FLOOR = {
    "digests": {"errors", "files", "progress"},
    "files": {"errors", "command_notes"},
    "locations": {"errors"},
    "manifest": {"digests", "errors", "files", "reading", "version"},
    "reading": {"files"},
    "vectors": {"errors", "progress"},
    "redirects": {"errors"},
    "display": {"errors"},
    "outcome": {"display", "errors"},
    "plugins": {"errors"},
    "work": {"digests", "errors", "files", "locations", "command_notes", "progress", "threads", "vectors", "version"},
}

# The commands of rooms that the core never imports
COMMANDS = [
    "live/command",
    "collections/command",
    "lab/carry/command",
    "lab/compare/command",
    "lab/embed/command",
    "lab/labels/command",
    "lab/private/command",
]

HOMES = {
    "blake3": ["digests"],
    "click": ["cli/", *COMMANDS],
    "tqdm": ["cli/"],
    "faiss": ["stores/"],
    "torch": ["embedders/", "lab/stitches/mlp"],
    "sentence_transformers": ["embedders/"],
    "openai": ["embedders/"],
    "tiktoken": ["embedders/tokens"],
    "sklearn": [
        "audit/slices", "embedders/tfidf", "lab/compare/labels", "lab/labels/probes", "stitch/kernel",
        "stitch/text_reader",
    ],
    "tokenizers": ["embedders/sentence_transformers", "embedders/tokens", "stitch/text_reader"],
    "rank_bm25": ["search/bm25"],
    "langchain_core": ["check/guard/", "embedders/langchain", "langchain.py", "live/langchain"],
    "llama_index": ["check/guard/", "live/llamaindex"],
    "langchain_text_splitters": ["lab/embed/chunking"],
    "apsw": ["databases/sqlite_vec"],
    "chromadb": ["databases/chroma"],
    "lancedb": ["databases/lancedb"],
    "sqlite3": ["databases/clients", "databases/qdrant", "databases/sqlite_", "embedders/", "live/state"],
    "pickle": ["databases/qdrant", "stores/"],
    "psycopg": ["databases/pgvector"],
    "pyarrow": ["databases/lancedb", "stores/documents/arrow", "stores/parquet/", "engines/"],
    "pandas": ["display.py", "audit_report/report", "cost/assess", "lab/compare/comparison"],
    "joblib": ["work/processes"],
    "distributed": ["engines/dask"],
    "ray": ["engines/ray"],
    "pyspark": ["engines/spark"],
    "daft": ["engines/daft"],
    "fsspec": ["work/remote", "stores/parquet/files"],
    "threadpoolctl": ["threads.py"],
    "tenseal": ["lab/private/ckks"],
}  # fmt: skip

HEAVY = {
    "torch", "faiss", "pandas", "pyarrow", "sklearn", "scipy", "transformers", "sentence_transformers", "openai",
    "numpy", "tenseal", "tqdm",
}  # fmt: skip

MODULES = sorted(PACKAGE.rglob("*.py"))


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def in_python(code, **variables):
    """What code prints that runs in a process of its own, with further variables."""
    environment = os.environ | variables
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@cache
def parsed():
    """Parse the package once; looking for garbage among nodes, none of which is any, takes most of the time."""
    gc.disable()
    try:
        return house.Package.read(PACKAGE)
    finally:
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def trees_go_with_the_module():
    """Drop the trees after the last test: each later collection of garbage would visit all their nodes."""
    yield
    for cached in (parsed, nodes, imports):
        cached.cache_clear()


@cache
def nodes(path):
    """Everything that is written in a module, parsed once."""
    return list(ast.walk(parsed().trees[path]))


@cache
def imports(path):
    """Every module that a file imports anywhere, with the names taken from it."""
    taken = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            taken += ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            taken.append((node.module, tuple(alias.name for alias in node.names)))
    return taken


def own_rooms(path):
    for module, names in imports(path):
        if module == "migrate":
            yield from (name for name in names if not name.startswith("__"))
        elif module.startswith("migrate."):
            yield module.split(".")[1]


def test_modules_import_from_floors_below_only():
    wrong = []
    for path in MODULES:
        here = room(path)
        for other in set(own_rooms(path)) - {here}:
            is_below = here in FLOORS and FLOORS[other] < FLOORS[here]
            if not is_below and other not in GROUND_FLOOR.get(here, ()):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {other} (floor {FLOORS[other]})")
    assert wrong == []


@pytest.mark.slow  # every import statement is held to the floors; this also sees what is loaded by its name
def test_the_core_never_loads_a_room_outside_of_it():
    outside = tuple(f"migrate.{name}" for name in OUTSIDE)
    core = [p for p in MODULES if FLOORS[room(p)] < FLOORS["live"] and room(p) not in ("testing",)]
    names = ["migrate." + ".".join(p.relative_to(PACKAGE).with_suffix("").parts) for p in core]
    code = f"import importlib, sys\nfor name in {names}: importlib.import_module(name.removesuffix('.__init__'))\n"
    code += f"print([name for name in sys.modules if name.startswith({outside})])"
    assert in_python(code) == "[]\n"


@pytest.fixture
def package():
    return parsed()


def test_no_modules_import_each_other_in_a_circle(package):
    """Imports inside functions count, and those for types alone: a circle that opens late is a circle."""
    assert package.circles(types=True) == []


def test_every_room_has_a_floor():
    assert {room(path) for path in MODULES} == set(FLOORS)


@pytest.mark.parametrize("library", HOMES)
def test_an_outside_library_has_one_home(library):
    users = {
        str(p.relative_to(PACKAGE)) for p in MODULES for module, _ in imports(p) if module.split(".")[0] == library
    }
    assert users, f"{library} is not used"
    assert all(any(user.startswith(home) for home in HOMES[library]) for user in users), users


def test_cores_are_counted_in_one_place():
    """`os.cpu_count` knows nothing of a container's quota; `migrate.threads` does."""
    counting = [path.relative_to(PACKAGE).as_posix() for path in MODULES if "cpu_count" in path.read_text()]
    assert counting == ["threads.py"]


def test_no_attribute_of_an_audit_does_work_once_it_is_read():
    lazy = {
        path.name
        for path in (PACKAGE / "audit").glob("*.py")
        for node in nodes(path)
        if isinstance(node, ast.Name | ast.alias)
        and "cached_property" in (getattr(node, "id", ""), getattr(node, "name", ""))
    }
    # What is opened, paid for or refused has a function, and its result is a value of a record
    assert not lazy


def test_a_driver_knows_of_no_pace():
    paced = {path.stem for path in (PACKAGE / "databases").rglob("*.py") if "migrate.pace" in dict(imports(path))}
    # A rest is in the loops over pages, which drivers do not see
    assert paced == {"store", "fields", "ordered_rows"}


def test_databases_are_known_to_the_core_by_the_registry_alone():
    """Many collections are moved by a room that the core does not load either."""
    users = {room(path) for path in MODULES if "databases" in own_rooms(path)} - {"databases"}
    assert users == {"collections"}


def test_every_required_package_is_used_and_every_import_is_required():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    required = {re.split(r"[<>=]", line)[0] for line in config["options"]["install_requires"].split("\n") if line}
    names = {"faiss-cpu": "faiss", "scikit-learn": "sklearn"}
    modules = {names.get(name, name.replace("-", "_")) for name in required}
    imported = {module.split(".")[0] for p in MODULES for module, _ in imports(p)}
    # What openai, sentence-transformers and langchain-core bring along, and is spoken to in their own words
    brought = {"httpx", "transformers", "tokenizers", "huggingface_hub", "pydantic"}
    outside = imported - set(sys.stdlib_module_names) - {"migrate"} - brought
    # Needed for some files only; what needs it asks for the extra by name
    optional = {
        "pyarrow": "parquet", "tiktoken": "tokens", "pandas": "pandas", "pytest": "test", "psycopg": "pgvector",
        "apsw": "sqlite-vec", "chromadb": "chroma", "lancedb": "lancedb", "tenseal": "private",
        "llama_index": "frameworks",
        "fsspec": "parquet", "distributed": "engines", "ray": "engines", "pyspark": "engines", "daft": "engines",
    }  # fmt: skip
    for name, extra in optional.items():
        assert any(
            line.startswith(name.replace("_", "-")) for line in config["options.extras_require"][extra].split("\n")
        )
    assert modules == outside - set(optional)


@pytest.mark.parametrize(
    "room", ["cost", "embed", "pipeline", "steps/assess", "steps/fit", "steps/reembed", "steps/translate"]
)
def test_reading_an_attribute_of_a_step_or_its_job_opens_nothing(room):
    for path in (ROOT / "migrate" / room).rglob("*.py"):
        assert "cached_property" not in path.read_text("utf-8"), path


def test_metadata_stands_in_one_place():
    assert "project" not in tomllib.loads((ROOT / "pyproject.toml").read_text())


def loaded_by(code, **variables):
    """The packages that are loaded when some code has run."""
    listing = "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    printed = in_python(f"import sys\n{code}\n{listing}", **variables)
    return set(printed.split("\n")[-2].split())


@pytest.mark.parametrize("variables", [{}, {"LEAD_MIGRATE_DEVICE": "cuda", "LEAD_MIGRATE_NO_SUCH": "1"}])
def test_help_imports_no_heavy_library(variables):
    """With a variable of ours every command is loaded, to tell which variables there are."""
    code = """
from migrate.cli.main import leaf_commands, run
assert run(["--help"]) == 0
for name in leaf_commands():
    assert run([*name.split(), "--help"]) == 0
"""
    loaded = loaded_by(code, **variables)
    assert "click" in loaded
    assert loaded & HEAVY == set()


def test_the_front_door_imports_nothing_but_itself():
    code = "import sys\nbefore = set(sys.modules)\nimport migrate\nprint(*sorted(set(sys.modules) - before))"
    names = in_python(code).split()
    assert {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) == {"migrate"}
    assert [name for name in names if name.startswith("migrate.")] == ["migrate.version"]


def test_importing_the_library_imports_no_heavy_library():
    loaded = loaded_by(
        "import migrate.steps.assess, migrate.pipeline, migrate.stores, migrate.embedders, migrate.datasets.beir, "
        "migrate.langchain, migrate.live"
    )
    assert loaded.isdisjoint(HEAVY - {"numpy"})


def test_a_process_that_decodes_an_index_loads_no_other_kind_of_store():
    code = (
        "import sys, migrate.stores.worker, migrate.stores.faiss.jobs\nprint('migrate.stores.registry' in sys.modules)"
    )
    assert in_python(code) == "False\n"


# "What a store holds." asks the reader to guess; "Return ..." and "The fields of a store." do not.
RIDDLE = re.compile(r"(What|Whether|Where|How|Those|That|Which|As|Who|Whom|Whose|Why|None|Of|Some|Nothing|Nobody)\b")


def test_docstrings_begin_with_a_verb_or_a_noun():
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [
        (str(path.relative_to(PACKAGE)), ast.get_docstring(node))
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, documented)
    ]
    assert [(path, text) for path, text in texts if text and RIDDLE.match(text)] == []


def test_the_contract_of_a_store_fits_on_a_page():
    """What only some kinds can do is an object that a store hands out, not one more member of all stores."""
    most = {"stores/base/Store": 14, "stores/parquet/store/ParquetStore": 20, "databases/store/DatabaseStore": 20}
    members = {
        f"{path.relative_to(PACKAGE).with_suffix('')}/{node.name}": len(_members(node))
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
    }
    assert {name: members[name] for name in most if members[name] > most[name]} == {}


def _members(node):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.AnnAssign, ast.Assign)
    return [member for member in node.body if isinstance(member, kinds)]


def test_a_class_name_means_one_thing():
    names = [name for path in MODULES for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)]
    assert {name for name in names if names.count(name) > 1 and not name.startswith("_")} == set()


def test_names_say_what_they_hold(package):
    """Of 1,000 bound names at most eight are words such as `found`, `place` or `kept`."""
    assert package.vague_share() <= 0.008, "python docs/house.py prints the share"


def test_messages_name_the_event():
    """Say "duplicate query id 'x'", and not "expected different query ids, found 'x' twice"."""
    texts = {str(path.relative_to(PACKAGE)): path.read_text() for path in MODULES}
    assert [path for path, text in texts.items() if re.search(r"\bexpected\b.{0,80}?\bfound\b", text)] == []


# Reading goes through `open_file` and its like in `migrate/files.py`, which refuse pipes and devices. These may not:
UNCHECKED = {
    "cli/demo": "what the package itself brings, and a page that it has just written",
    "cli/terminal": "the null device, on purpose",
    "datasets/download": "a download of its own",
    "datasets/stdlib": "what the package itself brings",
    "embedders/registry": "what the package itself brings",
    "report/page": "what the package itself brings",
    "command_notes": "notes in a folder that nobody else can write to",
    "databases/ordered_rows": "an export, which it has just made",
    "stores/export": "an export, by its descriptor",
    "stores/faiss/jobs": "a guarded process, and the files of its parent",
    "stores/faiss/lists": "an index that it writes",
    "stores/added_fields": "what it has just written",
    "stores/kept": "what it has just written",
    "stores/parquet/columns": "what `refuse_endless_in` has looked at",
    "stores/worker": "the kernel's word on this process",
    "threads": "the kernel's word on this process",
    "work/shards": "what `open_file` has opened",
    "work/writer": "an output, which is written",
}
OPENERS = {"read_bytes", "read_text", "load", "fromfile", "memmap", "copyfile", "copy", "copy2", "copytree", "open"}
OPENING_MODULES = {"np", "numpy", "shutil", "os"}


def opens_by_itself(node):
    """Whether a call opens a path without the check."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id == "open"
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in OPENERS:
        return False
    name, owner = node.func.attr, node.func.value
    if name in ("read_bytes", "read_text"):
        return True
    if isinstance(owner, ast.Name) and owner.id in OPENING_MODULES:
        return name != "copy" or owner.id == "shutil"
    first = node.args[0] if node.args else None
    return name == "open" and isinstance(first, ast.Constant) and str(first.value).startswith("r")


def test_whatever_is_read_passes_one_check():
    own = {str(path.relative_to(PACKAGE).with_suffix("")) for path in MODULES if any(map(opens_by_itself, nodes(path)))}
    core = {name for name in own if not name.startswith("testing/")} - {"files"}
    assert core == set(UNCHECKED)
