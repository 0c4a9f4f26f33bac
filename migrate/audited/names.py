"""Names of arms and of measures, as reports of audits have them."""

FULL, TRANSLATED, STAY, BRIDGE, BM25 = "full re-embed", "translated", "stay", "bridge", "BM25"
HYBRID, HYBRID_FULL = "hybrid", "hybrid, full"
MEAN, RANDOM = "mean", "random"
TWO_STAGE, TOGETHER = "two-stage", "together"

NDCG, AGREEMENT = "nDCG@10", "agreement@10"
"""The measures that verdicts rest on."""
