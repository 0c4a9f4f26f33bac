"""BEIR folders, corpora, and the embedded demo corpus."""
