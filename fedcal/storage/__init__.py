"""Files: written whole or not at all, locked, read from strangers without surprises."""
