"""`lead-migrate labels`: what classifiers and detectors keep that were trained on true vectors."""

from __future__ import annotations

from migrate.cli import options
from migrate.lab.labels.options import LabelOptions


@options.command(
    "labels",
    "Judge vectors by classifiers trained on true ones.",
    example="lead-migrate labels new-store --reference full --labels labels.jsonl",
)
@options.record(LabelOptions)
@options.agreed
@options.accept_margin
@options.model_options
@options.report_options
@options.dry_run
@options.as_json
@options.progress
@options.done_by("migrate.lab.labels.action:command")
def command() -> None:
    """Judge the vectors of a translated STORE by models that were trained on those of a full re-embed.

    A linear probe and kNN are trained on one half of the labelled documents, and with --outside a detector; the other
    half is judged by its true and by its translated vectors. Prints SAFE (exit 0), NOT SAFE (1) or INCONCLUSIVE (3) by
    the worst of them. The model embeds a few documents, which prove the reference.
    """
