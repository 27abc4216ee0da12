"""What a client computes of its rows, vectorised over the clients of a `Shards`."""
