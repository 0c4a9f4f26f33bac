"""Where the documents of a store are kept: one module for each framework's files beside the index."""
