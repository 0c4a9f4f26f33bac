"""The cost of embedding, before anything is spent, and the cap that holds spending to it.

count       tokens of texts, streaming                  unread     what a model never reads of long texts
rates       how fast texts are embedded; prices         estimate   the cost of some texts for one model
spending    the models of a step, and its estimate      meter      an embedder that stops at a cap
deal        a migration or a full re-embed              assess     the table of all ways
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
