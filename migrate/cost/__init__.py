"""What embedding costs, before anything is spent, and the cap that holds spending to it.

target      a model's facts, and tokens of texts        count      a store's texts, streaming
chunks      cut by the target's tokens                  rates      how fast texts can be embedded; tokens in dollars
plans       the ways to move, side by side              answers    the two answers in words
assess      all of it
estimate    what some texts will cost one model         meter      an embedder that stops at a cap
spending    plan, then run: a step, its models, its estimate and its cap
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
