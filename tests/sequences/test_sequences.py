"""Commands in every order, kills between them, and a world that changes meanwhile: what must hold whatever was done.

Each step is a command as it is typed, in a process of its own, or something that a user does to a store. After each,

- a store that the command was not to write is as it was, to the last byte;
- a store holds the documents that the old one had when it was last written, with their texts and metadata;
- a vector that is called true is the model's, of the text beside it, and all of a store are of one version of it;
- no command says SAFE of a store that keeps less than the margin of what a full re-embed by the model of today gives;
- the exit code is one of the table, nothing prints a traceback, and what was killed is done by the same command.

`LEAD_MIGRATE_SEQUENCES=100` tries a hundred sequences of each kind of store, the same ones each time.
"""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from children import start_command
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from openai_server import OpenAIServer
from sync_tools import Folder, Lance, Parquet, SqliteVec
from world import Content, World, content_of

from migrate.datasets.beir import write_beir

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

MODEL = "openai:tiny"
MARGIN = 0.95
PLACES = ("a", "b")
KINDS = {
    "faiss": (Folder, "{}"),
    "parquet": (Parquet, "parquet:{}"),
    "lancedb": (Lance, "lancedb:{}#docs"),
    "sqlite-vec": (SqliteVec, "sqlite-vec:{}/my.db#items"),
}
DIES = """
import os
calls = 0
def dying(function):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == {at}:
            os._exit(137)
        return function(*arguments, **options)
    return call
for name in ("replace", "rename", "fsync", "unlink", "rmdir", "link", "mkdir"):
    setattr(os, name, dying(getattr(os, name)))
"""
"""Python that ends a process where it changes a file for the Nth time."""

a_place = st.sampled_from(PLACES)
a_store = st.integers(0, 11)
"""Which of the stores there are; now and then one that is not there."""
a_kill = st.none() | st.integers(1, 60)


def digest(folder):
    """The hash of each file below a folder, but for what a switch leaves there; None where there is none."""
    if not folder.exists():
        return None
    others = ("-shm", "-wal", ".lead-migrate-switch")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.endswith(others)]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


