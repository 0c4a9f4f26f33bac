"""`lead-migrate init`: the file of a migration."""

from __future__ import annotations

from dataclasses import dataclass, field

from migrate.cli import options
from migrate.steps.base import JUDGED, UNJUDGED, argument
from migrate.steps.base import option as described
from migrate.steps.fit.options import TARGET


@dataclass(frozen=True, slots=True)
class InitOptions:
    """The answers of `init`, as far as they were typed."""

    store: str = field(metadata=argument("The store to move.", "store"))
    target: str | None = field(default=None, metadata=TARGET)
    source_model: str | None = field(
        default=None,
        metadata=described(
            "Model that STORE was built with.  [default: the one that the store names]",
            "text",
            metavar="SPEC",
        ),
    )
    judged: str | None = field(default=None, metadata={**JUDGED, "section": None})
    queries: str | None = field(default=None, metadata={**UNJUDGED, "section": None})
    output: str = field(
        default="moved",
        metadata=described("Folder for the stitch, the new store and the report.", "path", flags=("--output", "-o")),
    )
    force: bool = field(default=False, metadata=described("Replace lead-migrate.toml if it exists."))


@options.command("init", example="lead-migrate init my-store --target tfidf:64 --judged my-beir")
@options.record(InitOptions)
@options.quiet
@options.done_by("migrate.cli.project.init:command")
def init() -> None:
    """Write lead-migrate.toml for a migration of STORE.

    In the folder of that file, and below it, commands need no arguments any more: they take the store, the models, the
    queries and the outputs from it. Looks into STORE for what it says of itself, and asks for the rest; without a
    terminal, options say it.
    """
