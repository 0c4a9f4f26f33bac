"""BEIR folders, corpora, chunking, and the embedded demo corpus."""
