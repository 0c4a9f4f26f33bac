"""Rates as users write them: requests, documents or tokens in a second, a minute or an hour."""

from __future__ import annotations

import re


def parse_rate(text: str) -> tuple[float, int, bool] | None:
    """Return an amount, for how many seconds it is, and True if it is one of tokens; None for what is no rate, or 0.

    >>> parse_rate("3000/min"), parse_rate("50 tok/s"), parse_rate("fast")
    ((3000.0, 60, False), (50.0, 1, True), None)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(tok)?/(s|min|h)", text.replace(" ", ""), re.ASCII)
    if match is None or not 0 < float(match[1]) < float("inf"):
        return None
    return float(match[1]), {"s": 1, "min": 60, "h": 3600}[match[3]], match[2] is not None
