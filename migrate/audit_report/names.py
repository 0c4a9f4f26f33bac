"""Names of arms and of measures, as reports of audits have them."""

FULL = "full re-embed"
TRANSLATED = "translated"
STAY = "stay"
BRIDGE = "bridge"
BM25 = "BM25"
HYBRID = "hybrid"
HYBRID_FULL = "hybrid, full"
MEAN = "mean"
RANDOM = "random"

# With a number behind them: how many documents the second stage ranks
TWO_STAGE = "two-stage"
TOGETHER = "together"

# The measures that verdicts rest on
NDCG = "nDCG@10"
AGREEMENT = "agreement@10"
