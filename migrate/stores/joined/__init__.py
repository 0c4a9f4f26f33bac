"""Several collections of a place, read as one store and written as such again."""
