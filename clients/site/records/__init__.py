"""Records of a site: the answers it has sent and signed, and the budget it was charged."""
