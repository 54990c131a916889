"""Ids as people type them: as much of the beginning as no other id has."""

from collections.abc import Collection

from remuda.base.errors import InvalidArgument

SHOWN = 5


def complete(typed: str, known: Collection[str], *, what: str) -> str:
    """The only one of the known ids that begins so. If none does, what was typed: the herd refuses it."""
    if not typed:  # Else an empty variable of a script would mean the only one there is.
        raise InvalidArgument(f"An empty word names none of the {what}")
    found = sorted({each for each in known if each.startswith(typed)})
    if typed in found or not found:
        return typed
    if len(found) > 1:
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise InvalidArgument(
            f"{typed!r} is the beginning of {len(found)} {what}, type more of it: "
            f"{', '.join(found[:SHOWN])}{more}"
        )
    return found[0]
