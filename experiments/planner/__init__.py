"""What a budget, rounds and clients buy, before anything runs: from public facts only."""
