"""What a site writes down: what it has sent and signed, and what it was charged."""
