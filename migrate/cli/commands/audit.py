"""`lead-migrate audit`: a translated store against a full re-embed."""

from __future__ import annotations

from migrate.audit.step import Audit
from migrate.cli import options


@options.command(
    "audit",
    example="lead-migrate audit new-store --reference build --judged my-beir --source my-store",
)
@options.verdict_options(Audit)
@options.done_by("migrate.cli.audit:command")
def audit() -> None:
    """Judge whether a translated STORE is safe to use.

    Prints SAFE (exit 0), NOT SAFE (1) or INCONCLUSIVE (3), with the numbers behind it. With --reference pool, it embeds
    a small part of the documents, and adds more until the verdict is settled or --max-cost is reached; a SAFE by judged
    queries then holds against a full re-embed too.
    """
