"""Types, errors, checks, random streams, rows of clients and registries: everything uses them."""
