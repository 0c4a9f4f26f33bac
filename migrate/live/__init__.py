"""Serving a translated store: new-model queries from the first day, true vectors where users look, and a verdict."""
