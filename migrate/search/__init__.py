"""Exact search: which documents answer a query, by vectors or by words. What an answer is worth is the audit's."""
