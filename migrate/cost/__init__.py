"""The cost of embedding, before anything is spent, and the cap that holds spending to it.

count       tokens of texts, streaming                  chunks     texts cut by the target's tokens
rates       how fast texts are embedded; prices         estimate   the cost of some texts for one model
spending    the models of a step, and its estimate      meter      an embedder that stops at a cap
plans       the ways to move, side by side              quality    what is known of them
answers     what to do, in words                        assess     all of it
"""

from migrate.cost.assess import Assessment, assess_store
from migrate.cost.count import Tally, tally_of
from migrate.cost.estimate import Estimate
from migrate.cost.rates import usd_of

__all__ = [
    "Assessment",
    "Estimate",
    "Tally",
    "assess_store",
    "tally_of",
    "usd_of",
]
