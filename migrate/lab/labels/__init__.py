"""The worth of translated vectors to classifiers and detectors that were trained on true ones."""
