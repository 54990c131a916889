"""Remuda: a self-hosted herd of browsers behind one port, coordinated by one Redis."""

__version__ = "0.1.0"
