"""Statistics of a client's rows, vectorised over the clients of a `Shards`."""
