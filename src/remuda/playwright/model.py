"""Workers, their connections, and the limits they are held to. Pure."""

import re
from dataclasses import dataclass
from enum import StrEnum

from remuda.base.errors import InvalidArgument
from remuda.base.ids import ConnectionId, WorkerId
from remuda.fleet.origin import UNKNOWN, Origin
from remuda.keyspace.playwright import ANY_VERSION
from remuda.playwright.room import PlaywrightConfig

# Playwright's own server compares major and minor only, and only with clients that introduce themselves so.
_CLIENT = re.compile(r"Playwright/(\d{1,4}\.\d{1,4})(?=[.\s]|$)", re.ASCII)
# As Moon has it in its paths.
_IN_PATH = re.compile(r"(?:playwright-)?v?(\d{1,4}\.\d{1,4})(?:\.\d{1,9}(?:-[\w.-]{1,40})?)?", re.ASCII)
# Later than any second until the year 5138, earlier than any millisecond since 1973.
_FIRST_MILLISECOND = 100_000_000_000
# What the config promises is when a crash has healed: the lease, and the time until the next sweep after it.
LEASE_SHARE = 2 / 3

GUARDED = "/guarded/playwright/"
"""What the paths of shared browsers begin with that are behind the herd's secret."""
START_TIMEOUT = 60.0
"""Seconds that a machine may take to start a browser."""

WAIT_BUCKETS = (0.01, 0.05, 0.25, 1, 2, 5, 10, 20, 30, 60, 120, 300)
"""Seconds up to which the waits of clients for a place are told apart, for the metrics."""
BEYOND = "+Inf"
"""The bucket of those that took longer."""


class ServedBrowser(StrEnum):
    """What a worker serves: a browser that its clients share, or one for each client.

    Those of one's own are browser types of their own in Redis: what others, such as the original proxy, look
    for under the documented names are always shared ones.
    """

    CHROMIUM = "chromium"
    FIREFOX = "firefox"
    WEBKIT = "webkit"
    CHROMIUM_OWN = "chromium-own"
    FIREFOX_OWN = "firefox-own"
    WEBKIT_OWN = "webkit-own"

    @property
    def is_own(self) -> bool:
        return self.endswith(_OWN)

    @property
    def engine(self) -> "ServedBrowser":
        """The browser itself, shared or not."""
        return ServedBrowser(self.removesuffix(_OWN))

    @property
    def worker_command(self) -> str:
        """What starts a worker of it."""
        isolation = " --isolation own" if self.is_own else ""
        return f"remuda run worker --browser {self.engine}{isolation}"

    @property
    def own(self) -> "ServedBrowser":
        """The same for one client alone."""
        return ServedBrowser(f"{self.engine}{_OWN}")


OWN = "own"
"""The value of `playwright_isolation` by which each client has a browser of its own."""
_OWN = f"-{OWN}"
ENGINES = tuple(browser for browser in ServedBrowser if not browser.is_own)
"""What clients ask for by name."""


class Status(StrEnum):
    """What a worker says of itself."""

    AVAILABLE = "available"
    DRAINING = "draining"


class Outcome(StrEnum):
    """What a connection showed of its worker."""

    SERVED = "served"
    FAILED = "failed"
    """It did not answer."""
    UNUSED = "unused"
    """The client left before it was connected, or the worker did not suit it."""
    UNKNOWN = ""


@dataclass(frozen=True)
class Worker:
    """A worker, as it introduces itself."""

    browser: ServedBrowser
    id: WorkerId
    endpoint: str
    version: str = ""
    """Of its Playwright, `major.minor`; empty if unknown."""

    @property
    def offer(self) -> str:
        """Its version as the index knows it."""
        return self.version or ANY_VERSION


@dataclass(frozen=True)
class Place:
    """The right of one connection to be served by a worker, from pick to give-back."""

    browser: ServedBrowser
    worker: WorkerId
    endpoint: str
    connection: ConnectionId
    since: int
    """Unix second at which it was picked."""
    origin: Origin = UNKNOWN


@dataclass(frozen=True, kw_only=True)
class WorkerLimits:
    """How much a worker serves, and how long anything is believed."""

    concurrent: int = PlaywrightConfig.playwright_concurrent
    lifetime: int = PlaywrightConfig.playwright_lifetime
    restart_share: int = PlaywrightConfig.playwright_restart_share
    """Percent of a browser's workers, at least one, that may be out at the same time."""
    lease: float = PlaywrightConfig.playwright_lease * LEASE_SHARE
    command_ttl: int = PlaywrightConfig.playwright_command_ttl
    key_ttl: int = PlaywrightConfig.playwright_key_ttl
    reaper_interval: float = PlaywrightConfig.playwright_reaper_interval

    @classmethod
    def of(cls, config: PlaywrightConfig) -> "WorkerLimits":
        return cls(
            concurrent=config.playwright_concurrent,
            lifetime=config.playwright_lifetime,
            restart_share=config.playwright_restart_share,
            lease=config.playwright_lease * LEASE_SHARE,
            command_ttl=config.playwright_command_ttl,
            key_ttl=config.playwright_key_ttl,
            reaper_interval=config.playwright_reaper_interval,
        )


class WorkerSurplus:
    """How many connections a counter shows that nothing stands for, once that has been so for long enough.

    Patience, since a connection is counted before its socket is open, and a gateway that was killed has
    leases without sockets until they run out.
    """

    def __init__(self, *, patience: float) -> None:
        self._patience = patience
        self._since = 0.0
        self._least = 0

    def look(self, surplus: int, now: float) -> int:
        """What there has been too many of all the time; 0 until that is certain."""
        if surplus <= 0:
            self._least = 0
            return 0
        if not self._least:
            self._since, self._least = now, surplus
        self._least = min(self._least, surplus)
        if now - self._since < self._patience:
            return 0
        certain, self._least = self._least, 0
        return certain


def browser_of(text: str) -> ServedBrowser:
    """The browser of this name; InvalidArgument names those there are."""
    if text not in ENGINES:
        raise InvalidArgument(f"There is no browser {text!r}; there are {', '.join(ENGINES)}")
    return ServedBrowser(text)


def browsers_of(text: str) -> set[ServedBrowser]:
    """The browsers of these names, which are separated by commas. Unlike clients, operators may also name
    those of which each client gets one of its own."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    return {ServedBrowser(name) if name in tuple(ServedBrowser) else browser_of(name) for name in names}


def version_of(user_agent: str) -> str:
    """The Playwright version of a client by its User-Agent, `major.minor`; empty for other clients."""
    match = _CLIENT.match(user_agent)
    return match[1] if match else ""


def path_version(part: str) -> str:
    """The Playwright version that this part of a path names, `major.minor`; empty if it names none."""
    match = _IN_PATH.fullmatch(part)
    return match[1] if match else ""


def beat_of(text: str | None) -> float | None:
    """The Unix second of a `lastHeartbeat`; milliseconds, as existing workers write them, are understood."""
    try:
        beat = float(text or "")
    except ValueError:
        return None
    return beat / 1000 if beat >= _FIRST_MILLISECOND else beat


def wait_bucket(waited: float) -> str:
    """The bucket of a wait: the first that it fits in."""
    return next((f"{bucket:g}" for bucket in WAIT_BUCKETS if waited <= bucket), BEYOND)
