"""A client's Firefox profile, taken apart: only its harmless parts are kept.

A profile can name programs for media types (handlers.json) and libraries to load (pkcs11.txt), and it can
hold databases that Firefox trusts. So only preferences and extensions are kept, the former by the list that
holds for the capability's own. All of this blocks: call it in a thread.
"""

import base64
import io
import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

from remuda.base.errors import InvalidArgument
from remuda.fleet.permits import Allowance
from remuda.fleet.permits.firefox import PREFERENCES
from remuda.grid.node.archives import BROKEN_ARCHIVE, open_archive
from remuda.grid.node.extensions import check_extension

MAX_ENTRIES = 5000
MAX_PREFERENCES = 4 << 20
MAX_EXTENSIONS = 128 << 20
"""Bytes of all extensions together, unpacked."""
MAX_GROWTH = 16
"""How many times as long they may be as the profile. They are archives: packing them again gains little."""

# The later has the last word.
_PREFERENCE_FILES = ("prefs.js", "user.js")
_EXTENSION = re.compile(r"extensions/[A-Za-z0-9@{}._ -]{1,128}\.xpi")
# Only blanks before it, no line breaks: of a file full of those, each would be tried with all that follow.
_PREFERENCE = re.compile(
    r"""^[ \t]*(?:user_pref|pref)\s*\(\s*("(?:[^"\\\n]|\\.)*")\s*,\s*"""
    r"""("(?:[^"\\\n]|\\.)*"|true|false|-?\d{1,10})\s*\)\s*;""",
    re.MULTILINE,
)


def take_apart(profile: str, allowed: Allowance) -> tuple[str, list[str]]:
    """The profile with its harmless parts only, and the names of what was left out of it."""
    kept, dropped = io.BytesIO(), []
    try:
        packed = base64.b64decode(profile, validate=False)
        archive = open_archive(packed)
        if len(archive.infolist()) > MAX_ENTRIES:
            raise InvalidArgument(f"'profile' has {len(archive.infolist())} files; it may have {MAX_ENTRIES}")
        with zipfile.ZipFile(kept, "w", zipfile.ZIP_DEFLATED) as harmless:
            prefs, refused = _sift(_read_preferences(archive), allowed)
            dropped += refused
            harmless.writestr("user.js", "".join(_line(name, value) for name, value in prefs.items()))
            room = min(MAX_EXTENSIONS, MAX_GROWTH * len(packed))
            for name in dict.fromkeys(archive.namelist()):
                if _EXTENSION.fullmatch(name):
                    content = _read(archive, name, room)
                    room -= len(content)
                    check_extension(content, allowed, where="profile")
                    harmless.writestr(name, content, zipfile.ZIP_STORED)
                elif name not in _PREFERENCE_FILES and not name.endswith("/"):
                    dropped.append(name)
    except BROKEN_ARCHIVE as error:
        raise InvalidArgument(f"'profile' is not a zip archive in base64: {error}") from error
    return base64.b64encode(kept.getbuffer()).decode(), [f"{name[:100]} in profile" for name in dropped]


def _read_preferences(archive: zipfile.ZipFile) -> Iterator[tuple[str, Any]]:
    names = set(archive.namelist())
    for file in _PREFERENCE_FILES:
        if file not in names:
            continue
        text = _read(archive, file, MAX_PREFERENCES).decode(errors="replace")
        for found in _PREFERENCE.finditer(text):
            # Both are JSON, but for escapes that only JavaScript has, which are not needed.
            try:
                yield json.loads(found[1]), json.loads(found[2])
            except ValueError:
                continue


def _sift(prefs: Iterator[tuple[str, Any]], allowed: Allowance) -> tuple[dict[str, Any], list[str]]:
    kept: dict[str, Any] = {}
    dropped: dict[str, None] = {}
    for name, value in prefs:
        try:
            PREFERENCES.check(name, value, allowed, "profile")
            kept[name] = value
        except InvalidArgument:
            dropped[name] = None
    return kept, list(dropped)


def _read(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    with archive.open(name) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise InvalidArgument(f"{name!r} in 'profile' is too large; there is room for {most} bytes")
    return content


def _line(name: str, value: Any) -> str:
    return f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
