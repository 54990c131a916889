"""What holds for the browsers of a machine whoever drives them: their names, where they lie, how they stay
quiet. Pure but for a look at the PATH."""

import os

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


def all_places() -> list[str]:
    """The directories in which a browser may be, the preferred first."""
    return [*os.environ.get("PATH", os.defpath).split(os.pathsep), *USUAL_PLACES]
