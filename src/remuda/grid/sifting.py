"""A client's capabilities without what could harm this machine. Pure.

A driver starts whatever its options say, so what may pass is listed here, as for the browsers themselves in
`fleet.permits`. The manager looks first, so that a client hears of a refusal at once; the node looks again,
since it is what starts things.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from remuda.base.errors import InvalidArgument
from remuda.fleet.permits import NOTHING_MORE, Allowance, Sieve
from remuda.fleet.permits.rules import (
    FLAG,
    HOSTS,
    NUMBERS,
    PROXY,
    TEXT,
    WEB_URL,
    Form,
    check_text,
    fits,
    form,
    misshapen,
    owned,
    read_args,
    shown,
    unlisted,
    words_for,
)
from remuda.grid.browsers import FAMILIES
from remuda.grid.browsers.families import CHROME, FIREFOX, WEBKIT
from remuda.grid.capabilities import Capabilities, kind_of

# Of each driver's own capabilities, those that are harmless, with the kind of their value.
_VENDOR: Mapping[str, type] = {
    # Puppeteer sends these two with every BiDi session.
    "goog:disableNetworkDurableMessages": bool,
    "goog:loggingPrefs": dict,
    "goog:prerenderingDisabled": bool,
    "moz:accessibilityChecks": bool,
    "moz:debuggerAddress": bool,
    "moz:useNonSpecCompliantPointerOrigin": bool,
    "moz:webdriverClick": bool,
}
_VENDORS = ("goog:", "moz:", "webkitgtk:")

_PROXY: Mapping[str, type | Form] = {
    "proxyType": FLAG,
    "proxyAutoconfigUrl": WEB_URL,
    "ftpProxy": PROXY,
    "httpProxy": PROXY,
    "sslProxy": PROXY,
    "socksProxy": PROXY,
    "socksVersion": int,
    "socksUsername": TEXT,
    "socksPassword": TEXT,
    "autodetect": bool,
}

_CHROMIUM_OPTIONS: Mapping[str, type] = {
    "detach": bool,
    "devToolsEventsToLog": list,
    "enableExtensionTargets": bool,
    "extensionLoadTimeout": int,
    "loadAsync": bool,
    "mobileEmulation": dict,
    "perfLoggingPrefs": dict,
    "useAutomationExtension": bool,
    "w3c": bool,
    "windowTypes": list,
}
# Devices, and files, of this machine.
_OWNED_OPTIONS = ("android", "certificates", "debuggerAddress", "minidumpPath")

_LOG_LEVELS = ("trace", "debug", "config", "info", "warn", "error", "fatal")

_WEBKIT_ARGS: Mapping[str, Form] = {
    "automation": FLAG,
    "autoplay-policy": FLAG,
    "dark-mode": FLAG,
    "enable-itp": FLAG,
    "full-screen": FLAG,
    "geometry": form(r"\d{1,5}x\d{1,5}([+-]\d{1,5}){0,2}", "a size such as 1280x720"),
    "ignore-tls-errors": FLAG,
    "maximize": FLAG,
    "private": FLAG,
    "proxy": PROXY,
    "ignore-host": HOSTS,
    "user-agent": TEXT,
    "window-size": NUMBERS,
}


@dataclass(frozen=True)
class Sifted:
    """What is left of a capability set, and the names of what was left out without a refusal."""

    wanted: Capabilities
    ignored: tuple[str, ...]


def sift(wanted: Capabilities, allowed: Allowance = NOTHING_MORE) -> Sifted:
    """The capability set with only harmless parts; InvalidArgument names what may not be said."""
    sieve = Sieve(allowed)
    kept: Capabilities = {}
    for name, value in wanted.items():
        if (sift_options := _OPTIONS.get(name)) is not None:
            if not isinstance(value, dict):
                raise InvalidArgument(f"{name!r} must be an object, not {kind_of(value)}")
            kept[name] = _sift_options(value, sift_options, sieve, name)
            continue
        if name == "proxy":
            _check_proxy(value)
        elif name.startswith(_VENDORS) and not allowed.covers(name):
            _check_kind(value, _VENDOR.get(name), f"The capability {shown(name)}", name)
        kept[name] = value
    return Sifted(kept, tuple(sieve.dropped))


def check_all(sets: Iterable[Capabilities], allowed: Allowance) -> None:
    """InvalidArgument names what may not be said in any of the sets."""
    # Each set has all of `alwaysMatch`. It is looked at once: a hundred times would take minutes.
    seen: dict[tuple[str, int], Any] = {}
    for wanted in sets:
        sift({name: value for name, value in wanted.items() if (name, id(value)) not in seen}, allowed)
        seen |= {(name, id(value)): value for name, value in wanted.items()}


_OptionSieve = Callable[[Sieve, str, Any, str], Any]


def _sift_options(given: dict[str, Any], sift_one: _OptionSieve, sieve: Sieve, where: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith(_OWNED_OPTIONS):
            raise owned(f"{name!r} in {where}")
        if name == "binary":
            # Clients fill in the browser of their own machine; here the herd knows which one to start.
            if value is not None:
                sieve.dropped.append(f"binary in {where}")
        elif value is None:
            kept[name] = None
        else:
            kept[name] = sift_one(sieve, name, value, where)
    return kept


def _sift_chromium_option(sieve: Sieve, name: str, value: Any, where: str) -> Any:
    match name:
        case "args":
            return sieve.chromium_args(value, where=where)
        case "prefs":
            return sieve.chromium_prefs(value, where=where)
        case "localState":
            return sieve.chromium_local_state(value, where=where)
        case "excludeSwitches":
            return sieve.chromium_excluded(value, where=f"'excludeSwitches' in {where}")
        case "extensions":
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise InvalidArgument(f"'extensions' in {where} must be a list of strings in base64")
            return value
    if not sieve.allowed.covers(name):
        _check_kind(value, _CHROMIUM_OPTIONS.get(name), f"The option {shown(name)} in {where}", name)
    return value


def _sift_firefox_option(sieve: Sieve, name: str, value: Any, where: str) -> Any:
    match name:
        case "args":
            return sieve.firefox_args(value, where=where)
        case "prefs":
            return sieve.firefox_prefs(value, where=where)
        case "env":
            return sieve.firefox_env(value, where=where)
        case "profile":
            # Taken apart by the node, in a thread.
            if not isinstance(value, str):
                raise InvalidArgument(f"'profile' in {where} must be a string in base64")
            return value
        case "log":
            if (
                not isinstance(value, dict)
                or value.keys() - {"level"}
                or value.get("level") not in _LOG_LEVELS
            ):
                raise InvalidArgument(f"'log' in {where} must be {{'level': ...}} with one of {_LOG_LEVELS}")
            return value
    if not sieve.allowed.covers(name):
        raise unlisted(f"The option {shown(name)} in {where}", name)
    return value


def _sift_webkit_option(sieve: Sieve, name: str, value: Any, where: str) -> Any:
    if name == "args":
        for arg in read_args(value, where):
            _check_webkit_arg(arg, sieve.allowed, where)
        return value
    if not sieve.allowed.covers(name):
        kind = bool if name == "useOverlayScrollbars" else None
        _check_kind(value, kind, f"The option {shown(name)} in {where}", name)
    return value


def _check_webkit_arg(arg: str, allowed: Allowance, where: str) -> None:
    dashes, name, value = arg[:2], *arg[2:].partition("=")[::2]
    what = f"The argument {shown(arg)} in {where}"
    rule = _WEBKIT_ARGS.get(name) if dashes == "--" else None
    if allowed.covers(name):
        return
    if rule is None:
        raise unlisted(what, name)
    if not rule.fits(value):
        raise misshapen(what, name, rule.words)


_OPTIONS: Mapping[str, _OptionSieve] = {
    CHROME.options: _sift_chromium_option,
    FIREFOX.options: _sift_firefox_option,
    WEBKIT.options: _sift_webkit_option,
}


def _check_kind(value: Any, kind: type | None, what: str, name: str) -> None:
    if kind is None:
        raise unlisted(what, name)
    if not isinstance(value, kind):
        raise InvalidArgument(f"{what} is {kind_of(value)}, which is not allowed")


def _check_proxy(proxy: Any) -> None:
    """InvalidArgument unless the proxy names nothing but hosts, ports and a URL of the web."""
    if not isinstance(proxy, dict):
        raise InvalidArgument(f"'proxy' must be an object, not {kind_of(proxy)}")
    for name, value in proxy.items():
        if name == "noProxy":
            texts = value if isinstance(value, list) else [value]
            if all(text is None or (isinstance(text, str) and HOSTS.fits(text)) for text in texts):
                continue
        what = f"{shown(name)} in 'proxy'"
        kind = _PROXY.get(name, HOSTS if name == "noProxy" else None)
        if kind is None:
            raise owned(what)
        if isinstance(value, str):
            check_text(value, what)
        if not fits(value, kind):
            raise InvalidArgument(f"{what} is {shown(value)}; it must be {words_for(kind)}")


# Which browser a client's `binary` names

_BROWSER_OF: Mapping[str, str] = {
    command: family.name for family in FAMILIES.values() for command in family.commands
}


def with_named_browsers(sets: Sequence[Capabilities]) -> list[Capabilities]:
    """The capability sets; one whose `binary` names another browser of its driver comes twice, first with
    that one's name. Where the herd does not offer it, the set itself is left."""
    return [each for wanted in sets for each in (*_named(wanted), wanted)]


def _named(wanted: Capabilities) -> Iterable[Capabilities]:
    wish = wanted.get("browserName", "").lower()
    for family in FAMILIES.values():
        options = wanted.get(family.options)
        binary = options.get("binary") if isinstance(options, dict) else None
        if not isinstance(binary, str) or _BROWSER_OF.get(PurePath(binary).name) != family.name:
            continue
        kin = {name for each in FAMILIES.values() if each.options == family.options for name in each.names}
        if wish not in family.names and wish in ("", "any", *kin):
            yield {**wanted, "browserName": family.name}
