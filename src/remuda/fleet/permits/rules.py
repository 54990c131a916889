"""The rules by which a client's words to a browser are judged: forms of values, and what an operator allows
beyond the lists. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.base.errors import InvalidArgument

MAX_ARGS = 1000
MAX_PREFERENCES = 2000
"""With all that are nested: each is looked at while others wait."""
MAX_LENGTH = 16_384
"""Characters of one argument or value. Linux takes 128 KiB, and then the whole start fails."""
_SHOWN = 200
_MAX_DEPTH = 100
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Form:
    """What a value must look like."""

    fits: Callable[[str], bool]
    words: str


@dataclass(frozen=True)
class ListOf:
    """A list of values of one form."""

    form: Form


def form(pattern: str, words: str) -> Form:
    """The form of values that match the pattern as a whole."""
    expression = re.compile(pattern)
    return Form(lambda value: expression.fullmatch(value) is not None, words)


# Browsers ignore the value of a switch that takes none.
FLAG = form(r"[A-Za-z0-9_-]{0,32}", "empty")
NUMBER = form(r"-?\d{1,15}(\.\d{1,15})?", "a number")
NUMBERS = form(r"-?\d{1,6}(\.\d{1,6})?\s*[,x]\s*-?\d{1,6}(\.\d{1,6})?", "two numbers such as 1280,720")
TEXT = form(r".*", "a text")
NAMES = form(r"[A-Za-z0-9_]*(\s*,\s*[A-Za-z0-9_]+)*,?", "names separated by commas, without parameters")
LANGUAGES = form(r"[A-Za-z0-9_,;=. *-]{0,200}", "languages such as de-DE,de")
# Firefox takes a host that begins with `file:` for the path of a socket.
HOST = form(r"(?!(?i:file:))[A-Za-z0-9_.:\[\]-]*", "a host name or an address")
HOSTS = form(r"[A-Za-z0-9_.:,;*/<>\[\] -]*", "hosts separated by commas")
# A file: would be read from this machine; javascript: and chrome: reach what pages do not.
WEB_URL = form(r"(?i)(about:blank|(https?://|data:).*)?", "a URL with http, https or data, or about:blank")
WEB_URLS = form(
    r"(?i)(about:blank|https?://[^|]*)(\|(about:blank|https?://[^|]*))*|", "URLs with http or https"
)
PROXY = form(r"(?i)((https?|socks[45]?h?)://)?(?!file:)[^\s/\\]*/?", "host:port")


def one_of(*words: str) -> Form:
    return form("|".join(re.escape(word) for word in words), f"one of {', '.join(map(repr, words))}")


def words(text: str) -> frozenset[str]:
    """The names in a text, separated by blanks."""
    return frozenset(text.split())


def table(default: Form, names: str) -> dict[str, Form]:
    """A table in which these names, separated by blanks, all have this form."""
    return dict.fromkeys(names.split(), default)


def below(branch: str, names: str) -> frozenset[str]:
    """Names of one branch of preferences, which are given without it and separated by blanks."""
    return frozenset(f"{branch}.{name}" for name in names.split())


@dataclass(frozen=True)
class Allowance:
    """What an operator who trusts the clients lets pass beyond the lists."""

    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, option: str) -> "Allowance":
        """From the option `allow_browser_args`."""
        return cls(frozenset(name.strip().lstrip("-") for name in option.split(",") if name.strip()))

    def covers(self, name: str) -> bool:
        return "*" in self.names or name in self.names


NOTHING_MORE = Allowance()


def shown(value: Any) -> str:
    """A value as a message shows it: quoted, and not longer than a person reads."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def unlisted(what: str, name: str) -> InvalidArgument:
    """The refusal of something that the lists do not have."""
    return InvalidArgument(
        f"{what} is not known to be harmless to this machine; leave it out, or have the operator "
        f"add {shown(name)} to allow_browser_args"
    )


def misshapen(what: str, name: str, wanted: str) -> InvalidArgument:
    """The refusal of a value that is not of the listed form."""
    return InvalidArgument(
        f"{what} must be {wanted} to be harmless to this machine; leave it out, or have the operator "
        f"add {shown(name)} to allow_browser_args"
    )


def owned(what: str) -> InvalidArgument:
    """The refusal of what no operator can allow, since the herd would not work with it."""
    return InvalidArgument(f"{what} is controlled by this machine; leave it out")


