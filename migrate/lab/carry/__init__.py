"""Directions and probes that were found in the old space beside the documents, carried into the new one."""
