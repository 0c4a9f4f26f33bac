"""Test suites that every kind of a part must pass, to inherit from in a test module; they need pytest."""
