"""A corpus embedded into a new store, in chunks that the model reads to their end."""
