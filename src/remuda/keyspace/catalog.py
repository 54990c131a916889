"""Every declaration in one place: what the reference page, `remuda keys` and the census read.

A room's keys are collected from its module, so a key that is declared there cannot be forgotten here.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from remuda.keyspace import accounts, archive, fleet, grid, metering, metrics, playwright, storage
from remuda.keyspace.key import Key

_MODULES: Mapping[str, ModuleType] = {
    "grid": grid,
    "metrics": metrics,
    "storage": storage,
    "playwright": playwright,
    "metering": metering,
    "archive": archive,
    "accounts": accounts,
    "fleet": fleet,
}


CATALOG: Mapping[str, tuple[Key[Any], ...]] = {
    room: tuple(value for value in vars(module).values() if isinstance(value, Key))
    for room, module in _MODULES.items()
}
"""Room -> its keys, both in the order of the reference page."""

ABOUT: Mapping[str, str] = {
    room: (module.__doc__ or "").partition("\n")[0] for room, module in _MODULES.items()
}
"""Room -> one line about its keys."""


def find(name: str) -> Key[Any] | None:
    """The declaration that a live name matches, or None for a stranger."""
    # A plain walk: most patterns fail at their first letters, and the census is the only heavy caller.
    for keys in CATALOG.values():
        for key in keys:
            if key.regex.fullmatch(name):
                return key
    return None
