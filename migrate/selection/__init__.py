"""The sample: which documents to embed again, and the pairs of old and new vectors this gives."""

from migrate.selection.pairs import Pairs, embed_all_pairs, embed_pairs
from migrate.selection.query_log import QueryLog, query_log_rows
from migrate.selection.sample import (
    SAMPLE_SIZE,
    STRATEGIES,
    Sample,
    choose_strategy,
    draw_sample,
    random_order,
)

__all__ = [
    "SAMPLE_SIZE",
    "STRATEGIES",
    "Pairs",
    "QueryLog",
    "Sample",
    "choose_strategy",
    "draw_sample",
    "embed_all_pairs",
    "embed_pairs",
    "query_log_rows",
    "random_order",
]
