"""Hides what a client would not want others to read: capabilities and logs carry credentials. Pure."""

import re
from typing import Any

from remuda.base.log import redact

HIDDEN = "***"
LONGEST = 300
"""Characters of a text that are shown: extensions and profiles come as megabytes of base64."""
SEARCHED = 20 * LONGEST

_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)?$|password|token|secret|credential|authorization|cookie|api[_-]?key"
    r"|access[_-]?key|private[_-]?key|(user|login)name$",
    re.IGNORECASE,
)
# `user:password@host` without a scheme, as the W3C's proxy capability has it. Backwards, from the `@`: there
# are fewer of those than places where a user's name could begin, each of which would be tried to the end.
_BARE_CREDENTIALS = re.compile(r"@[^\s/@]+:[^\s/@=:]+(?=$|[=\s])")
# A command line argument: `--proxy-password=hush`.
_ARGUMENT = re.compile(r"^(-{0,2}(?P<name>[\w.-]+)=).+$", re.DOTALL)


def mask(value: Any) -> Any:
    """The value without its secrets and without its longest texts, however deep they lie."""
    if isinstance(value, dict):
        return {
            clip(name): HIDDEN if _SECRET_NAME.search(name) else mask(each) for name, each in value.items()
        }
    if isinstance(value, list):
        return [mask(each) for each in value]
    return _mask_text(value) if isinstance(value, str) else value


def _mask_text(text: str) -> str:
    argument = _ARGUMENT.match(text)
    if argument and _SECRET_NAME.search(argument["name"]):
        return argument[1] + HIDDEN
    # Clipped last, because a cut might go through a secret; but only so much is searched.
    backwards = _BARE_CREDENTIALS.sub(f"@{HIDDEN}", text[SEARCHED - 1 :: -1] if text else "")
    return clip(redact(backwards[::-1]))


def clip(text: str) -> str:
    """The text, or its beginning if it is long."""
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
