"""Which browsers Playwright can serve on this machine, and what it must be told to launch each.

A path that the config names comes first, then Playwright's own build, which fits best, then what the
machine has. Everything here looks at the disk: on an event loop, call it in a thread.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remuda.base.config import Config
from remuda.base.confinement import protection_of
from remuda.base.errors import InvalidArgument, Misconfigured
from remuda.base.programs import locate, search
from remuda.fleet.browsers import (
    CHROMIUM_COMMANDS,
    FIREFOX_COMMANDS,
    HEADLESS_SHELL_COMMANDS,
    QUIET_ARGS,
    BrowserConfig,
    all_places,
)
from remuda.fleet.display import has_screens
from remuda.playwright.driver import has_build

Options = Mapping[str, Any]
"""Options of Playwright's `launch`."""


@dataclass(frozen=True)
class Launch:
    """A browser that can be served."""

    browser: str
    options: Options
    program: Path | None = None
    """The browser's program; None when it is Playwright's own build."""

    @property
    def has_window(self) -> bool:
        """Whether it needs a screen."""
        return self.options.get("headless") is False

    def __str__(self) -> str:
        return f"{self.browser} ({self.program or 'own build'})"


def find_launch(browser: str, config: Config) -> Launch:
    """How to launch this browser here; Misconfigured, with what to do, when it cannot be served."""
    if browser not in _FINDERS:
        raise Misconfigured(f"Playwright has no browser {browser!r}; it has {', '.join(_FINDERS)}")
    find, advice = _FINDERS[browser]
    launch = find(config)
    if launch is None:
        raise Misconfigured(f"Playwright found no {browser} on this machine: {advice}")
    return launch


def find_tailored_launch(browser: str, config: Config, wishes: Options) -> Launch:
    """How to launch it as a client wishes; InvalidArgument names what this machine cannot do."""
    wishes = dict(wishes)
    config = config.replace(headless=wishes.pop("headless", config[BrowserConfig].headless))
    if not config[BrowserConfig].headless and not has_screens(config):
        raise InvalidArgument("The launch option 'headless' cannot be false here: Xvfb is not installed")
    channel = wishes.pop("channel", "")
    launch = _find_channel(browser, channel, config) if channel else find_launch(browser, config)
    options = dict(launch.options)
    path = wishes.pop("executablePath", "")
    if path and (launch.program is None or locate(Path(path)).resolve() != launch.program.resolve()):
        raise _not_offered("executablePath", path, launch)
    sandbox = wishes.pop("chromiumSandbox", None)
    if browser == "chromium" and sandbox is not None and sandbox != options["chromiumSandbox"]:
        raise InvalidArgument(
            f"The launch option 'chromiumSandbox' cannot be {str(sandbox).lower()} on this machine"
        )
    options["args"] = [*options.get("args", ()), *wishes.pop("args", ())]
    return replace(launch, options={**options, **wishes})


def _find_channel(browser: str, channel: str, config: Config) -> Launch:
    if browser == "chromium" and channel in _CHANNELS:
        if channel == "chromium" and has_build("chromium") and not config[BrowserConfig].chromium:
            return _chromium_at(None, config, channel=channel)
        program = _first(_CHANNELS[channel])
        if program is not None:
            return _chromium_at(program, config)
    launch = find_launch(browser, config)
    if channel != launch.options.get("channel"):
        raise _not_offered("channel", channel, launch)
    return launch


def _not_offered(option: str, value: str, launch: Launch) -> InvalidArgument:
    return InvalidArgument(f"The launch option {option!r} is {value!r}, which is not offered; {launch} is")


def servable(config: Config) -> list[Launch]:
    """All browsers that can be served here, the usual one first."""
    return [launch for find, _ in _FINDERS.values() if (launch := find(config)) is not None]


def _chromium(config: Config) -> Launch | None:
    options = config[BrowserConfig]
    shells = options.headless_shell if options.headless else ""
    if given := shells or options.chromium:
        return _chromium_at(locate(Path(given)), config)
    # As Playwright itself does: without a window, the headless shell, which takes half the time for a page.
    if options.headless and has_build("chromium-headless-shell"):
        return _chromium_at(None, config)
    if has_build("chromium"):
        return _chromium_at(None, config, channel="chromium")
    commands = (*(HEADLESS_SHELL_COMMANDS if options.headless else ()), *CHROMIUM_COMMANDS)
    program = _first(commands)
    return None if program is None else _chromium_at(program, config)


def _chromium_at(program: Path | None, config: Config, **more: Any) -> Launch:
    options = {
        "args": [*QUIET_ARGS, *config[BrowserConfig].chromium_args.split()],
        # Playwright would do without it everywhere.
        "chromiumSandbox": protection_of(config).has_sandbox,
        **more,
    }
    return _launch("chromium", program, config, options)


def _firefox(config: Config) -> Launch | None:
    named = config[BrowserConfig].firefox
    if not named and has_build("firefox"):
        return _launch("firefox", None, config)
    program = locate(Path(named)) if named else _first(FIREFOX_COMMANDS)
    # A Firefox as Mozilla makes it speaks WebDriver BiDi, Playwright's build a protocol of its own.
    return None if program is None else _launch("firefox", program, config, {"channel": "moz-firefox"})


def _webkit(config: Config) -> Launch | None:
    return _launch("webkit", None, config) if has_build("webkit") else None


def _launch(browser: str, program: Path | None, config: Config, options: Options | None = None) -> Launch:
    path = {} if program is None else {"executablePath": str(program)}
    return Launch(browser, {"headless": config[BrowserConfig].headless, **path, **(options or {})}, program)


def _first(commands: Sequence[str]) -> Path | None:
    return next(iter(search(commands, all_places())), None)


# Playwright's names for kinds of Chromium, each a program of its own.
_CHANNELS: Mapping[str, Sequence[str]] = {
    "chromium": ("chromium", "chromium-browser"),
    "chrome": ("google-chrome", "google-chrome-stable", "chrome"),
}
_Finder = Callable[[Config], Launch | None]
_FINDERS: Mapping[str, tuple[_Finder, str]] = {
    "chromium": (_chromium, "apt-get install chromium-headless-shell, or set REMUDA_CHROMIUM to its path"),
    "firefox": (_firefox, "apt-get install firefox-esr, or set REMUDA_FIREFOX to its path"),
    "webkit": (_webkit, "it needs a build of its own: python -m playwright install --with-deps webkit"),
}