class Sequences(RuleBasedStateMachine):
    """A user with an old store, `old`, up to three new ones, a stitch, and a model behind a server."""

    kind = "faiss"

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="sequences-"))
        self.holds = {}
        """The documents that each store is to hold; of one that nobody answers for, nothing."""
        self.switched = None
        self.versions = {}
        """The version of the model when a store was last written, or found SAFE."""

    def teardown(self):
        if hasattr(self, "server"):
            self.server.__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)

    @initialize(faithful=st.booleans())
    def begin(self, faithful):
        self.world = World(faithful)
        self.server = OpenAIServer().__enter__()
        self.server.vectors = lambda texts: self.world.new_vectors(texts)
        self.maker = KINDS[self.kind][0]()
        self.old = self.maker.make(self.folder / "old", dict(self.world.records))
        self.holds["old"] = content_of(self.world.records)
        relevant = {query: {name: 1} for query, name in self.world.looked_for.items()}
        documents = [document for document, _ in self.world.records.values()]
        write_beir(self.folder / "beir", documents, self.world.queries, relevant)
        self.fit()
        self.translate("a", None)

    def there(self, number):
        """A store that is there by its number, or one that is not."""
        stores = [place for place in PLACES if (self.folder / place).exists()]
        return stores[number % len(stores)] if stores and number else PLACES[-1]

    def location(self, place):
        """A store as it is named on the command line."""
        return self.old if place == "old" else KINDS[self.kind][1].format(self.folder / place)

    # What is typed

    def lead(self, *arguments, writes=(), dies=None):
        """Run a command; its exit code. Stores that it is not to write are as they were."""
        before = {name: digest(self.folder / name) for name in ("old", *PLACES) if name not in writes}
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("LEAD_MIGRATE_", "OPENAI_"))},
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "OPENAI_BASE_URL": self.server.url,
            "OPENAI_API_KEY": "sk-none",
        }
        output, prelude = self.folder / "printed", "" if dies is None else DIES.format(at=dies)
        process = start_command(arguments, self.folder, output, prelude=prelude, environment=environment)
        process.join(120)
        assert process.exitcode is not None, f"{arguments} does not end"
        self.printed = output.read_text("utf-8") if output.exists() else ""
        told = f"{' '.join(map(str, arguments))} -> {process.exitcode}\n{self.printed}"
        print(told.replace(str(self.folder) + "/", "").rstrip())
        assert "Traceback" not in self.printed, told
        assert process.exitcode in range(8) or (dies is not None and process.exitcode == 137), told
        for name, files in before.items():
            assert digest(self.folder / name) == files, f"{name} was written by {told}"
        return process.exitcode

    def write(self, place, *arguments, source, dies):
        """Run a command that writes a place from another's documents; again, where it was killed on the way."""
        documents = self.holds.get(source)
        code = self.lead(*arguments, writes=[place], dies=dies)
        if code == 137:
            code = self.lead(*arguments, writes=[place])
            assert code not in (5, 6, 7), self.printed
        if code == 0:
            self.holds[place], self.versions[place] = documents, self.world.version

    @rule()
    def fit(self):
        options = ["--target", MODEL, "--kind", "ridge", "--sample", "80", "-o", "stitch", "--force"]
        self.lead("fit", self.old, *options, "--yes", "-q")

    @rule(place=a_place, dies=a_kill)
    def translate(self, place, dies):
        arguments = ["translate", self.old, "stitch", "-o", self.location(place), "--force", "-q"]
        self.write(place, *arguments, source="old", dies=dies)

    @rule(place=a_place, dies=a_kill)
    def reembed(self, place, dies):
        arguments = ["reembed", self.old, "--target", MODEL, "-o", self.location(place), "--force", "--yes", "-q"]
        self.write(place, *arguments, source="old", dies=dies)

    @rule(store=a_store, dies=a_kill)
    def sync(self, store, dies):
        place = self.there(store)
        self.write(place, "sync", self.old, self.location(place), "--yes", "-q", source="old", dies=dies)

    @rule(store=a_store, new=a_place, dies=a_kill)
    def backfill(self, store, new, dies):
        old = self.there(store)
        arguments = ["backfill", self.location(old), "-o", self.location(new), "--force", "-q"]
        arguments += ["--target", MODEL]
        self.write(new, *arguments, source=old, dies=dies)

    @rule(store=a_store, dies=a_kill)
    def complete_while_it_serves(self, store, dies):
        place = self.there(store)
        arguments = ["live", "run", self.location(place), "--once", "--budget", "30%", "--yes"]
        arguments += ["--target", MODEL]
        self.write(place, *arguments, source=place, dies=dies)

    @rule(store=a_store, reference=st.sampled_from(["pool", "build"]), compares=st.booleans())
    def audit(self, store, reference, compares):
        place = self.there(store)
        arguments = ["audit", self.location(place), "--reference", reference, "--judged", "beir", "--two-stage", "none"]
        arguments += ["--source", self.old] if compares else []
        code = self.lead(*arguments, "--target", MODEL, "--report", f"{place}.json", "--yes", "-q")
        if code == 0:
            kept = self.world.retention(self.location(place))
            assert kept >= MARGIN - 0.005, f"SAFE of a store that keeps {kept:.3f}: {self.printed}"
            self.versions[place] = self.world.version

    @rule(store=a_store, unproven=st.booleans(), dies=a_kill)
    def switch(self, store, unproven, dies):
        place = self.there(store)
        arguments = ["switch", self.old, self.location(place)]
        report = self.folder / f"{place}.json"
        arguments += ["--unproven"] if unproven else ["--report", report.name] if report.exists() else []
        before = self.is_new("old")
        code = self.lead(*arguments, writes=["old", place], dies=dies)
        if code == 137:
            code = self.lead(*arguments, writes=["old", place])
        if code == 0 and not before:
            assert self.is_new("old") and not self.is_new(place)
            self.holds["old"], self.holds[place] = self.holds[place], self.holds["old"]
            self.switched = place
            if not unproven and self.versions.get(place) == self.world.version:
                kept = self.world.retention(self.old)
                assert kept >= MARGIN - 0.005, f"switched to a store that keeps {kept:.3f}"

    @precondition(lambda self: self.switched is not None)
    @rule(dies=a_kill)
    def rollback(self, dies):
        place = self.switched
        code = self.lead("rollback", self.old, writes=["old", place], dies=dies)
        if code == 137:
            code = self.lead("rollback", self.old, writes=["old", place])
        # Where it was killed right at its end, nothing is left to roll back
        assert code == 0 or (dies is not None and code == 2), self.printed
        assert not self.is_new("old")
        self.holds["old"], self.holds[place] = self.holds[place], self.holds["old"]
        self.switched = None

    @precondition(lambda self: self.switched is not None)
    @rule(dies=a_kill)
    def forget(self, dies):
        place = self.switched
        code = self.lead("forget", self.old, "--yes", writes=[place], dies=dies)
        if code == 137:
            code = self.lead("forget", self.old, "--yes", writes=[place])
        assert code == 0 or (dies is not None and code == 2), self.printed
        assert self.is_new("old")
        assert self.lead("inspect", self.location(place)) == 4, "it is deleted"
        self.holds[place] = self.switched = None
        # The migration is done; the user starts another one, from a backup of the old store
        shutil.rmtree(self.folder / "old")
        self.old = self.maker.make(self.folder / "old", dict(self.world.records))
        self.holds["old"] = content_of(self.world.records)

    # What happens meanwhile

    def is_new(self, place):
        """Whether a store has vectors of the new model, or of a stitch for it, by the first of them."""
        held = Content.of(self.location(place))
        name = min(held.documents)
        return not np.allclose(held.vectors[name], self.world.old_vector(held.documents[name][0]), atol=1e-3)

    @precondition(lambda self: self.switched is None)
    @rule(draw=st.integers(0, 1_000), added=st.integers(0, 6), changed=st.integers(0, 6), deleted=st.integers(0, 6))
    def documents_change(self, draw, added, changed, deleted):
        before = dict(self.world.records)
        names = list(np.random.default_rng(draw).permutation(sorted(before)))
        for name in names[:changed]:
            self.world.put(str(name))
        for number in range(added):
            self.world.put(f"new-{self.world.changes}-{number}")
        for name in names[changed : changed + deleted]:
            del self.world.records[str(name)]
        if self.world.records.keys() != before.keys() or changed:
            self.maker.change(self.old, before, dict(self.world.records))
        self.holds["old"] = content_of(self.world.records)

    @rule()
    def another_model_answers_under_the_name(self):
        self.world.version += 1

    @rule(store=a_store)
    def the_manifest_is_lost(self, store):
        place = self.there(store)
        for path in (self.folder / place).rglob("lead-migrate.json"):
            path.unlink()

    @precondition(lambda self: self.switched is None and (self.folder / "a").exists())
    @rule()
    def a_folder_is_copied(self):
        shutil.rmtree(self.folder / "b", ignore_errors=True)
        shutil.copytree(self.folder / "a", self.folder / "b")
        self.holds["b"], self.versions["b"] = self.holds.get("a"), self.versions.get("a")

    # What must hold

    @invariant()
    def stores_hold_what_they_should(self):
        for place, documents in self.holds.items():
            if documents is None:
                continue
            held = Content.of(self.location(place))
            assert held.documents == documents, place
            self.are_of_one_model(place, held)

    def are_of_one_model(self, place, held):
        if not held.true_names:
            return
        vectors = np.stack([held.vectors[name] for name in held.true_names])
        texts = [held.documents[name][0] for name in held.true_names]
        errors = [
            np.abs(vectors - self.world.new_vectors(texts, version)).max()
            for version in range(1, self.world.version + 1)
        ]
        assert min(errors) < 1e-3, f"{place}: vectors that are called true are of no version of the model: {errors}"


@pytest.mark.parametrize("number", range(int(os.environ.get("LEAD_MIGRATE_SEQUENCES", "3"))))
@pytest.mark.parametrize("kind", KINDS)
def test_what_must_hold_holds_after_every_sequence(kind, number):
    machine = seed(number)(type(f"Sequences_{kind}", (Sequences,), {"kind": kind}))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=2,  # the first one always is that of no steps
            stateful_step_count=12,
            database=None,
            deadline=None,
            phases=[Phase.generate],  # a sequence takes long: it is not made shorter
            suppress_health_check=list(HealthCheck),
        ),
    )
