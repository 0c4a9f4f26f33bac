"""The sample: which documents are embedded again, and the pairs of old and new vectors that this gives."""

from migrate.sample.draw import SAMPLE_SIZE, Sample, draw_sample
from migrate.sample.pairs import Pairs, embed_pairs
from migrate.sample.query_log import QueryLog, query_log_rows
from migrate.sample.strategies import STRATEGIES, choose_strategy

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
