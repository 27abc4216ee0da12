"""What everything else is built on: types, errors, checks, streams, rows of clients, registries."""
