"""What a client computes: bounded contributions, vectorised over the clients of a `Shards`."""

from __future__ import annotations

from fedcal._neighbours import require_neighbours

require_neighbours("clients")
