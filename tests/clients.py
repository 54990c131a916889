"""Stock Selenium clients of a herd."""

from typing import Any

from selenium import webdriver

from installed import LIGHTEST


def options_for(browser: str = LIGHTEST, /, **capabilities: Any) -> webdriver.ChromeOptions:
    """What a client asks for that wants such a Chromium."""
    options = webdriver.ChromeOptions()
    for name, value in {"browserName": browser, **capabilities}.items():
        options.set_capability(name, value)
    return options
