"""Work that survives being killed: shards, the outputs that they make, and who makes them."""
