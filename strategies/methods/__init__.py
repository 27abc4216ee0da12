"""The methods: what each asks in a round, learns from the release, and yields."""
