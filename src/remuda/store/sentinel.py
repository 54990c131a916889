"""What Sentinels know: which server is the master now, and when that changes.

All Sentinels of the URL are asked at once, and the one with the newest configuration is believed: while one
of them leads a fail-over, the others still name the old master, which takes writes that are lost with it.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from remuda.base.certificate import why_tls_failed
from remuda.base.errors import RemudaError, StoreUnavailable, reason_of
from remuda.store.url import StoreUrl
from remuda.store.wire import LOST, Batch, CommandRefused, Wire, pack

SENTINEL_TIMEOUT = 1.0
# For the others, once the first has answered: a dead one must not delay every connection.
OTHERS_TIMEOUT = 0.05
# Between two attempts to hear a Sentinel, and between two questions whether it is still there.
HEAR_AGAIN = 1.0
PING_EVERY = 5.0
NEWS = ("+switch-master", "+promoted-slave")

Host = tuple[str, int]
Failures = (OSError, CommandRefused, StoreUnavailable)


class _Told(NamedTuple):
    """What a Sentinel says; the newest epoch is compared first."""

    epoch: int
    master: Host


async def find_master(url: StoreUrl) -> Host:
    """Where the master is; OSError with what each Sentinel said, if none knows."""
    asking = {asyncio.create_task(_ask_one(url, *each), name="ask a Sentinel"): each for each in url.hosts}
    told: list[_Told] = []
    reasons: dict[Host, str] = {}
    waiting = set(asking)
    try:
        while waiting:
            timeout = OTHERS_TIMEOUT if told else None
            done, waiting = await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for task in done:
                try:
                    if (answer := task.result()) is not None:
                        told.append(answer)
                    else:
                        reasons[asking[task]] = "it watches no master of this name"
                except Failures as error:
                    reasons[asking[task]] = _explain_sentinel(error)
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    if told:
        return max(told).master
    found = "; ".join(f"{host}:{port}: {reasons[host, port]}" for host, port in url.hosts)
    raise OSError(f"no Sentinel knows the master of {url.service!r}: {found}")


async def _ask_one(url: StoreUrl, host: str, port: int) -> _Told | None:
    """What this Sentinel says; None when it does not watch the master."""
    async with asyncio.timeout(SENTINEL_TIMEOUT):
        wire = await _dial(url, host, port, lambda message: None)
        try:
            address = await ask(wire, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", url.service)
            if address is None:
                return None
            about = await ask(wire, "SENTINEL", "MASTER", url.service)
        finally:
            wire.abort()
    return _Told(int(about["config-epoch"]), (address[0], int(address[1])))


async def follow_master(url: StoreUrl, sentinel: Host, on_news: Callable[[], None]) -> NoReturn:
    """Calls back whenever this Sentinel says that the master changes, for ever; also once it can be heard
    again: it may have said so meanwhile."""

    def hear(message: list[Any]) -> None:
        if message[0] == "message" and is_about(url.service, message[2]):
            on_news()

    while True:
        try:
            async with asyncio.timeout(SENTINEL_TIMEOUT):
                wire = await _dial(url, *sentinel, hear)
            try:
                wire.post(pack("SUBSCRIBE", *NEWS), channels=len(NEWS))
                on_news()
                while not wire.is_closed:
                    async with asyncio.timeout(PING_EVERY):
                        await ask(wire, "PING")
                    await asyncio.sleep(PING_EVERY)
            finally:
                wire.abort()
        except Failures:  # What matters of it is said when the master is looked for.
            pass
        await asyncio.sleep(HEAR_AGAIN)


def is_about(service: str, news: str) -> bool:
    """Whether a message of a Sentinel is about this master: `main 10.0.0.1 6379 10.0.0.2 6379`, or
    `slave 10.0.0.2:6379 10.0.0.2 6379 @ main 10.0.0.1 6379`."""
    return news.startswith(f"{service} ") or f" @ {service} " in news


async def _dial(url: StoreUrl, host: str, port: int, on_push: Callable[[list[Any]], None]) -> Wire:
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_connection(lambda: Wire(on_push=on_push), host, port, ssl=url.sentinel_tls)
    try:
        if url.sentinel_password:
            await ask(wire, "AUTH", url.sentinel_username or "default", url.sentinel_password)
        await ask(wire, "HELLO", 3)
    except BaseException:
        wire.abort()
        raise
    return wire


def _explain_sentinel(error: OSError | RemudaError) -> str:
    if isinstance(error, TimeoutError):
        return f"it has not answered for {SENTINEL_TIMEOUT:g} s"
    text = str(error)
    if text.startswith("NOAUTH"):
        return "it requires a password; add sentinel_password=... to the URL"
    if text.startswith(("WRONGPASS", "ERR AUTH")):
        return "it refused the sentinel_password of the URL"
    if text.startswith("ERR unknown command"):
        return "it is not a Sentinel; the URL of a Redis itself begins with redis://"
    return explain(error)


def explain(error: OSError | UnicodeError | RemudaError) -> str:
    """Why no connection could be had, and what to change."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{why_tls_failed(error)}; name the authority of its certificate with ?ca=FILE"
    if isinstance(error, ssl.SSLError):
        return why_tls_failed(error)
    if isinstance(error, OSError):
        return reason_of(error)
    if str(error) == LOST:
        return "it closed the connection; it may expect TLS (rediss://), or a certificate, or not be a Redis"
    return str(error)


def ask(wire: Wire, *command: str | int) -> asyncio.Future[Any]:
    """The reply to one command."""
    reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    wire.send(Batch(pack(*command), (reply,)))
    return reply
