"""Collections of Chroma, in a folder or on a server."""
