"""Sides that lost their power or their network: they send no FIN, and a tunnel has no deadline."""

import asyncio
import socket


def probe_when_silent(transport: asyncio.BaseTransport) -> int:
    """Have the kernel ask a silent side whether it is still there; one that is not counts as closed.

    The connection's descriptor.
    """
    sock = transport.get_extra_info("socket")
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    descriptor: int = sock.fileno()
    return descriptor
