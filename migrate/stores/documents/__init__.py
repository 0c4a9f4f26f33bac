"""Reads the documents of a store: one module for each framework's files beside the index."""
