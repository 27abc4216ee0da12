"""What a budget and clients buy of prediction sets, before anything runs."""
