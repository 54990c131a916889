"""The front door: the room that serves the public port."""

import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from remuda.base.config import Config, Interval, option
from remuda.fleet.metrics import Metric, MetricKind, Numbers, ReadNumbers, Sample, count_fields
from remuda.fleet.role import DRAIN_TIMEOUT, Role
from remuda.fleet.room import RoleKind, Room, Surroundings
from remuda.keyspace import metrics
from remuda.keyspace.accounts import METRICS_ACCESS
from remuda.keyspace.key import Name
from remuda.metering.room import is_metered, make_metering

LISTENER = "REMUDA_LISTENER"
"""Where a parent hands the gateway its listening socket, so that a restart refuses no client."""


@dataclass(frozen=True, kw_only=True)
class GatewayConfig:
    """Which clients the front door lets in, and how it closes."""

    tls_cert: str = option(
        "",
        "File with the front door's certificate and its chain, in PEM; it is read again when it changes.",
    )
    tls_key: str = option("", "File with the key of tls_cert, in PEM.")
    trusted_proxy: str = option(
        "",
        "Networks of proxies whose X-Forwarded-* headers are believed, such as 10.0.0.0/8, separated by "
        "commas. From elsewhere these headers are dropped.",
    )
    share_port: bool = option(
        False,
        "Whether other gateways of this machine may listen on the same port, so that a new one takes over "
        "before the old one leaves.",
    )
    gateway_drain: Interval = option(
        10,
        "Seconds that a gateway waits for its clients on shutdown; then it closes WebSockets with 1001.",
    )
    cdp_reconnect: Annotated[int, msgspec.Meta(ge=0, le=86400)] = option(
        0,
        "Seconds for which a browser at /cdp/<id> stays open for its client to reconnect, after its last "
        "WebSocket is closed; `?keep=60s` sets it for one browser.",
    )
    allow_origins: str = option(
        "",
        "Web origins whose pages may send requests to the front door, separated by commas; its own dashboard "
        "always may.",
    )


def _gateway(on: Surroundings) -> Role:
    from remuda.gateway.role import Gateway

    inherited = os.environ.get(LISTENER)
    listener = socket.socket(fileno=int(inherited)) if inherited else None
    metering = make_metering(on) if is_metered(on.config) else None
    return Gateway(on.store, on.config, listener, rooms=on.rooms, metering=metering, tls=on.tls)


def _drain(config: Config) -> float:
    return DRAIN_TIMEOUT + config[GatewayConfig].gateway_drain


_COUNTED = {
    metrics.METRICS_HTTP_REQUESTS(method): method
    for method in metrics.METRICS_HTTP_REQUESTS.parts["method"].split("|")
}


def _requests(found: Mapping[Name, Numbers]) -> Iterator[Sample]:
    for key, method in _COUNTED.items():
        for code, value in sorted(found[key].items()):
            yield Sample(value, {"method": method, "code": code})


METRICS: Sequence[Metric[Any]] = (
    Metric(
        "webgrid_proxy_http_requests_total",
        MetricKind.COUNTER,
        ("method", "code"),
        "Requests answered at the front door, by HTTP method and status",
        (metrics.METRICS_HTTP_REQUESTS,),
        ReadNumbers(tuple(_COUNTED), re.compile(r"[1-9]\d\d")),
        _requests,
    ),
    count_fields(
        "webgrid_proxy_http_net_bytes_total",
        metrics.METRICS_HTTP_BYTES,
        "direction",
        "Bytes of request and response bodies at the front door",
    ),
    count_fields(
        "remuda_access_refused_total",
        METRICS_ACCESS,
        "reason",
        "Requests refused for lack of a token or of a right, and those over an account's limit",
    ),
)

ROOM = Room(
    name="gateway",
    config=[GatewayConfig],
    roles=[RoleKind(name="gateway", make=_gateway, drain=_drain, is_front_door=True)],
    metrics=lambda: METRICS,
)
