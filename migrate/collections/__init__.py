"""Many collections of one place, one after the other: a loop around the steps of one store."""
