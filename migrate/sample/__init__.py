"""The sample: which documents are embedded again, and the pairs of old and new vectors that this gives."""

from migrate.sample.draw import SAMPLE_SIZE, STRATEGIES, Pairs, Sample, choose_strategy, draw_sample, embed_pairs
from migrate.sample.query_log import QueryLog, query_log_rows

__all__ = [
    "SAMPLE_SIZE",
    "STRATEGIES",
    "Pairs",
    "QueryLog",
    "Sample",
    "choose_strategy",
    "draw_sample",
    "embed_pairs",
    "query_log_rows",
]
