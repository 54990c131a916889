"""The queue: sessions that wait for a slot, first come, first served among those who want the same.

Each capability class has a line of its own (fleet/line.py), which all managers share. A session's ticket is
its topic, so that the bell of the session reaches it in the line as well: whoever ends a session that
waits ends its wait.
"""

import hashlib
from collections.abc import Iterable

from remuda.base.ids import SessionId
from remuda.fleet.line import who_waits
from remuda.grid.capabilities import Capabilities, class_of
from remuda.grid.sessions import session_topic
from remuda.store import Store

_PREFIX = "grid:"


def line_of(wanted: Iterable[Capabilities]) -> str:
    """The line of those who want the same. A digest: what clients write becomes part of no key."""
    return _PREFIX + hashlib.blake2b(class_of(wanted).encode(), digest_size=16).hexdigest()


async def positions(store: Store) -> dict[str, int]:
    """The position of each session that waits for a slot, in its line."""
    topic = session_topic(SessionId(""))
    return {each.ticket.removeprefix(topic): each.position for each in await who_waits(store, _PREFIX)}
