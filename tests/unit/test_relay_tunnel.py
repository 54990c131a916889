"""How long a tunnel may last, and when its client counts as silent."""

from types import SimpleNamespace
from typing import Any, cast

from remuda.fleet.relay import TunnelLimits, Unobserved
from remuda.fleet.relay.tunnel import Tunnel


class Hours:
    """A tunnel at moments of a test's choice."""

    def __init__(self, limits: TunnelLimits) -> None:
        self._relay = SimpleNamespace(now=100.0, observer=Unobserved())
        self._tunnel = Tunnel(cast(Any, self._relay), cast(Any, None), lambda: None, limits)
        self._tunnel._inward = cast(Any, SimpleNamespace(flowed=0))
        self._tunnel._outward = cast(Any, SimpleNamespace(flowed=0))

    def after(self, seconds: float, *, bytes_in: int = 0, bytes_out: int = 0) -> str:
        """What the tunnel says so many seconds after its beginning, when so much has flowed just before."""
        self._relay.now = 100.0 + seconds
        self._tunnel.count(bytes_in, bytes_out)
        self._tunnel.tell()
        return self._tunnel.overdue()


def test_a_client_that_talks_is_not_idle() -> None:
    hours = Hours(TunnelLimits(idle=10))

    assert hours.after(9, bytes_in=1) == ""
    assert hours.after(18) == ""
    # What the browser says by itself does not count: an abandoned page may talk for ever.
    assert hours.after(19, bytes_out=1) == "The client has been silent for 10 s, which is the limit"


def test_talking_does_not_prolong_a_connection() -> None:
    hours = Hours(TunnelLimits(lifetime=10))

    assert hours.after(9, bytes_in=1) == ""
    assert hours.after(10, bytes_in=1) == "The connection has lasted 10 s, which is the limit"


def test_without_limits_it_lasts_for_ever() -> None:
    assert Hours(TunnelLimits()).after(1e9) == ""


def test_it_ends_as_soon_as_there_is_a_cause() -> None:
    causes: list[str] = []
    hours = Hours(TunnelLimits(cause=lambda: "".join(causes)))

    assert hours.after(1) == ""
    causes.append("The token ci was revoked")
    assert hours.after(2) == "The token ci was revoked"
