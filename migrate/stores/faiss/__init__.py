"""FAISS indexes: flat ones are read directly, others are decoded in a child process, and all can be written again."""
