"""How large a noisy count must be before its threshold covers enough."""
