"""Parquet: files of vectors with ids, texts and metadata, in a folder or on object storage."""
