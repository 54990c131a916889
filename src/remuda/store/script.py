"""Lua scripts: each lies beside the Python file that calls it, and its header is its data dictionary.

    -- Takes a lease if nobody holds it.
    -- KEYS[1] remuda:lease:{resource}
    -- ARGV[1] owner
    -- ARGV[2] seconds
    -- returns 1 if taken, else 0

`load_script` checks the header against what the caller says it will pass, and the body against the
header, so the two can never drift apart. `KEYS[2..]` or `ARGV[3..]` stands for any number from there on.
Scripts spell no key: those that derive names from ids get templates (`Key.template()`) as arguments.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.base.errors import Broken
from remuda.keyspace.key import Key

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


def load_script(beside: str, name: str, *, keys: Sequence[Key[Any]], args: Sequence[str]) -> Script:
    """The script `name` that lies beside the Python file `beside`; Broken if its header says otherwise."""
    source = (Path(beside).parent / name).read_text()
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


def _header(source: str, kind: str, script: str) -> tuple[tuple[str, ...], bool]:
    names: list[str] = []
    is_open = False
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        match = _ENTRY.match(line)
        if match is None or match[1] != kind:
            continue
        if int(match[2]) != len(names) + 1 or is_open:
            raise Broken(f"{script} declares {kind}[{match[2]}] out of order")
        names.append(match[4])
        is_open = match[3] is not None
    return tuple(names), is_open


def _check_body(source: str, script: str, kind: str, *, count: int) -> None:
    body = "\n".join(line for line in source.splitlines() if not line.startswith("--"))
    for used, index in _USE.findall(body):
        if used == kind and int(index) > count:
            raise Broken(f"{script} uses {kind}[{index}], which its header does not declare")
