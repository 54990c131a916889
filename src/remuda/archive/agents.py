"""User-Agents by the aliases that the original's users know."""

from collections.abc import Mapping

_CHROME = "Mozilla/5.0 ({}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 {}Safari/537.36"
_FIREFOX = "Mozilla/5.0 ({}; rv:140.0) Gecko/20100101 Firefox/140.0"
_SAFARI = "Mozilla/5.0 ({}) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 {}Safari/{}"
_WINDOWS = "Windows NT 10.0; Win64; x64"
_LINUX = "X11; Linux x86_64"
_MAC = "Macintosh; Intel Mac OS X 10_15_7"
_IPHONE = "iPhone; CPU iPhone OS 18_5 like Mac OS X"

USER_AGENTS: Mapping[str, str] = {
    "chrome": _CHROME.format(_WINDOWS, ""),
    "chrome-linux": _CHROME.format(_LINUX, ""),
    "chrome-mac": _CHROME.format(_MAC, ""),
    "chrome-android": _CHROME.format("Linux; Android 10; K", "Mobile "),
    "firefox": _FIREFOX.format(_WINDOWS),
    "firefox-linux": _FIREFOX.format(_LINUX),
    "firefox-android": "Mozilla/5.0 (Android 15; Mobile; rv:140.0) Gecko/140.0 Firefox/140.0",
    "safari": _SAFARI.format(_MAC, "", "605.1.15"),
    "safari-ios": _SAFARI.format(_IPHONE, "Mobile/15E148 ", "604.1"),
    "curl": "curl/8.14.1",
    "googlebot": "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
}
"""Alias -> what is sent."""


def find_user_agent(text: str) -> str:
    """The User-Agent of an alias; any other text stands for itself."""
    return USER_AGENTS.get(text.strip().lower(), text)
