"""Exact search: which documents answer a query, by vectors or by words. The audit judges the answers."""
