"""Embedding models: every provider behind one interface."""