def read_args(given: Any, where: str) -> list[str]:
    """The arguments as a list of bounded strings without control characters."""
    args = [] if given is None else given
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise InvalidArgument(f"'args' in {where} must be a list of strings")
    if len(args) > MAX_ARGS:
        raise InvalidArgument(f"'args' in {where} has {len(args)} arguments; it may have {MAX_ARGS}")
    for arg in args:
        check_text(arg, f"The argument {shown(arg)} in {where}")
    return args


def check_text(text: str, what: str) -> None:
    """InvalidArgument unless the text is bounded and has no control characters."""
    if len(text) > MAX_LENGTH:
        raise InvalidArgument(f"{what} has {len(text)} characters; it may have {MAX_LENGTH}")
    if _CONTROL.search(text):
        raise InvalidArgument(
            f"{what} has control characters, which are harmful to this machine; leave it out"
        )


@dataclass(frozen=True)
class PreferenceRules:
    """Which preferences may pass. A kind is a type that the value must have, or the form of a string."""

    names: Mapping[str, type | Form | ListOf]
    entries: Sequence[tuple[tuple[str, ...], type | Form | ListOf]]
    """A rule for all names that begin so, where the rest is not a name but an entry, such as a language or
    the pattern of a host. No branch is allowed as a whole: the form of a value does not tell what is done
    with it."""
    dropped: frozenset[str]

    def kind_of(self, name: str) -> type | Form | ListOf | None:
        if name in self.names:
            return self.names[name]
        return next((kind for beginnings, kind in self.entries if name.startswith(beginnings)), None)

    def is_dropped(self, name: str, allowed: Allowance) -> bool:
        return name in self.dropped and name not in allowed.names

    def check(self, name: str, value: Any, allowed: Allowance, where: str) -> None:
        """InvalidArgument unless the preference may pass with this value."""
        what = f"The preference {shown(name)} in {where}"
        if isinstance(value, str):
            check_text(value, what)
        if allowed.covers(name):
            return
        kind = self.kind_of(name)
        if kind is None:
            raise unlisted(what, name)
        if not fits(value, kind):
            raise misshapen(f"{what} is {shown(value)}; it", name, words_for(kind))


def fits(value: Any, kind: type | Form | ListOf) -> bool:
    """Whether a preference's value is of this kind; what is on or off may be a number too."""
    if value is None:
        return True
    if isinstance(kind, Form):
        return isinstance(value, str) and kind.fits(value)
    if isinstance(kind, ListOf):
        return isinstance(value, list) and all(
            isinstance(each, str) and kind.form.fits(each) for each in value
        )
    return isinstance(value, bool | int | float)


def words_for(kind: type | Form | ListOf) -> str:
    if isinstance(kind, ListOf):
        return f"a list, each {kind.form.words}"
    return kind.words if isinstance(kind, Form) else "true, false or a number"


def sift_preferences(
    prefs: Any, rules: PreferenceRules, allowed: Allowance, *, where: str, prefix: str = ""
) -> tuple[dict[str, Any], list[str]]:
    """The preferences that pass, nested as they came, and the names of those that are dropped.

    InvalidArgument names the first one that neither passes nor is dropped.
    """
    if not isinstance(prefs, dict):
        raise InvalidArgument(f"'prefs' in {where} must be an object")
    if prefix.count(".") > _MAX_DEPTH:
        raise InvalidArgument(f"'prefs' in {where} is nested too deeply at {shown(prefix)}")
    if not prefix and (count := _count_names(prefs)) > MAX_PREFERENCES:
        raise InvalidArgument(f"'prefs' in {where} has {count} names; it may have {MAX_PREFERENCES}")
    kept: dict[str, Any] = {}
    dropped: list[str] = []
    for key, value in prefs.items():
        name = f"{prefix}{key}"
        if rules.is_dropped(name, allowed):
            dropped.append(name)
        elif isinstance(value, dict):
            kept[key], more = sift_preferences(value, rules, allowed, where=where, prefix=f"{name}.")
            dropped += more
        else:
            rules.check(name, value, allowed, where)
            kept[key] = value
    return kept, dropped


def _count_names(prefs: dict[str, Any]) -> int:
    count, objects = 0, [prefs]
    while objects:
        each = objects.pop()
        count += len(each)
        objects += [value for value in each.values() if isinstance(value, dict)]
    return count
