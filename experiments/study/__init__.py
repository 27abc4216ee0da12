"""A study: named sites, one release a quarter, and what it says of each of them."""
