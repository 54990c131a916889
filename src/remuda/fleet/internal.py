"""The internal ports of a process, which answer the herd only (`fleet/secret.py`): where they are, and TLS
between the processes of a herd.

A process with a certificate speaks TLS on all of them and says so in Redis, beside its address. Whatever
connects to it verifies the certificate against the herd's own authority and the name that was advertised.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from remuda.base.certificate import Authorities, Certificate
from remuda.base.config import Config, HerdConfig
from remuda.base.errors import UpstreamUntrusted
from remuda.base.hosts import InternalHosts, internal_hosts, is_loopback, open_listener
from remuda.base.log import get_logger
from remuda.store import Store

if TYPE_CHECKING:
    from remuda.fleet.relay import Address, Relay

log = get_logger(__name__)

_PREFIX = "internal_"


@dataclass(frozen=True)
class InternalTls:
    """How this process speaks TLS with others of its herd. Keep it fresh with a task of the process."""

    certificate: Certificate | None = None
    """What its own ports show."""
    authorities: Authorities | None = None
    """What it verifies other ports with."""
    is_optional: bool = False
    """Whether it also connects to ports of other machines that do not speak TLS."""

    @classmethod
    def of(cls, config: Config) -> Self:
        """That of the options; Misconfigured says what is wrong with them."""
        herd = config[HerdConfig]
        certificate = Certificate.of(herd.internal_tls_cert, herd.internal_tls_key, options=_PREFIX)
        ca = herd.internal_tls_ca
        authorities = Authorities(ca, option=f"{_PREFIX}tls_ca") if ca else None
        return cls(certificate, authorities, herd.internal_tls_optional)

    def context_for(self, address: "Address") -> ssl.SSLContext | None:
        """How to connect to an internal port; None: without TLS. UpstreamUntrusted if it may not be."""
        if address.is_tls:
            if self.authorities is not None:
                return self.authorities.context
            reason = f"{address} speaks TLS, and this process has no internal_tls_ca to verify it with."
        # What stays on this machine cannot be overheard.
        elif self.authorities is None or self.is_optional or is_loopback(address.host):
            return None
        else:
            reason = (
                f"{address} does not speak TLS, but this process has an internal_tls_ca. Give that machine "
                "an internal_tls_cert, or set internal_tls_optional here until all machines have one."
            )
        log.warning("not connected", reason=reason)
        raise UpstreamUntrusted(reason)

    async def keep_fresh(self) -> None:
        """Reads the files again whenever they change, for ever."""
        async with asyncio.TaskGroup() as group:
            for files in (self.certificate, self.authorities):
                if files is not None:
                    group.create_task(files.keep_fresh(), name=f"keep fresh what {files}")


NO_TLS = InternalTls()


def internal_hosts_of(
    config: Config, store: Store, tls: InternalTls = NO_TLS, *, advertise: str = ""
) -> InternalHosts:
    """What the internal ports of this process listen on, and what the rest of the herd is told. `advertise`
    is before the config's own. Misconfigured if the rest would not trust the certificate under that name."""
    herd = config[HerdConfig]
    hosts = internal_hosts(herd.listen, advertise or herd.advertise, own=store.own_host)
    if tls.certificate is not None and tls.authorities is not None:
        tls.authorities.check(tls.certificate, hosts.advertise)
    return hosts._replace(certificate=tls.certificate)


async def serve_internally(relay: "Relay", hosts: InternalHosts, port: int = 0) -> tuple[asyncio.Server, int]:
    """Has the relay serve an internal port; the server, and the number of the port."""
    listener = open_listener(hosts.listen, port)

    def make_protocol() -> asyncio.Protocol:
        certificate = hosts.certificate
        return relay.protocol() if certificate is None else relay.tls_protocol(certificate.context)

    server = await asyncio.get_running_loop().create_server(make_protocol, sock=listener)
    return server, listener.getsockname()[1]
