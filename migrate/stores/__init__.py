"""Vector stores: every format that is read and written."""
