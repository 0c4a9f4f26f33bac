"""`lead-migrate status`: where the migration of a file stands."""

from __future__ import annotations

from migrate.cli import options


@options.command("status", example="lead-migrate status")
@options.as_json
@options.progress
@options.done_by("migrate.cli.project.status:command")
def status() -> None:
    """Say where the migration of lead-migrate.toml stands.

    Shows what was fitted, translated, judged and switched, what has changed since, and the next command. It reads what
    the commands have written, and both stores; nothing is embedded or written.
    """
