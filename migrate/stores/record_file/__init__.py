"""Stores that are one file of records with a vector each: JSON, a line or a row a record, or of nano-vectordb."""
