"""What a client asks for and what a browser offers: the capabilities of W3C WebDriver. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from remuda.base.errors import InvalidArgument
from remuda.fleet.relay.head import TICKET_QUERY

Capabilities = dict[str, Any]

_PAGE_LOAD_STRATEGIES = ("none", "eager", "normal")
_PROMPT_BEHAVIORS = ("dismiss", "accept", "dismiss and notify", "accept and notify", "ignore")

# W3C WebDriver 7.2, "validate capabilities": the standard capabilities and what they must be.
_STANDARD: Mapping[str, tuple[type, ...]] = {
    "acceptInsecureCerts": (bool,),
    "browserName": (str,),
    "browserVersion": (str,),
    "platformName": (str,),
    "pageLoadStrategy": (str,),
    "proxy": (dict,),
    "setWindowRect": (bool,),
    "strictFileInteractability": (bool,),
    "timeouts": (dict,),
    "unhandledPromptBehavior": (str, dict),
    "userAgent": (str,),
    "webSocketUrl": (bool,),
}
_CHOICES: Mapping[str, Sequence[str]] = {
    "pageLoadStrategy": _PAGE_LOAD_STRATEGIES,
    "unhandledPromptBehavior": _PROMPT_BEHAVIORS,
}
ANY = "any"
_ANY_VERSION = ("", ANY, "stable", "latest")
# Clients name Chromium either way; its driver calls itself chrome.
_ALIASES = {"chromium": "chrome"}
# As Selenium has it.
_PLATFORM_FAMILIES = {"linux": "unix"}
_VERSION = re.compile(r"\d+(\.\d+)*")
# As geckodriver takes it.
_COMPARISON = re.compile(r"(<=|<|>=|>|=)\s*(\d{1,9}(?:\.\d{1,9}){0,9})")
_DOWNLOADS = "se:downloadsEnabled"
MAX_SETS = 100
"""Sets that a request may choose from: each is looked at again whenever a slot becomes free."""
MAX_CAPABILITIES = 1000
"""Capabilities of a set: those of `alwaysMatch` are in each."""
MAX_NAME = 200
"""Characters of a browser's name, version or platform, which are compared with each offer again and again."""
_COMPARED = ("browserName", "browserVersion", "platformName")
_MAX_WORDS = 200


@dataclass(frozen=True)
class Offer:
    """What an orchestrator can start: a browser on a platform."""

    browser: str
    version: str
    platform: str

    def __str__(self) -> str:
        return f"{self.browser} {self.version} on {self.platform}"


@dataclass(frozen=True)
class Wish:
    """What decides whether an offer satisfies a capability set."""

    browser: str
    version: str
    platform: str
    downloads: bool

    def __str__(self) -> str:
        words = ["any browser" if self.browser == ANY else self.browser]
        words += [self.version] * (self.version != ANY)
        words += [f"on {self.platform}"] * (self.platform != ANY)
        words += ["with downloads"] * self.downloads
        return " ".join(words)


def read_request(body: Any) -> list[Capabilities]:
    """The capability sets of a New Session request, each one enough; InvalidArgument says what is wrong.

    W3C WebDriver 7.2, "process capabilities", steps 1 to 5.
    """
    request = _field(body, "capabilities", default=None)
    if request is None:
        raise InvalidArgument("The request has no 'capabilities'; W3C WebDriver clients send them")
    always = validate(_field(request, "alwaysMatch", default={}), "alwaysMatch")
    first = _field(request, "firstMatch", default=[{}])
    if not isinstance(first, list) or not first:
        raise InvalidArgument("'firstMatch' must be a list of at least one object")
    if len(first) > MAX_SETS:
        raise InvalidArgument(f"'firstMatch' has {len(first)} objects; it may have {MAX_SETS}")
    return [_merge(always, validate(each, f"firstMatch[{index}]")) for index, each in enumerate(first)]


def _field(holder: Any, name: str, *, default: Any) -> Any:
    if not isinstance(holder, dict):
        raise InvalidArgument(f"{name!r} must be inside a JSON object, not {kind_of(holder)}")
    return holder.get(name, default)


