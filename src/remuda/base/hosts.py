"""Host names and addresses: which of them mean this machine, how they are written in a URL, and what this
machine is."""

import errno
import ipaddress
import platform
import secrets
import socket
from typing import NamedTuple

from remuda.base.certificate import Certificate
from remuda.base.errors import Misconfigured, reason_of

LOOPBACK = "127.0.0.1"
BACKLOG = 1024

# What Java, and with it Selenium Grid and its tools, call a processor.
_ARCHITECTURES = {"x86_64": "amd64", "arm64": "aarch64"}
_ADVICE = {
    errno.EADDRINUSE: "; stop what listens there, or choose another port",
    errno.EADDRNOTAVAIL: "; give an address of this machine",
    errno.EACCES: "; choose a port above 1023",
}


def is_loopback(name: str) -> bool:
    """Whether the host name or address can only mean this machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def hidden_loopback() -> str:
    """An address of this machine that no web page can guess: with the port there are 2^39 to try.

    Not one of 127.0.0.0/16, where others listen. It is for servers that answer any page which finds them.
    """
    return str(ipaddress.IPv4Address("127.1.0.0") + secrets.randbelow(255 << 16))


def reachable(host: str) -> str:
    """Where this machine reaches what listens on this address, which may stand for all of its own."""
    if not is_unspecified(host):
        return host
    return "::1" if ":" in host else "127.0.0.1"


def host_port(host: str, port: int) -> str:
    """`host:port` as URLs have it, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class InternalHosts(NamedTuple):
    """Where the internal ports of a process are."""

    listen: str = LOOPBACK
    advertise: str = LOOPBACK
    certificate: Certificate | None = None
    """What they show to their clients; without one they speak plain HTTP."""

    @property
    def scheme(self) -> str:
        """What they speak: `http` or `https`."""
        return "http" if self.certificate is None else "https"


LOOPBACK_ONLY = InternalHosts()


def internal_hosts(listen: str, advertise: str, *, own: str) -> InternalHosts:
    """Where internal ports are: as the options say, else at the address `own` that this machine has towards
    Redis; that is empty where Redis is not reached over a network."""
    own = own or LOOPBACK
    if not listen:
        listen = _narrowest(advertise) if advertise else own
    if not advertise:
        advertise = own if is_unspecified(listen) else listen
    return InternalHosts(listen, advertise)


def _narrowest(advertised: str) -> str:
    """What to listen on to be reached under this name: that address alone, where it is this machine's."""
    if is_loopback(advertised):
        return advertised if advertised[-1].isdigit() else LOOPBACK
    is_v6 = ":" in advertised
    try:
        ipaddress.ip_address(advertised)
        with socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((advertised, 0))
    except (ValueError, OSError):  # A name, or the address of a router that passes connections on.
        return "::" if is_v6 else "0.0.0.0"
    return advertised


def is_unspecified(host: str) -> bool:
    """Whether this address stands for all addresses of the machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def open_listener(host: str, port: int = 0, *, backlog: int = BACKLOG, shared: bool = False) -> socket.socket:
    """A socket that listens there; Misconfigured when it cannot be had. Others may listen there too if all of
    them say `shared`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=backlog, reuse_port=shared)
    except (OSError, OverflowError) as error:
        # Not the error's own text, which repeats the address.
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        advice = _ADVICE.get(getattr(error, "errno", None) or 0, "")
        raise Misconfigured(f"Cannot listen on {host_port(host, port)}: {reason}{advice}") from error
    listener.setblocking(False)
    return listener


def this_machine() -> dict[str, str]:
    """Processor, operating system and its version."""
    arch = platform.machine()
    return {
        "arch": _ARCHITECTURES.get(arch, arch),
        "name": platform.system(),
        "version": platform.release(),
    }
