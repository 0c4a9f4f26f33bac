"""Move a vector store to another embedding model without re-embedding it all, and prove that it is safe."""

__version__ = "0.1.0"
