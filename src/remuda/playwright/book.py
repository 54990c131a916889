"""Where the scripts of this room find what they share: the keys of `book.lua`, in its order."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from remuda.fleet.bell import bell_of
from remuda.keyspace import playwright
from remuda.keyspace.fleet import BELL
from remuda.keyspace.key import ChannelName, Key, Name
from remuda.keyspace.metering import TIMER, TIMERS
from remuda.playwright.model import ServedBrowser
from remuda.store import Script, load_script

_BY_BROWSER: Final[Sequence[Key[Any]]] = (
    playwright.PLAYWRIGHT_WORKERS,
    playwright.PLAYWRIGHT_VERSIONS,
    playwright.PLAYWRIGHT_OFFERS,
    playwright.PLAYWRIGHT_SUSPECTS,
    playwright.PLAYWRIGHT_LEASES,
    playwright.PLAYWRIGHT_LEAVING,
    playwright.PLAYWRIGHT_VACANT,
    playwright.PLAYWRIGHT_TOTALS,
    playwright.PLAYWRIGHT_WAITS,
    playwright.PLAYWRIGHT_FAILURES,
    playwright.PLAYWRIGHT_ORIGINS,
)
_TEMPLATES: Final[Sequence[Key[Any]]] = (
    playwright.WORKER,
    playwright.WORKER_COMMAND,
    playwright.PLAYWRIGHT_CONNECTIONS,
    playwright.PLAYWRIGHT_FREE,
)
_KEYS = (
    playwright.ACTIVE_CONNECTIONS,
    playwright.LIFETIME_CONNECTIONS,
    *_BY_BROWSER,
    *_TEMPLATES,
    BELL,
    playwright.PLAYWRIGHT_OBSTACLES,
    TIMER,
    TIMERS,
)


def freed_bell(browser: ServedBrowser) -> ChannelName:
    """Rung when a place at a worker of this browser may have become free."""
    return bell_of(f"playwright:{browser}")


def load(name: str, *args: str) -> Script:
    """The script of this room with this name, which takes these arguments."""
    return load_script(__file__, name, keys=_KEYS, args=args, shared="book.lua")


def _keys_of(browser: ServedBrowser) -> list[Name]:
    return [
        playwright.ACTIVE_CONNECTIONS(),
        playwright.LIFETIME_CONNECTIONS(),
        *(key(browser) for key in _BY_BROWSER),
        *(Name(key.template(browser)) for key in _TEMPLATES),
        freed_bell(browser),
        playwright.PLAYWRIGHT_OBSTACLES(browser),
        Name(TIMER.template()),
        TIMERS(),
    ]


BOOK: Mapping[ServedBrowser, Sequence[Name]] = {browser: _keys_of(browser) for browser in ServedBrowser}
"""Browser -> what a script of this room takes as its keys."""
