"""Lua scripts: each lies beside the Python file that calls it, and its header is its data dictionary.

    -- Takes a lease if nobody holds it.
    -- KEYS[1] remuda:lease:{resource}
    -- ARGV[1] owner
    -- ARGV[2] seconds
    -- returns 1 if taken, else 0

`load_script` checks the header against what the caller says it will pass, and the body against the
header, so the two can never drift apart. `KEYS[2..]` or `ARGV[3..]` stands for any number from there on.
Scripts spell no key: those that derive names from ids get templates (`Key.template()`) as arguments.

Redis knows no imports. Functions that several scripts of a room need lie in a file of their own, which
`load_script` puts before each of them; what these functions take from KEYS and ARGV stands in that file's
header, and is part of the header of every script that shares it.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.base.errors import Broken
from remuda.keyspace.key import Key, Name, until

_ENTRY = re.compile(r"^-- (KEYS|ARGV)\[(\d+)(\.\.)?\] ([^\s,]+)")
_USE = re.compile(r"\b(KEYS|ARGV)\[(\d+)\]")


@dataclass(frozen=True)
class Script:
    """A checked script."""

    name: str
    source: str = field(repr=False)
    sha: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    open_keys: bool
    """Whether the last key may come any number of times."""
    open_args: bool

    def check_call(self, keys: Sequence[Any], args: Sequence[Any]) -> None:
        """Broken when a call does not pass what the header asks for."""
        for what, given, declared, is_open in (
            ("keys", keys, self.keys, self.open_keys),
            ("arguments", args, self.args, self.open_args),
        ):
            least = len(declared) - is_open
            if len(given) < least or (len(given) > least and not is_open):
                raise Broken(f"{self.name} takes {len(declared)} {what}, got {len(given)}")


def any_key(name: str) -> Key[Name]:
    """Stands for whatever key a script is given; the script's header calls it `{name}`."""
    return Key(f"{{{name}}}", Name, meaning="any key", writer="", lifetime=until("its owner says so"))


def load_script(
    beside: str, name: str, *, keys: Sequence[Key[Any]], args: Sequence[str], shared: str | None = None
) -> Script:
    """The script `name` that lies beside the Python file `beside`; Broken if its header says otherwise.

    With `shared`, the functions of that file come before it.
    """
    directory = Path(beside).parent
    source = (directory / name).read_text()
    if shared is not None:
        source = _join((directory / shared).read_text(), source)
    header = {"KEYS": _header(source, "KEYS", name), "ARGV": _header(source, "ARGV", name)}
    declared = {"KEYS": tuple(key.pattern for key in keys), "ARGV": tuple(args)}
    for kind, (names, is_open) in header.items():
        if names != declared[kind]:
            raise Broken(f"{name} declares {kind} {names}, its caller passes {declared[kind]}")
        if not is_open:
            _check_body(source, name, kind, count=len(names))
    return Script(
        name=name,
        source=source,
        sha=hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(),
        keys=declared["KEYS"],
        args=declared["ARGV"],
        open_keys=header["KEYS"][1],
        open_args=header["ARGV"][1],
    )


def _join(shared: str, source: str) -> str:
    """Both as one script: first both headers, then the shared functions, then the script's own body."""
    headers, bodies = zip(*(_split(text) for text in (shared, source)), strict=True)
    return "\n".join([*headers, *bodies])


def _split(source: str) -> tuple[str, str]:
    lines = source.splitlines()
    end = next((index for index, line in enumerate(lines) if not line.startswith("--")), len(lines))
    return "\n".join(lines[:end]), "\n".join(lines[end:])


def _header(source: str, kind: str, script: str) -> tuple[tuple[str, ...], bool]:
    matches = (_ENTRY.match(line) for line in _split(source)[0].splitlines())
    # By number: what a script and its shared functions declare may interlock.
    entries = sorted(
        ((int(match[2]), match) for match in matches if match and match[1] == kind),
        key=lambda entry: entry[0],
    )
    for place, (number, match) in enumerate(entries, 1):
        if number != place or (match[3] and place < len(entries)):
            raise Broken(f"{script} declares {kind}[{number}] out of order")
    return tuple(match[4] for _, match in entries), bool(entries and entries[-1][1][3])


def _check_body(source: str, script: str, kind: str, *, count: int) -> None:
    body = "\n".join(line for line in source.splitlines() if not line.startswith("--"))
    for used, index in _USE.findall(body):
        if used == kind and int(index) > count:
            raise Broken(f"{script} uses {kind}[{index}], which its header does not declare")
