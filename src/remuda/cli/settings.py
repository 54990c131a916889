"""`remuda settings`: shows the live settings of a running herd, and changes them."""

import re
from collections.abc import Sequence

from remuda.base.errors import InvalidArgument
from remuda.cli.front_door import HerdAddress, ask_herd
from remuda.cli.tables import print_json, table, table_console

_number = re.compile(r"[0-9]+(\.[0-9]+)?").fullmatch
PATH = "/api/settings"


def show_settings(herd: HerdAddress, *, as_json: bool = False) -> None:
    """Prints every setting with its value."""
    _print(ask_herd(herd, PATH), as_json=as_json)


def change_settings(herd: HerdAddress, words: Sequence[str], *, as_json: bool = False) -> None:
    """Changes settings, each written as name=seconds, and prints all of them."""
    known = ask_herd(herd, PATH)
    changes = {}
    for word in words:
        name, _, text = word.partition("=")
        if name not in known:
            raise InvalidArgument(f"There is no setting {name!r}; there are {', '.join(known)}")
        if not _number(text):
            raise InvalidArgument(f"{word!r} does not set {name} to a number of seconds: {name}=300")
        changes[name] = float(text)
    _print(ask_herd(herd, PATH, method="PATCH", body=changes), as_json=as_json)


def _print(settings: dict[str, float], *, as_json: bool) -> None:
    if as_json:
        print_json(settings)
        return
    shown = table("setting", "seconds")
    for name, value in settings.items():
        shown.add_row(name, f"{value:g}")
    table_console().print(shown)
