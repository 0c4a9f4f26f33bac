"""Steps of a migration, each one dataclass: parameters of the library, options of the command, and its own plan."""
