"""What was found in the old space, beside the documents, in the new one: directions and probes."""
