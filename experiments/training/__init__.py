"""Models trained over clients by a method, with their data."""
