"""The JSON report of an audit that is SAFE, with no more than what readers of reports look at."""

from migrate.display import AUDIT_SCHEMA

BOUNDS = {"estimate": 0.99, "lower": 0.96, "upper": 1.01}


def safe_report(stores, *, verdict=None, **more):
    """A report of some `stores`, with other parts, and with other facts of its `verdict`."""
    facts = {
        "outcome": "SAFE",
        "sentence": "retention 99.0 % (95 % bounds: 96.0-101.0 %), at least the margin of 95 %",
        "provisional": False,
        "measured": "retention",
        "retention": BOUNDS,
        "safe_from": 0.95,
        "not_safe_below": 0.95,
        "margin": 0.95,
        "gain_over_stay": None,
        "queries": 40,
        "groups": 38,
        **(verdict or {}),
    }
    return {
        "schema_version": AUDIT_SCHEMA,
        "kind": "audit",
        "verdict": facts,
        "dataset": {"documents": 200},
        "family": {"two-stage 20": BOUNDS},
        "plan": {"name": "translated", "outcome": facts["outcome"]},
        "reference": None,
        "stores": stores,
        **more,
    }
