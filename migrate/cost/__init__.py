"""Tokens, money, time and room, before anything is spent; and the meter that holds spending to what was said.

tokens ← tokenizer_file, api_tokens, estimate   who counts: the model's tokenizer, or an estimate
target      a model without loading it             count      a store's texts, streaming
chunks      cut by the target's tokens              unread   what it leaves unread of longer texts
rates, resources, quality                          plans      the ways to move, side by side
assess      all of it                              answers    the two answers in words
tally       the counter for all that is not `assess`   price   dollars
meter       an embedder that stops at a cap            said    what a command says before and after
"""

from migrate.cost.assess import Assessment, assess_store
from migrate.cost.rates import Cost, usd_of
from migrate.cost.target import Tally, tally_of

__all__ = [
    "Assessment",
    "Cost",
    "Tally",
    "assess_store",
    "tally_of",
    "usd_of",
]
