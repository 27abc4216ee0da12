"""A real site: its policy, its rows, its side of secure sums, and what it writes down."""
