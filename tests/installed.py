"""The browsers of this machine, looked for once: that starts each of them."""

import pytest

from remuda.grid.browsers import find_browsers

BROWSERS = {browser.name: browser for browser in find_browsers()}
"""By name, in the order in which the grid prefers them."""

needs_browser = pytest.mark.skipif(not BROWSERS, reason="no browser here: run make setup")

LIGHTEST = "chrome-headless-shell" if "chrome-headless-shell" in BROWSERS else "chrome"
"""For tests that are about sessions, not about a browser: its start takes a third of a whole Chromium's."""
