"""Bounded contributions of clients, vectorised over the clients of a `Shards`."""

if __name__ != "fedcal.clients":  # a second copy of every class and registry would be made
    raise ImportError(f"import fedcal.clients, not {__name__}")
