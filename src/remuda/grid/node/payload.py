"""What a driver is asked for: what the client wants, plus what the herd adds, less what it keeps. Pure."""

from collections.abc import Sequence
from typing import Any

from remuda.base.errors import InvalidArgument
from remuda.grid.capabilities import Capabilities, kind_of

# Meant for the grid; a driver refuses extension capabilities that it does not know.
_OURS = ("se:", "remuda:", "selenoid:", "moon:", "webgrid:")
# Matched by the grid already, in words that the driver may not understand ("chromium", "any", "156").
_MATCHED = ("browserVersion", "platformName")

# What names a program, a browser or a path of this machine is not for clients to say.
_FORBIDDEN_OPTIONS = ("binary", "debuggerAddress", "minidumpPath")
_FORBIDDEN_ARGS = (
    "browser-subprocess-path",
    "gpu-launcher",
    "ppapi-plugin-launcher",
    "renderer-cmd-prefix",
    "utility-cmd-prefix",
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


def driver_request(
    wanted: Capabilities, *, browser: str, binary: str, args: Sequence[str], headless: bool
) -> dict[str, Any]:
    """The body of the driver's own New Session request."""
    kept = {
        name: value
        for name, value in wanted.items()
        if not name.startswith(_OURS) and name not in _MATCHED and name != "goog:chromeOptions"
    }
    options = _options(wanted.get("goog:chromeOptions", {}))
    given = _args(options.get("args"))
    options["args"] = [
        *given,
        *(arg for arg in _herd_args(args, headless=headless) if not _is_given(arg, given)),
    ]
    options["binary"] = binary
    return {"capabilities": {"alwaysMatch": {**kept, "browserName": browser, "goog:chromeOptions": options}}}


def _options(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InvalidArgument(f"'goog:chromeOptions' must be an object, not {kind_of(given)}")
    if forbidden := [name for name in _FORBIDDEN_OPTIONS if name in given]:
        raise InvalidArgument(f"{forbidden[0]!r} in goog:chromeOptions belongs to this machine; leave it out")
    return dict(given)


def _args(given: Any) -> list[str]:
    args = [] if given is None else given
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise InvalidArgument("'args' in goog:chromeOptions must be a list of strings")
    for arg in args:
        if _name(arg) in _FORBIDDEN_ARGS:
            raise InvalidArgument(f"The argument {arg!r} would start a program of this machine; leave it out")
    return args


def _herd_args(args: Sequence[str], *, headless: bool) -> list[str]:
    return [*QUIET_ARGS, *(["--headless=new"] if headless else []), *args]


def _is_given(arg: str, given: Sequence[str]) -> bool:
    # Clients write "--headless", "headless=new" and "--headless=old" alike; theirs wins.
    name = _name(arg)
    return any(_name(each) == name for each in given)


def _name(arg: str) -> str:
    return arg.lstrip("-").partition("=")[0].lower()
