"""An answer that is held back until the relay's owner has looked at it.

It stands between the upstream's connection and the exchange, as a handshake does, so that other requests pay
nothing for it.
"""

from typing import TYPE_CHECKING

from remuda.fleet.relay.body import Body
from remuda.fleet.relay.head import Response
from remuda.fleet.relay.plan import Vet

if TYPE_CHECKING:
    from remuda.fleet.relay.exchange import Exchange


class Vetting:
    """Owns the upstream's connection for the exchange; only a 200 is looked at."""

    def __init__(self, exchange: "Exchange", vet: Vet) -> None:
        self.request = exchange.request
        self._exchange = exchange
        self._vet = vet
        self._held: Response | None = None
        self._content = bytearray()

    @property
    def body(self) -> Body | None:
        return self._exchange.body

    def respond(self, response: Response, body: bytes) -> None:
        if response.status != 200:
            self._exchange.respond(response, body)
            return
        self._held = response
        self._content += body

    def respond_more(self, data: bytes) -> None:
        if self._held is None:
            self._exchange.respond_more(data)
        else:
            self._content += data

    def responded(self) -> None:
        if self._held is None:
            self._exchange.responded()
        else:
            self._exchange.vet(self._held, bytes(self._content), self._vet)

    def upgraded(self, response: Response, rest: bytes) -> None:
        self._exchange.upgraded(response, rest)

    def upstream_lost(self, reason: str) -> None:
        self._exchange.upstream_lost(reason)

    def upstream_congested(self) -> None:
        self._exchange.upstream_congested()
