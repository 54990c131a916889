"""Side-by-side measurements against peers; each prints a table and keeps its numbers as JSON."""
