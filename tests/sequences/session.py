"""A session at a terminal: commands in processes of their own, what they print, write and pay for."""

import hashlib
import os
import re
import sqlite3
from collections import Counter
from contextlib import closing

from children import start_command

SWITCH_FILES = ("-shm", "-wal", ".lead-migrate-switch")
"""The ends of names of files that readers and switches leave in a store's folder."""

MOST_PROOFS = 48
"""Texts that a command may have embedded again, at most, to prove that a model is the one it was: six times 8."""

ENDS_IN_STEPS = """
import os
calls = 0
def ending(function):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == {step}:
            os._exit(137)
        return function(*arguments, **options)
    return call
for name in ("replace", "rename", "fsync", "unlink", "rmdir", "link", "mkdir"):
    setattr(os, name, ending(getattr(os, name)))
"""
"""Python that ends a process where it changes a file for the Nth time."""

ENDS_AT_MOMENT = "import dying\ndying.die_at({moment!r})"


def digest(folder):
    """The hash of each file below a folder, but for what a switch leaves there; None where there is none."""
    if not folder.exists():
        return None
    for path in folder.rglob("*.db-wal"):  # which whoever opens the database next brings into it
        with closing(sqlite3.connect(path.with_name(path.name.removesuffix("-wal")))) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.endswith(SWITCH_FILES)]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


class Session:
    """Commands that are run in a folder of stores, of which `stores` are watched, with a model behind a server.

    `cache` is the embedding cache of the commands to come, `printed` what the last one has said.
    """

    def __init__(self, folder, stores, server, world):
        self.folder, self.stores, self.server, self.world = folder, stores, server, world
        self.cache = "cache-0.sqlite"
        self.printed = ""
        self.is_shared = False
        """Another process pays by the same cache meanwhile."""

    @property
    def environment(self):
        """The variables of every process."""
        return {
            **{name: text for name, text in os.environ.items() if not name.startswith(("LEAD_MIGRATE_", "OPENAI_"))},
            "XDG_CACHE_HOME": str(self.folder / "user-cache"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "OPENAI_BASE_URL": self.server.url,
            "OPENAI_API_KEY": "sk-none",
        }

    def run(self, *arguments, writes=(), kill=None, pays=True):
        """Run a command; its exit code. Stores that it is not to write are as they were, and nothing is paid twice.

        It is killed at its `kill`th change of a file, or at a moment of `dying.py`.
        """
        before = {name: digest(self.folder / name) for name in self.stores if name not in writes}
        caching = ["--cache", self.cache] if pays else []
        known, n_billed = self.cached_vectors(), len(self.server.billed)
        output, prelude = self.folder / "printed", ""
        if kill is not None:
            prelude = ENDS_IN_STEPS.format(step=kill) if isinstance(kill, int) else ENDS_AT_MOMENT.format(moment=kill)
        given = [*arguments, *caching]
        process = start_command(given, self.folder, output, prelude=prelude, environment=self.environment)
        process.join(120)
        assert process.exitcode is not None, f"{given} does not end"
        self.printed = output.read_text("utf-8") if output.exists() else ""
        told = f"{' '.join(map(str, given))} -> {process.exitcode}\n{self.printed}"
        told = told.replace(str(self.folder) + "/", "").rstrip()
        print(told if kill is None else f"(kill {kill}) {told}")
        assert "Traceback" not in self.printed, told
        assert process.exitcode in range(8) or (kill is not None and process.exitcode == 137), told
        for name, files in before.items():
            assert digest(self.folder / name) == files, f"{name} was written by {told}"
        if not self.is_shared:
            self._check_bill(self.server.billed[n_billed:], known, told, was_killed=process.exitcode == 137)
        return process.exitcode

    def cached_vectors(self):
        """The vectors that the cache has, as bytes."""
        path = self.folder / self.cache
        if not path.exists():
            return set()
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            try:
                return {vector for (vector,) in database.execute("SELECT vector FROM embeddings")}
            except sqlite3.OperationalError:  # killed before it had tables
                return set()

    def _check_bill(self, billed, known, told, *, was_killed):
        """Nothing that the cache had was paid for again, and it has what was paid for."""
        billed = [text for text in billed if text != "word"]  # by which the dimension is asked
        if not billed:
            return
        vectors = {text: vector.tobytes() for text, vector in zip(billed, self.world.new_vectors(billed), strict=True)}
        repeated = sum(vectors[text] in known for text in billed)
        repeated += sum(times - 1 for text, times in Counter(billed).items() if vectors[text] not in known)
        assert repeated <= MOST_PROOFS, f"{repeated} of {len(billed)} texts were paid for twice by {told}"
        if not was_killed:
            kept = self.cached_vectors()
            lost = [text for text, vector in vectors.items() if vector not in kept]
            assert len(lost) <= MOST_PROOFS, f"{len(lost)} of {len(vectors)} texts were paid for and not kept by {told}"

    def advice(self):
        """The option or the command that the last message names as the way out; None where it names none."""
        if "--restart" in self.printed:
            return ["--restart"]
        named = re.search(r"`(sync|rollback|backfill)( [^`]*)?`", self.printed)
        return None if named is None else [named[1], *(named[2] or "").split()]
