"""Conformance suites that every kind passes, and that another package can inherit for its own."""
