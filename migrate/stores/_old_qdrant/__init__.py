"""Collections of Qdrant, in a folder of its local mode or on a server."""
