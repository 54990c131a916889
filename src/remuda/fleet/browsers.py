"""What holds for all browsers of a machine: their names, where they lie, how they stay
quiet. Pure but for a look at the PATH."""

import os
from dataclasses import dataclass

from remuda.base.config import option

CHROMIUM_COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
HEADLESS_SHELL_COMMANDS = ("chromium-headless-shell", "chrome-headless-shell")
FIREFOX_COMMANDS = ("firefox-esr", "firefox")

# Searched after the PATH, which is short in services and cron jobs.
USUAL_PLACES = (
    "/usr/local/bin",
    "/usr/bin",
    "/usr/lib/chromium",
    "/usr/lib/chromium-browser",
    "/opt/google/chrome",
    "/snap/bin",
)

# No first-run pages, and no talk with the browser's maker: it slows starts and spoils archives.
QUIET_ARGS = (
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
)


@dataclass(frozen=True, kw_only=True)
class BrowserConfig:
    """Which browsers are run, and how."""

    chromium: str = option("", "Path of Chromium or Chrome; by default it is searched for.")
    headless_shell: str = option("", "Path of Chromium's headless shell; by default it is searched for.")
    firefox: str = option("", "Path of Firefox; by default it is searched for.")
    chromium_args: str = option("", "Further arguments for every Chromium, separated by spaces.")
    allow_browser_args: str = option(
        "",
        "Switches (without dashes), preferences, variables and driver options, separated by commas, that "
        "clients may use beyond those known to be harmless; * allows all.",
    )
    headless: bool = option(
        True, "Run browsers without a window, unless the client asks for one.", also=("HEADLESS",)
    )


def all_places() -> list[str]:
    """The directories in which a browser may be, the preferred first."""
    return [*os.environ.get("PATH", os.defpath).split(os.pathsep), *USUAL_PLACES]
