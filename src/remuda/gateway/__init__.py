"""The front door: one port, routes by path, relays."""
