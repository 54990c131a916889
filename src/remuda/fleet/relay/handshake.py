"""A WebSocket that is offered to an upstream: until the answer is known, another one can still be asked.

It stands between the upstream's connection and the exchange, so that ordinary requests pay nothing for it
and the client hears nothing of a refusal.
"""

import asyncio
from typing import TYPE_CHECKING

from remuda.base.errors import UpstreamUnavailable
from remuda.fleet.relay.body import Body
from remuda.fleet.relay.head import Response
from remuda.fleet.relay.plan import Answer, Dial
from remuda.fleet.relay.rewrite import onward
from remuda.fleet.relay.upstream import Pool, Upstream

if TYPE_CHECKING:
    from remuda.fleet.relay.exchange import Exchange


# What is kept of a refusal: the words of Playwright's server take 1 KB.
MAX_QUOTE = 16 * 1024


class Handshake:
    """One upstream's chance to take the WebSocket; owns the connection until the exchange does."""

    # A WebSocket's request has none.
    body: Body | None = None

    def __init__(self, exchange: "Exchange", plan: Dial) -> None:
        self.request = exchange.request
        self._exchange = exchange
        self._plan = plan
        self._upstream: Upstream | None = None
        self._is_taken = False
        self._quote: bytearray | None = None
        # The reason of a refusal; None once the client is answered.
        self._outcome: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    async def run(self, pool: Pool) -> str | None:
        """Why the upstream did not take the WebSocket; None when the client has its answer."""
        forward, timeout = self._plan.forward, self._plan.timeout
        try:
            async with asyncio.timeout(timeout):
                self._upstream = await pool.connect(forward.address)
                self._upstream.owner = self
                self._upstream.transport.write(onward(self.request, forward))
                return await self._outcome
        except UpstreamUnavailable as error:
            return error.message
        except TimeoutError:
            # The answer may have come in the moment in which the time was up.
            return None if self._is_taken else f"{forward.address} did not answer within {timeout:g} s."
        finally:
            if self._upstream is not None and not self._is_taken:
                self._upstream.drop()

    # What the upstream connection calls.

    def upgraded(self, response: Response, rest: bytes) -> None:
        # Too late, if the client has left or the time was up in this very turn of the loop: `run`, which
        # hears of that in the next, hangs up.
        if self._outcome.done():
            return
        self._take(response.status)
        self._exchange.upgraded(response, rest)

    def respond(self, response: Response, body: bytes) -> None:
        if self._outcome.done():
            return
        if self._plan.caller.is_answer(response.status):
            self._take(response.status)
            self._exchange.respond(response, body)
        elif response.status == self._plan.quoted:
            self._quote = bytearray(body[:MAX_QUOTE])
        else:
            self._refuse(response.status)

    def respond_more(self, data: bytes) -> None:
        if self._is_taken:
            self._exchange.respond_more(data)
        elif self._quote is not None:
            self._quote += data[: MAX_QUOTE - len(self._quote)]

    def responded(self) -> None:
        if self._is_taken:
            self._exchange.responded()
            self._exchange.end_call()
        elif self._quote is not None and not self._outcome.done():
            status, tell = self._plan.quoted, self._plan.on_quote
            if tell is not None:
                tell(Answer(status, bytes(self._quote), "text/plain; charset=utf-8"))
            self._refuse(status)

    def _refuse(self, status: int) -> None:
        self._settle(f"{self._plan.forward.address} answered {status}, not 101.")

    def upstream_lost(self, reason: str) -> None:
        if self._is_taken:
            self._exchange.upstream_lost(reason)
        else:
            self._settle(reason)

    def upstream_congested(self) -> None:
        """Nothing follows the head, so nothing has to slow down."""

    def _take(self, status: int) -> None:
        self._is_taken = True
        self._plan.caller.taken(status)
        self._exchange.upstream = self._upstream
        self._settle(None)

    def _settle(self, outcome: str | None) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)
