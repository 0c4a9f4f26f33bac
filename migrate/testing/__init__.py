"""Conformance suites that every kind of a part passes, for another package to inherit; they need pytest."""
