"""`lead-migrate assess`: the plans of a migration side by side, with what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from migrate.cli import options
from migrate.steps.assess import Assess
from migrate.steps.base import COST, QUERIES, UNJUDGED
from migrate.steps.base import JUDGED as BY_JUDGEMENTS
from migrate.steps.base import option as described


@dataclass(frozen=True, slots=True)
class Judging:
    """The queries that judge targets, and what that may cost."""

    judged: str | None = field(default=None, metadata=BY_JUDGEMENTS)
    queries: str | None = field(default=None, metadata=UNJUDGED)
    source_model: str | None = field(
        default=None,
        metadata=described("Model that STORE was built with.", "text", metavar="SPEC", section=QUERIES),
    )
    sample: int = field(
        default=1_000,
        metadata=described("Documents to learn a translation from.", "pairs", section=QUERIES, is_seldom=True),
    )
    max_cost: float = field(
        default=5.0,
        metadata=described(
            "The most dollars to spend on judging without asking; spending stops there.",
            "usd",
            metavar="USD",
            section=COST,
        ),
    )

    @property
    def has_queries(self) -> bool:
        """True where there are queries to judge by."""
        return self.judged is not None or self.queries is not None


@options.command(
    "assess",
    example="lead-migrate assess my-store --target openai:text-embedding-3-small",
)
@options.record(Assess)
@options.record(Judging, argument="judging")
@options.agreed
@options.model_options
@options.report_options
@options.force_reports
@options.dry_run
@options.as_json
@options.progress
@options.done_by("migrate.cli.assess:command")
def assess() -> None:
    """Estimate what moving STORE to another model would cost, or which of several models to move to.

    One table compares a full re-embed, a migration with its sample and proof, two stages, and staying: tokens, money,
    time, and the quality that is kept. Nothing is sent anywhere and no key is needed. Texts that are in the embedding
    cache count as paid for.

    With --judged or --queries, the targets are judged: each embeds a sample and a pool of documents, after you have
    seen the price, and one table shows the quality and the cost of a full re-embed and of a translation.

    The rate in SPEC,rate=N/UNIT may count texts of a local model here, and tokens: 1000000tok/min, or one of each with
    a comma between. Without it the limits of `--tier` hold.
    """
