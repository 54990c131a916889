"""The end of WebSockets that this side ends: a close frame, so that clients do not take it for a broken line.

Nothing is parsed in a tunnel, so where frames end is not known. But a sender writes a frame in one go: a
tunnel that is at rest, with nothing on the way to the client, is between two. Any other is cut off without a
word: in the middle of a frame, these would be taken for a part of it.
"""

import asyncio
from collections.abc import Collection
from typing import cast

from remuda.fleet.relay.tunnel import Pipe, Tunnel

# RFC 6455 7.4.1: an endpoint is "going away", such as a server going down.
_CODE = (1001).to_bytes(2, "big")
# RFC 6455 5.5: a control frame holds at most 125 bytes, two of which are the code.
_MAX_REASON = 123

REST = 0.2
"""Without a byte for so long, a tunnel is at rest."""
LOOKS = 5
READS = 3


async def say_goodbye(tunnels: Collection[Tunnel], reason: str = "") -> None:
    """Tells the clients of these tunnels that it ends, each as soon as its tunnel is at rest, for a second.

    The clients answer with a close frame of their own, which goes through the tunnel as any other does: so
    the upstreams hear of it too, and close.
    """
    left = set(tunnels)
    frame = going_away(reason)
    for _ in range(LOOKS):
        for tunnel in left:
            tunnel.tell()  # Its count begins anew.
        await asyncio.sleep(REST)
        # Time passes also while this process is kept from reading: what has come meanwhile is read first.
        for _ in range(READS):
            await asyncio.sleep(0)
        resting = {tunnel for tunnel in left if _is_at_rest(tunnel)}
        for tunnel in resting:
            tunnel.client.write(frame)
        left -= resting
        if not left:
            return


def going_away(reason: str = "") -> bytes:
    """The close frame, with the reason in ASCII."""
    payload = _CODE + reason.encode()[:_MAX_REASON]
    return bytes((0x88, len(payload))) + payload


def _is_at_rest(tunnel: Tunnel) -> bool:
    outward = cast(Pipe, tunnel.upstream.get_protocol())
    return not outward.flowed and not tunnel.client.is_closing() and not tunnel.client.get_write_buffer_size()
