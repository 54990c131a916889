"""What clients may tell a browser: listed, so that what is not known is not passed on.

A client that can name a program, a path or a port of this machine in a switch, a preference or a variable can
run that program, or read and write there. A list of such names would always lack one; hence these lists name
what is harmless. The rest is refused by name, unless the operator allows it (`allow_browser_args`). A few
words that are common in tutorials and pointless here are dropped.

Each room that starts browsers uses one `Sieve` for each request.
"""

from typing import Any

from remuda.fleet.permits import chromium, firefox
from remuda.fleet.permits.rules import NOTHING_MORE, Allowance, PreferenceRules, sift_preferences

__all__ = ["NOTHING_MORE", "Allowance", "Sieve"]


class Sieve:
    """Sifts what one client says to one browser.

    InvalidArgument names what is refused; `dropped` has the names of what was left out without a refusal.
    `where` is for messages: the part of the request that is looked at.
    """

    def __init__(self, allowed: Allowance = NOTHING_MORE) -> None:
        self.allowed = allowed
        self.dropped: list[str] = []

    def chromium_args(self, given: Any, *, where: str) -> list[str]:
        """Switches, each as `--name` or `--name=value`."""
        return self._note(chromium.sift_args(given, self.allowed, where=where))

    def chromium_excluded(self, given: Any, *, where: str) -> list[str]:
        """Names of default switches that are to be left out, without dashes."""
        return chromium.sift_excluded(given, self.allowed, where=where)

    def chromium_prefs(self, given: Any, *, where: str) -> dict[str, Any]:
        """Preferences of a profile, by dotted name or nested."""
        return self._prefs(given, chromium.PREFERENCES, where)

    def chromium_local_state(self, given: Any, *, where: str) -> dict[str, Any]:
        """Preferences of the whole browser."""
        return self._prefs(given, chromium.LOCAL_STATE, where)

    def firefox_args(self, given: Any, *, where: str) -> list[str]:
        """Arguments; the value of one is the next."""
        return self._note(firefox.sift_args(given, self.allowed, where=where))

    def firefox_prefs(self, given: Any, *, where: str) -> dict[str, Any]:
        """Preferences as about:config names them."""
        return self._prefs(given, firefox.PREFERENCES, where)

    def firefox_env(self, given: Any, *, where: str) -> dict[str, str]:
        """Variables for the browser's process."""
        return firefox.check_variables(given, self.allowed, where=where)

    def _prefs(self, given: Any, rules: PreferenceRules, where: str) -> dict[str, Any]:
        kept, dropped = sift_preferences(given, rules, self.allowed, where=where)
        self.dropped += dropped
        return kept

    def _note(self, sifted: tuple[list[str], list[str]]) -> list[str]:
        kept, dropped = sifted
        self.dropped += dropped
        return kept
