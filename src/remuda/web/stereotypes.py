"""Browsers as Selenium's capabilities: what a session asked for or got, and what a slot stands for. Pure."""

from typing import Any

from remuda.grid.capabilities import keeps_downloads
from remuda.grid.view import Browser

Capabilities = dict[str, Any]


def named(browser: Browser) -> Capabilities:
    """A browser as capabilities; what may be anything is left out."""
    capabilities = {
        "browserName": browser.name,
        "browserVersion": browser.version,
        "platformName": browser.platform,
    }
    return {name: value for name, value in capabilities.items() if value}


def stereotype(browser: Browser) -> Capabilities:
    """What a slot offers with this browser, in the words by which Selenium's tools tell who fits whom."""
    offered = named(browser)
    return {**offered, "se:downloadsEnabled": True} if keeps_downloads(browser.name) else offered
