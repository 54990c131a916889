"""A request of our own to another process of the herd, for routers that need an answer first."""

import asyncio
from collections.abc import Mapping

from remuda.base.descriptors import own_lack
from remuda.base.errors import UpstreamUnavailable
from remuda.fleet.relay.address import Address
from remuda.fleet.relay.errors import MalformedResponse
from remuda.fleet.relay.head import END, MAX_HEAD, read_response


async def ask(
    address: Address,
    method: str,
    target: str,
    body: bytes = b"",
    *,
    credential: bytes,
    headers: Mapping[str, str] | None = None,
    timeout: float,
) -> tuple[int, bytes]:
    """Status and body of the answer; UpstreamUnavailable when there is none, Overloaded if that is our fault.

    `credential` is the header line that guarded processes ask for.

    On a connection of its own, which is closed when the caller is cancelled: the other side then knows that
    nobody waits any more.
    """
    lines = {"Host": str(address), "Content-Length": str(len(body)), "Connection": "close", **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(*address, limit=MAX_HEAD)
            try:
                start = f"{method} {target} HTTP/1.1\r\n{head}".encode("latin-1")
                writer.write(start + credential + b"\r\n" + body)
                return await _read_answer(reader)
            finally:
                writer.close()
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        lack = own_lack(error) if isinstance(error, OSError) else None
        if lack is not None:
            raise lack from error
        raise UpstreamUnavailable(f"{address} does not answer: {str(error) or 'too late'}.") from error
    except MalformedResponse as error:
        raise UpstreamUnavailable(f"{address} did not answer in HTTP/1.1: {error}.") from error


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    response = read_response(await reader.readuntil(END))
    if response.length < 0:
        raise MalformedResponse("it does not tell the length of its answer")
    return response.status, await reader.readexactly(response.length)
