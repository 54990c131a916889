"""What a driver is asked for: what the client wants, plus what the herd adds, less what it keeps. Pure."""

from collections.abc import Sequence
from typing import Any

from remuda.base.errors import InvalidArgument
from remuda.grid.capabilities import Capabilities

# Meant for the grid; a driver refuses extension capabilities that it does not know.
_OURS = ("se:", "remuda:", "selenoid:", "moon:", "webgrid:")
# Matched by the grid already, in words that the driver may not understand ("chromium", "any", "156").
_MATCHED = ("browserVersion", "platformName")

# No first-run pages, and no talk with the browser's maker: it slows starts and spoils archives.
QUIET_ARGS = (
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
)


def driver_request(
    wanted: Capabilities, *, browser: str, binary: str, args: Sequence[str], headless: bool
) -> dict[str, Any]:
    """The body of the driver's own New Session request."""
    kept = {
        name: value
        for name, value in wanted.items()
        if not name.startswith(_OURS) and name not in _MATCHED and name != "goog:chromeOptions"
    }
    options = dict(wanted.get("goog:chromeOptions", {}))
    if "binary" in options:
        raise InvalidArgument("'binary' in goog:chromeOptions names a program of this machine; leave it out")
    given = list(options.get("args", []))
    options["args"] = [
        *given,
        *(arg for arg in _herd_args(args, headless=headless) if not _is_given(arg, given)),
    ]
    options["binary"] = binary
    return {"capabilities": {"alwaysMatch": {**kept, "browserName": browser, "goog:chromeOptions": options}}}


def _herd_args(args: Sequence[str], *, headless: bool) -> list[str]:
    return [*QUIET_ARGS, *(["--headless=new"] if headless else []), *args]


def _is_given(arg: str, given: Sequence[Any]) -> bool:
    # Clients write "--headless", "headless=new" and "--headless=old" alike; theirs wins.
    name = _name(arg)
    return any(isinstance(each, str) and _name(each) == name for each in given)


def _name(arg: str) -> str:
    return arg.lstrip("-").partition("=")[0]