def validate(capabilities: Any, where: str) -> Capabilities:
    """The capabilities without nulls; InvalidArgument when one is unknown or of the wrong kind."""
    if not isinstance(capabilities, dict):
        raise InvalidArgument(f"{where!r} must be an object, not {kind_of(capabilities)}")
    if len(capabilities) > MAX_CAPABILITIES:
        raise InvalidArgument(
            f"{where!r} has {len(capabilities)} capabilities; it may have {MAX_CAPABILITIES}"
        )
    valid = {name: value for name, value in capabilities.items() if value is not None}
    for name, value in valid.items():
        _validate_one(name, value, where)
    return valid


def _validate_one(name: str, value: Any, where: str) -> None:
    if ":" in name:  # An extension capability is its vendor's business.
        return
    kinds = _STANDARD.get(name)
    if kinds is None:
        raise InvalidArgument(f"{where} has the unknown capability {name!r}")
    if not isinstance(value, kinds):
        raise InvalidArgument(f"{name!r} in {where} is {value!r}, which is {kind_of(value)}")
    if name in _COMPARED and isinstance(value, str) and len(value) > MAX_NAME:
        raise InvalidArgument(f"{name!r} in {where} has {len(value)} characters; it may have {MAX_NAME}")
    choices = _CHOICES.get(name)
    if choices and isinstance(value, str) and value not in choices:
        raise InvalidArgument(f"{name!r} in {where} is {value!r}; it may be one of {', '.join(choices)}")
    if name == "timeouts" and isinstance(value, dict):
        _validate_timeouts(value, where)


def _validate_timeouts(timeouts: dict[str, Any], where: str) -> None:
    # A driver looks only at the set that is chosen; a wrong one spoils the request wherever it is.
    for name, limit in timeouts.items():
        is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if limit is not None and not (is_number and limit >= 0):
            raise InvalidArgument(
                f"{name!r} of 'timeouts' in {where} is {limit!r}; it must be a number of at least 0"
            )


def _merge(always: Capabilities, first: Capabilities) -> Capabilities:
    # "If primary has a property of the same name, return error invalid argument."
    if both := sorted(always.keys() & first.keys()):
        raise InvalidArgument(f"{', '.join(both)} is in both 'alwaysMatch' and 'firstMatch'")
    return always | first


def as_request(sets: Sequence[Capabilities]) -> Capabilities:
    """The capability sets as a request has them, and as they are kept: what all of them share is in
    `alwaysMatch`. Of a request with that and one empty set, as clients send it, this is the same again."""
    shared = {name: value for name, value in sets[0].items() if all(_has(each, name, value) for each in sets)}
    first = [{name: value for name, value in each.items() if name not in shared} for each in sets]
    return {"alwaysMatch": shared, "firstMatch": first}


def _has(capabilities: Capabilities, name: str, value: Any) -> bool:
    if name not in capabilities:
        return False
    other = capabilities[name]
    # Compared as JSON: to Python, true is 1.
    return other is value or msgspec.json.encode(other) == msgspec.json.encode(value)


def sets_of(request: Any) -> list[Capabilities]:
    """The capability sets of a request as it is kept, which WebGrid's manager may have written; without what
    is not one. An earlier version has kept the sets themselves."""
    always: Any = {}
    first = request
    if isinstance(request, dict):
        always, first = request.get("alwaysMatch") or {}, request.get("firstMatch") or [{}]
    if not (isinstance(always, dict) and isinstance(first, list)):
        return []
    merged = [always | each for each in first if isinstance(each, dict)]
    return [{name: value for name, value in each.items() if value is not None} for each in merged]


def is_match(wanted: Capabilities, offer: Offer, *, fold: Callable[[str], str] = str.lower) -> bool:
    """Whether the offer satisfies one capability set; names are compared as `fold` makes them."""
    wish, platform = _wish(wanted, fold=fold), fold(offer.platform)
    return (
        wish.browser in (ANY, fold(offer.browser))
        and _is_version(wish.version, offer.version)
        and wish.platform in (ANY, platform, _PLATFORM_FAMILIES.get(platform))
        and (not wish.downloads or keeps_downloads(offer.browser))
    )


