"""Browsers by Playwright: workers that hold a browser server, and the proxy that picks one for a client."""
