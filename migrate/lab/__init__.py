"""Tools beside a migration, which no step of it imports: `embed`, `compare`, `carry`, `labels` and `private`."""