def first_match(sets: Iterable[Capabilities], offers: Iterable[Offer]) -> tuple[Capabilities, Offer] | None:
    """The first capability set, in the client's order, that some offer satisfies, with that offer.

    W3C WebDriver compares names as they are written. Clients do not, so other cases match too, but later.
    """
    sets, offers = list(sets), list(offers)
    pairs = [(wanted, offer) for wanted in sets for offer in offers]
    exact = (pair for pair in pairs if is_match(*pair, fold=str))
    return next(exact, None) or next((pair for pair in pairs if is_match(*pair)), None)


def for_client(actual: Capabilities, *, session: str, front_door: str, ticket: str = "") -> Capabilities:
    """What a driver says of its session, with URLs that work from the client's side.

    `webSocketUrl` (BiDi) is the one that the driver gave, so only there if it was asked for; `se:cdp` is
    how Selenium Grid names the way to a Chromium's DevTools, and what Playwright looks for. `remuda:video` is
    where the session's recording can be seen. Clients open both without their token, so both carry the
    ticket, if there is one.
    """
    ours = f"{front_door}/session/{session}"
    permit = f"?{TICKET_QUERY}={ticket}" if ticket else ""
    seen = dict(actual)
    if "webSocketUrl" in seen:
        seen["webSocketUrl"] = ours + permit
    chrome, video = seen.get("goog:chromeOptions"), seen.get("remuda:video")
    if isinstance(chrome, dict) and "debuggerAddress" in chrome:
        seen["se:cdp"] = f"{ours}/se/cdp{permit}"
        seen["se:cdpVersion"] = seen.get("browserVersion", "")
    if isinstance(video, dict) and "url" in video:
        http = f"http{front_door.removeprefix('ws')}" if front_door else ""
        seen["remuda:video"] = {name: f"{http}{path}" for name, path in video.items()}
    return seen


def for_viewer(actual: Capabilities, *, session: str, front_door: str = "") -> Capabilities:
    """The same for those who look at a session: no address inside the herd is in it.

    Without a front door its URLs are paths from there.
    """
    return _without_debugger(for_client(actual, session=session, front_door=front_door))


def _without_debugger(capabilities: Capabilities) -> Capabilities:
    # Chromium has it among its options, under whichever vendor's name; Firefox at the top.
    return {
        name: _without_debugger(value) if isinstance(value, dict) else value
        for name, value in capabilities.items()
        if not name.lower().endswith("debuggeraddress")
    }


def describe_wishes(sets: Iterable[Capabilities]) -> str:
    """What a request wants, for a person."""
    words = " or ".join(dict.fromkeys(str(_wish(wanted)) for wanted in sets))
    return words if len(words) <= _MAX_WORDS else f"{words[:_MAX_WORDS]}..."


def wants_downloads(wanted: Capabilities) -> bool:
    """Whether the client is to get what its browser downloads."""
    return wanted.get(_DOWNLOADS) in (True, "true")


def keeps_downloads(browser: str) -> bool:
    """Whether sessions with this browser may ask for `se:downloadsEnabled`."""
    return browser == "firefox" or browser.startswith("chrome")


def _wish(wanted: Capabilities, *, fold: Callable[[str], str] = str.lower) -> Wish:
    """Which browser a capability set wants, in one form however it was written."""
    browser = fold(wanted.get("browserName", ""))
    version = wanted.get("browserVersion", "")
    platform = fold(wanted.get("platformName", ""))
    return Wish(
        browser=_ALIASES.get(browser, browser) or ANY,
        version=ANY if version.lower() in _ANY_VERSION else version,
        platform=platform or ANY,
        downloads=wants_downloads(wanted),
    )


def _is_version(wanted: str, offered: str) -> bool:
    """Whether the wanted version is the offered one or its beginning: `81` and `81.0` are, `8` is not. It may
    also be compared with one: `>=81`, `<82`."""
    if wanted == ANY:
        return True
    if comparison := _COMPARISON.fullmatch(wanted):
        ours, theirs = (tuple(map(int, re.findall(r"\d+", text))) for text in (offered, comparison[2]))
        order = (ours > theirs) - (ours < theirs)
        return {"<": order < 0, "<=": order <= 0, "=": order == 0, ">=": order >= 0, ">": order > 0}[
            comparison[1]
        ]
    if not _VERSION.fullmatch(wanted):
        return wanted == offered
    parts = wanted.split(".")
    return offered.split(".")[: len(parts)] == parts


def kind_of(value: Any) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
