"""Tables of PostgreSQL with a column of pgvector."""
