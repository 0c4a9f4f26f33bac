"""The comparison of stores of the same documents, by the measures of `migrate.lab.similarity`."""
