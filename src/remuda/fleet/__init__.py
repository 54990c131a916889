"""The mechanisms that every room is built from, one file each. Domain-free: handed keys, know no room."""
