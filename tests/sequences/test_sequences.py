"""Commands in every order, kills between them, and a world that changes meanwhile: what must hold whatever was done.

Each step is a command as it is typed, in a process of its own, or something that a user does to a store. A searcher may
answer queries all the while. After each step,

- a store that the command was not to write is as it was, to the last byte;
- a store holds the documents that the old one had when it was last written, with their texts and metadata;
- a vector that is called true is the model's, of the text beside it, and all of a store are of one version of it;
- no command says SAFE of a store that keeps less than the margin of what a full re-embed by the model of today gives;
- no text that the cache has is paid for again, but for a few by which the model is proven;
- the searcher answers with documents that are there, and ranks by true vectors what it says it does;
- the exit code is one of the table, and nothing prints a traceback;
- what was killed is done by the same command, and after another one too, or as that one says.

`LEAD_MIGRATE_SEQUENCES=100` tries a hundred sequences of each kind of store, the same ones each time, or others where
`LEAD_MIGRATE_FIRST_SEQUENCE` names the first; `LEAD_MIGRATE_SEQUENCE_STEPS` makes them longer.
"""

import os
import shutil
import tempfile
from itertools import count
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
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
from kinds import kind_class
from openai_server import OpenAIServer
from searching import Searching
from session import Session, digest
from world import Content, World, content_of

from migrate.datasets.beir import write_beir
from migrate.errors import LeadMigrateError
from migrate.stores.switching import BESIDE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_000)]

MODEL = "openai:tiny"
MARGIN = 0.95
NEW_STORES = ("a", "b")
RUN_STORE = "run/store"
KINDS = {
    "faiss": "{}",
    "parquet": "parquet:{}",
    "lancedb": "lancedb:{}#docs",
    "sqlite-vec": "sqlite-vec:{}#items",
    "chroma": "chroma:{}#docs",
    "qdrant": "qdrant:{}#docs",
}
SETTINGS = {
    name: int(os.environ.get(f"LEAD_MIGRATE_{name}", default))
    for name, default in {"SEQUENCES": "1", "FIRST_SEQUENCE": "0", "SEQUENCE_STEPS": "10"}.items()
}
ABSENT = "absent"
"""In the place of documents: no store is there."""

a_new_store = st.sampled_from(NEW_STORES)
seldom = st.sampled_from([False, False, True])
a_number = st.integers(0, 11)
"""Which of the stores, reports or stitches there are; now and then one that is not there."""
a_kill = (
    st.none()
    | st.integers(1, 60)
    | st.sampled_from(["recorded:1", "filled:1", "complete:1", "published:1", "embedded:1", "vectors written:1"])
)
a_kill_of_a_switch = st.none() | st.integers(1, 40) | st.sampled_from(
    ["noted:1", "noted:2", "moved:1", "moved:2", "exchanged:1", "set aside:1"]
)  # fmt: skip


