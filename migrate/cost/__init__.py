"""Tokens, money, time and room, before anything is spent; and the meter that holds spending to what was said.

tokens ← tokenizer_file, api_tokens, estimate   who counts: the model's tokenizer, or an estimate
target      a model without loading it             count      a store's texts, streaming
rates, resources, quality                          plans      the ways to move, side by side
assess      all of it                              answers    the two answers in words
meter       an embedder that stops at a cap        quick      four characters a token
"""

from migrate.cost.assess import Assessment, assess_store
from migrate.cost.quick import CHARS_PER_TOKEN, Cost, estimate_cost, estimate_tokens, price_of, usd_of

__all__ = [
    "CHARS_PER_TOKEN",
    "Assessment",
    "Cost",
    "assess_store",
    "estimate_cost",
    "estimate_tokens",
    "price_of",
    "usd_of",
]
