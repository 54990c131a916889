"""Host names and addresses: which of them mean this machine, how they are written in a URL, and what this
machine is."""

import ipaddress
import platform
import secrets

# What Java, and with it Selenium Grid and its tools, call a processor.
_ARCHITECTURES = {"x86_64": "amd64", "arm64": "aarch64"}


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


def host_port(host: str, port: int) -> str:
    """`host:port` as URLs have it, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def this_machine() -> dict[str, str]:
    """Processor, operating system and its version."""
    arch = platform.machine()
    return {
        "arch": _ARCHITECTURES.get(arch, arch),
        "name": platform.system(),
        "version": platform.release(),
    }
