"""Browsers by WebDriver: the manager creates sessions, orchestrators own slots, a node holds one session."""
