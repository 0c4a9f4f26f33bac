"""What embedding costs, before anything is spent, and the cap that holds spending to it.

count       tokens of texts, streaming                  chunks     texts cut by the target's tokens
rates       how fast texts are embedded; dollars        estimate   the bill of some texts for one model
plans       the ways to move, side by side              answers    the two answers in words
assess      all of it                                   deal       a migration beside a full re-embed
meter       an embedder that stops at a cap             spending   the models of a step, and its estimate
"""

from migrate.cost.assess import Assessment, assess_store
from migrate.cost.count import Tally, tally_of
from migrate.cost.rates import Cost, usd_of

__all__ = [
    "Assessment",
    "Cost",
    "Tally",
    "assess_store",
    "tally_of",
    "usd_of",
]
