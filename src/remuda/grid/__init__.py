"""Browsers by WebDriver: the manager queues a request, an orchestrator gives it a slot, a node holds it."""
