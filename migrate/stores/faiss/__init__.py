"""FAISS indexes: read exactly as they are, decoded in a guarded process where they must be, and written again."""
