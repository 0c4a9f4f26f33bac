"""Tools beside a migration, which no step of it imports: `compare`, `carry` and `private`."""
