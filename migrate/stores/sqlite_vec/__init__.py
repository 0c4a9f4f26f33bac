"""Tables of SQLite with a column of sqlite-vec."""