class Sequences(RuleBasedStateMachine):
    """A user with an old store, `old`, up to two new ones, a stitch, reports, and a model behind a server."""

    kind = "faiss"
    is_tried = False
    """The first example, which always is that of no steps, is over."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="sequences-"))
        self.holds = {}
        """Lists of the documents that each store may hold, one of which it has; nothing of one that was spoilt."""
        self.digests = {}
        """The files of stores as they were when they were last read."""
        self.switched = None
        self.reports = {}
        """The version of the model that each report was made with."""
        self.numbers = count()
        self.spoilt = set()
        """Stores with a table of another one, or made from such: what they call true may be anything."""
        self.searching = None
        self.names_served = set()

    def teardown(self):
        if self.searching is not None:
            self.end_search(kill=False)
        if hasattr(self, "server"):
            self.server.__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)

    @initialize(shared=st.sampled_from([1, 1, 0.9, 0.7, 0]))
    def begin(self, shared):
        self.world = World(shared)
        if not self.is_tried:
            type(self).is_tried = True
            return
        self.server = OpenAIServer().__enter__()
        self.server.vectors = lambda texts: self.world.new_vectors(texts)
        self.session = Session(
            self.folder, ("old", "stale", "foreign", *NEW_STORES, RUN_STORE), self.server, self.world
        )
        self.maker = kind_class(self.kind)()
        self.make_old()
        relevant = {query: {name: 1} for query, name in self.world.looked_for.items()}
        documents = [document for document, _ in self.world.records.values()]
        write_beir(self.folder / "beir", documents, self.world.queries, relevant)
        (self.folder / "stitches").mkdir()
        self.fit("ridge", foreign=False)
        self.translate("a", kill=None, finishes=True)

    def make_old(self):
        self.old = self.maker.make(self.folder / "old", dict(self.world.records))
        self.holds["old"] = [content_of(self.world.records)]

    def pick(self, number):
        """A new store that is there by its number, or one that is not."""
        present = [name for name in (*NEW_STORES, RUN_STORE) if (self.folder / name).exists()]
        return present[number % len(present)] if present and number else NEW_STORES[-1]

    def location(self, name):
        """A store as it is named on the command line; also where another one took its place by a switch."""
        if name in (*NEW_STORES, RUN_STORE):
            return self.output(name) + self.maker.options
        return self.old.replace(f"{self.folder}/old", f"{self.folder}/{name}")

    def output(self, name):
        """A store as it is named where it is to be written."""
        return KINDS[self.kind].format(self.folder / name)

    # What is typed

    def write(self, name, *arguments, source, kill, finishes):
        """Run a command that writes a store from the documents of another; its exit code, None for nothing to do.

        Where it was killed, it is run again if it `finishes`; else it is left to the commands that come. Where it is
        told to start over, it does.
        """
        code = self.session.run(*arguments, writes=[name], kill=kill)
        if code == 137 and not finishes:
            self.holds[name] = self.either(name, source)
            self.spoilt |= {name} if source in self.spoilt else set()
            return code
        if code == 137:
            code = self.session.run(*arguments, writes=[name])
            assert code not in (5, 6, 7) or self.searching, self.session.printed
        if code in (2, 4) and self.session.advice() == ["--restart"]:
            code = self.session.run(*arguments, "--restart", writes=[name])
            assert "unfinished work" not in self.session.printed, self.session.printed
        if code == 0 and "nothing to migrate" in self.session.printed:
            return None
        # What it names as the way out is one
        assert "rollback" not in self.session.printed or self.switched is not None, self.session.printed
        if code == 0:
            self.holds[name] = self.holds.get(source)
            self.spoilt = self.spoilt - {name} if source not in self.spoilt else self.spoilt | {name}
        return code

    def either(self, name, source):
        """What a store may hold that was being written."""
        possible = [self.holds.get(name, [ABSENT]), self.holds.get(source, [ABSENT])]
        return None if None in possible else possible[0] + possible[1]

    @rule(kind=st.sampled_from(["ridge", "procrustes"]), foreign=st.booleans())
    def fit(self, kind, foreign):
        source = self.old
        if foreign:  # one of the same size and dimension, whose vectors are of another model
            records = {name: (document, -vector[::-1]) for name, (document, vector) in self.world.records.items()}
            shutil.rmtree(self.folder / "foreign", ignore_errors=True)
            source = self.maker.make(self.folder / "foreign", records)
        output = f"stitches/{next(self.numbers)}"
        options = ["--target", MODEL, "--kind", kind, "--sample", "80", "-o", output, "--yes", "-q"]
        if self.session.run("fit", source, *options) == 0 and not foreign:
            self.put_stitch(self.folder / output)

    @rule(number=a_number)
    def the_stitch_is_another(self, number):
        stitches = sorted((self.folder / "stitches").iterdir())
        if stitches:
            self.put_stitch(stitches[number % len(stitches)])

    def put_stitch(self, path):
        stitch = self.folder / "stitch"
        if path.is_dir():
            shutil.rmtree(stitch, ignore_errors=True)
            shutil.copytree(path, stitch)
        else:
            shutil.copy(path, stitch)

    @rule(name=a_new_store, kill=a_kill, finishes=st.booleans(), any_store=st.booleans())
    def translate(self, name, kill, finishes, any_store=False):
        arguments = ["translate", self.old, "stitch", "-o", self.output(name), "--force", "-q"]
        arguments += ["--any-store"] if any_store else []
        self.write(name, *arguments, source="old", kill=kill, finishes=finishes)

    @rule(name=a_new_store, kill=a_kill, finishes=st.booleans())
    def reembed(self, name, kill, finishes):
        arguments = ["reembed", self.old, "--target", MODEL, "-o", self.output(name), "--force", "--yes", "-q"]
        if self.write(name, *arguments, source="old", kill=kill, finishes=finishes) == 0:
            self.are_of_one_model(name, Content.of(self.location(name)), everything=True)

    @rule(name=a_new_store, share=st.sampled_from(["60%", "90%"]), kill=a_kill, finishes=st.booleans())
    def reembed_share(self, name, share, kill, finishes):
        arguments = ["reembed", self.old, "--target", MODEL, "-o", self.output(name), "--force", "--yes", "-q"]
        arguments += ["--share", share, "--stitch", "stitch"]
        self.write(name, *arguments, source="old", kill=kill, finishes=finishes)

    @precondition(lambda self: self.kind == "faiss")
    @rule(name=a_new_store, kill=a_kill, finishes=st.booleans())
    def embed(self, name, kill, finishes):
        shutil.copy(self.folder / "old" / "docs.jsonl", self.folder / "corpus.jsonl")
        arguments = ["embed", "corpus.jsonl", "--model", MODEL, "-o", name, "--no-chunks", "--force", "--yes", "-q"]
        if self.write(name, *arguments, source="old", kill=kill, finishes=finishes) == 0:
            self.are_of_one_model(name, Content.of(self.location(name)), everything=True)

    @rule(number=a_number, kill=a_kill, finishes=st.booleans())
    def sync(self, number, kill, finishes):
        self.bring_up_to_date(self.pick(number), kill=kill, finishes=finishes)

    def bring_up_to_date(self, name, *, kill, finishes):
        """Sync a store; the exit code. What somebody else wrote into it stays there."""
        was_spoilt = name in self.spoilt
        arguments = ["sync", self.old, self.location(name), "--yes", "-q"]
        code = self.write(name, *arguments, source="old", kill=kill, finishes=finishes)
        self.spoilt |= {name} if was_spoilt else set()
        return code

    @rule(number=a_number, output=a_new_store, kill=a_kill, finishes=st.booleans())
    def backfill(self, number, output, kill, finishes):
        source = self.pick(number)
        arguments = ["backfill", self.location(source), "-o", self.output(output), "--force", "-q"]
        self.write(output, *arguments, "--target", MODEL, source=source, kill=kill, finishes=finishes)

    @rule(number=a_number, kill=a_kill, finishes=st.booleans())
    def complete_while_it_serves(self, number, kill, finishes):
        name = self.pick(number)
        arguments = ["live", "run", self.location(name), "--once", "--budget", "30%", "--yes", "--target", MODEL]
        self.write(name, *arguments, source=name, kill=kill, finishes=finishes)

    @rule(
        number=a_number,
        reference=st.sampled_from(["pool", "build"]),
        source=st.sampled_from(["", "old", "stale"]),
        switches=st.booleans(),
    )
    def audit(self, number, reference, source, switches):
        name = self.pick(number)
        report = f"report-{next(self.numbers)}.json"
        arguments = ["audit", self.location(name), "--reference", reference, "--judged", "beir", "--two-stage", "none"]
        arguments += ["--source", self.location(source)] if source and (self.folder / source).exists() else []
        code = self.session.run(*arguments, "--target", MODEL, "--report", report, "--yes", "-q")
        if (self.folder / report).exists():
            self.reports[report] = self.world.version
        if code == 0:
            kept = self.world.retention(self.location(name))
            assert kept >= MARGIN - 0.005, f"SAFE of a store that keeps {kept:.3f}: {self.session.printed}"
            if switches:
                self.switch_to(name, ["--audit", report], kill=None, meanwhile=0, undoes=False)

    @rule(kill=a_kill, finishes=st.booleans(), options=st.sampled_from([[], [], ["--force"], ["--margin", "0.9"]]))
    def run(self, kill, finishes, options):
        report = "run/report.json"
        arguments = [
            "run",
            self.old,
            "--reference",
            "pool",
            "--target",
            MODEL,
            "-o",
            "run",
            "--kind",
            "ridge",
            "--sample",
            "80",
            *options,
        ]
        arguments += ["--judged", "beir", "--yes", "-q"]
        before = digest(self.folder / "run")
        code = self.session.run(*arguments, writes=[RUN_STORE], kill=kill)
        if code == 137 and finishes:
            code = self.session.run(*arguments, writes=[RUN_STORE])
            assert code not in (5, 6, 7) or self.searching, self.session.printed
        if "nothing to migrate" in self.session.printed:
            return
        is_done = code in (0, 1, 3) and (self.folder / RUN_STORE).exists()
        if digest(self.folder / "run") != before:
            self.holds[RUN_STORE] = self.holds.get("old") if is_done else self.either(RUN_STORE, "old")
            self.spoilt = self.spoilt - {RUN_STORE} if "old" not in self.spoilt else self.spoilt | {RUN_STORE}
            if is_done and (self.folder / report).exists():
                self.reports[report] = self.world.version
        if code == 0 and "--margin" not in options:
            kept = max(
                self.world.retention(self.location(RUN_STORE), version) for version in range(1, self.world.version + 1)
            )
            assert kept >= MARGIN - 0.005, f"SAFE of a store that keeps {kept:.3f}: {self.session.printed}"

    @rule(number=a_number)
    def check(self, number):
        name = self.pick(number)
        code = self.session.run("check", self.location(name), "--model", MODEL, "-q", "--sample", "all")
        if code == 0:  # also of translated vectors that are near the model's, which it counts
            is_translated = "are translated" in self.session.printed
            self.are_of_one_model(name, Content.of(self.location(name)), everything=not is_translated)

    @rule(number=a_number)
    def inspect(self, number):
        self.session.run("inspect", self.location(self.pick(number)), pays=False)

    @rule(
        number=a_number,
        report=st.none() | a_number,
        unproven=st.booleans(),
        kill=a_kill_of_a_switch,
        meanwhile=a_number,
        undoes=st.booleans(),
    )
    def switch(self, number, report, unproven, kill, meanwhile, undoes):
        proof = ["--unproven"] if unproven else []
        if report is not None and self.reports and not unproven:
            proof = ["--audit", sorted(self.reports)[report % len(self.reports)]]
        self.switch_to(self.pick(number), proof, kill=kill, meanwhile=meanwhile, undoes=undoes)

    def switch_to(self, name, proof, *, kill, meanwhile, undoes, is_synced=False):
        """Switch to a store by the proof that the options name; where that is killed, go on or undo it.

        A store that is not up to date is synced, where the switch says so.
        """
        arguments = ["switch", self.old, self.location(name), *proof]
        was_new = self.is_new("old")
        code = self.session.run(*arguments, writes=["old", name], kill=kill, pays=False)
        if code == 137:
            self.do_something_else(name, meanwhile)
            if undoes and not was_new:
                self.undo_switch()
                assert not self.is_new("old")
                return
            code = self.session.run(*arguments, writes=["old", name], pays=False)
        if code != 0:
            assert self.is_new("old") == was_new
            if "`sync`" in self.session.printed:
                assert not is_synced, self.session.printed
                if self.bring_up_to_date(name, kill=None, finishes=True) == 0:
                    self.switch_to(name, proof, kill=None, meanwhile=0, undoes=False, is_synced=True)
        elif not was_new:
            assert self.is_new("old") and not self.is_new(name)
            self.holds["old"], self.holds[name] = self.holds[name], self.holds["old"]
            self.spoilt = {"old" if spoilt == name else spoilt for spoilt in self.spoilt}
            self.switched = name
            self.was_proven(name, proof)

    def do_something_else(self, name, number):
        """Run another command than the one that was killed, by its number; it may refuse."""
        others = [
            ["inspect", self.old],
            ["inspect", self.location(name)],
            ["sync", self.old, self.location(name), "--yes", "-q"],
            ["live", "run", self.location(name), "--once", "--budget", "1", "--yes"],
            ["audit", self.location(name), "--judged", "beir", "--two-stage", "none", "--yes", "-q"],
        ]
        command, *arguments = others[number % len(others)]
        writes = [name] if command in ("sync", "live") else []
        self.session.run(command, *arguments, writes=writes, pays=command != "inspect")

    def undo_switch(self):
        """Roll back a switch that was killed, or find that it had not begun."""
        code = self.session.run("rollback", self.old, writes=self.session.stores, pays=False)
        assert code == 0 or "nothing was switched" in self.session.printed, self.session.printed

    def was_proven(self, name, proof):
        """See that a store that took the place of the old one was SAFE by the report, or is a full re-embed."""
        if proof == ["--unproven"]:
            return
        if proof or name == RUN_STORE:
            report = proof[-1] if proof else "run/report.json"
            kept = self.world.retention(self.old, self.reports[report])
            margin = 0.9 if report.startswith("run") else MARGIN
            assert kept >= margin - 0.005, f"switched by {report} to a store that keeps {kept:.3f}"
        else:
            self.are_of_one_model("old", Content.of(self.old), everything=True)

    @precondition(lambda self: self.switched is not None)
    @rule(kill=a_kill_of_a_switch, meanwhile=a_number)
    def rollback(self, kill, meanwhile):
        name = self.switched
        code = self.session.run("rollback", self.old, writes=["old", name], kill=kill, pays=False)
        if code == 137:
            self.do_something_else(name, meanwhile)
            self.undo_switch()
        else:
            assert code == 0, self.session.printed
        assert not self.is_new("old")
        self.rolled_back()

    def rolled_back(self):
        name = self.switched
        self.holds["old"], self.holds[name] = self.holds[name], self.holds["old"]
        self.spoilt = {name if spoilt == "old" else spoilt for spoilt in self.spoilt}
        self.switched = None

    @precondition(lambda self: self.switched is not None)
    @rule(kill=a_kill_of_a_switch, changes_mind=st.booleans())
    def forget(self, kill, changes_mind):
        name = self.switched
        code = self.session.run("forget", self.old, "--yes", writes=[name], kill=kill, pays=False)
        if code == 137:
            if changes_mind:
                code = self.session.run("rollback", self.old, writes=["old", name], pays=False)
                if code == 0:
                    assert not self.is_new("old")
                    self.rolled_back()
                    return
                assert "forget" in self.session.printed or "nothing was switched" in self.session.printed
            code = self.session.run("forget", self.old, "--yes", writes=[name], pays=False)
        # Where it was killed right at its end, nothing is left to forget
        assert code == 0 or (kill is not None and code == 2), self.session.printed
        assert self.is_new("old")
        assert self.session.run("inspect", self.location(name), pays=False) == 4, "it is deleted"
        del self.holds[name]
        self.switched = None
        # The migration is done; the user starts another one, from a backup of the old store
        shutil.rmtree(self.folder / "old")
        self.spoilt.discard("old")
        self.make_old()

    # What happens meanwhile

    @precondition(lambda self: self.searching is None)
    @rule(number=a_number)
    def a_searcher_starts(self, number):
        name = self.pick(number)
        self.names_served = set()
        self.served_version, self.served_changes = self.world.version, self.world.changes
        self.session.is_shared = True
        self.searching = Searching(
            self.location(name),
            self.world.queries,
            self.folder / "answers.jsonl",
            cache=self.folder / self.session.cache,
            environment=self.session.environment,
        )

    @precondition(lambda self: self.searching is not None)
    @rule(kill=st.booleans())
    def end_search(self, kill):
        searching, self.searching = self.searching, None
        self.session.is_shared = False
        for line in searching.stop(kill=kill):
            assert "traceback" not in line, line["traceback"]
            if "refused" in line:
                assert "\n" not in line["refused"], line
                continue
            assert set(line["ids"]) <= self.names_served, f"{line} has documents that no store had"
            if line["untrue"] == 0 and self.served_version == self.world.version:
                self.is_ranked_by_truth(line)

    def is_ranked_by_truth(self, line):
        """See that an answer without untrue vectors has the scores of the model's own."""
        vectors = self.world.new_vectors([line["query"], *line["texts"].values()])
        squared = ((vectors[1:] - vectors[0]) ** 2).sum(axis=1)
        true = dict(zip(line["texts"], squared.tolist(), strict=True))
        for name, score in zip(line["ids"], line["scores"], strict=True):
            if name in true and self.served_changes == self.world.changes:
                assert min(abs(score - true[name]), abs(score - 1 + true[name] / 2)) < 1e-3, f"{name} in {line}"

    def is_new(self, name):
        """Whether a store has vectors of the new model, or of a stitch for it, by the first of them."""
        held = Content.of(self.location(name))
        first = min(held.documents)
        return not np.allclose(held.vectors[first], self.world.old_vector(held.documents[first][0]), atol=1e-3)

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
        self.holds["old"] = [content_of(self.world.records)]

    @rule(happens=seldom)
    def another_model_answers_under_the_name(self, happens):
        self.world.version += happens

    @rule(number=st.integers(0, 2))
    def another_cache_is_named(self, number):
        self.session.cache = f"cache-{number}.sqlite"

    @rule(number=a_number, happens=seldom)
    def the_manifest_is_lost(self, number, happens):
        name = self.pick(number)
        if not happens:
            return
        for path in (self.folder / name).rglob("lead-migrate.json"):
            path.unlink()

    @precondition(lambda self: self.switched is None)
    @rule(source=st.sampled_from(["a", "b", "old"]))
    def a_folder_is_copied(self, source):
        target = {"a": "b", "b": "a", "old": "stale"}[source]
        if not (self.folder / source).exists():
            return
        shutil.rmtree(self.folder / target, ignore_errors=True)
        shutil.copytree(self.folder / source, self.folder / target)
        if source != "old":
            self.holds[target] = self.holds.get(source)
            self.spoilt = self.spoilt - {target} if source not in self.spoilt else self.spoilt | {target}

    @precondition(lambda self: self.switched is None)
    @rule(name=a_new_store, source=st.sampled_from(["a", "b", "old", "stale"]), happens=seldom)
    def a_table_is_replaced(self, name, source, happens):
        """All files of a store but those that lie beside it come from another one."""
        if not happens or name == source or not all((self.folder / store).exists() for store in (name, source)):
            return
        for store, change in ((name, Path.unlink), (source, self.copy_to(name))):
            for path in list((self.folder / store).rglob("*")):
                if path.is_file() and path.name not in BESIDE:
                    change(path)
        self.holds[name] = None
        self.spoilt.add(name)

    def copy_to(self, target):
        """A function that copies a file to the same path in another store."""

        def copy(path):
            relative = path.relative_to(self.folder).parts[1:]
            copied = self.folder.joinpath(target, *relative)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copied)

        return copy

    # What must hold

    @invariant()
    def stores_hold_what_they_should(self):
        for name, possible in self.holds.items():
            now = digest(self.folder / name)
            if possible is None or (len(possible) == 1 and self.digests.get(name) == (now, possible)):
                continue
            try:
                held = Content.of(self.location(name))
            except LeadMigrateError as error:
                assert ABSENT in possible, f"{name}: {error}"
                continue
            assert held.documents in possible, name
            self.holds[name] = [held.documents]
            self.digests[name] = now, self.holds[name]
            if name not in self.spoilt:
                self.are_of_one_model(name, held)
        if self.searching is not None:
            for possible in self.holds.values():
                for documents in possible or [content_of(self.world.records)]:
                    self.names_served |= set(documents) if documents is not ABSENT else set()

    def are_of_one_model(self, name, held, *, everything=False):
        """See that the vectors that a store calls true, or all of them, are the model's."""
        names = list(held.vectors) if everything else held.true_names
        if not names:
            return
        vectors = np.stack([held.vectors[document] for document in names])
        texts = [held.documents[document][0] for document in names]
        errors = [
            np.abs(vectors - self.world.new_vectors(texts, version)).max()
            for version in range(1, self.world.version + 1)
        ]
        assert min(errors) < 1e-3, f"{name}: what it calls true is of no version: {errors}"


@pytest.mark.parametrize(
    "number", range(SETTINGS["FIRST_SEQUENCE"], SETTINGS["FIRST_SEQUENCE"] + SETTINGS["SEQUENCES"])
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_must_hold_holds_after_every_sequence(kind, number):
    machine = seed(crc32(f"{kind} {number}".encode()))(type(f"Sequences_{kind}", (Sequences,), {"kind": kind}))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=2,  # the first one does nothing: see `is_tried`
            stateful_step_count=SETTINGS["SEQUENCE_STEPS"],
            database=None,
            deadline=None,
            phases=[Phase.generate],  # a sequence takes long: it is not made shorter
            suppress_health_check=list(HealthCheck),
        ),
    )
