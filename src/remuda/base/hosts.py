"""Host names and addresses: which of them mean this machine, and how they are written in a URL."""

import ipaddress


def is_loopback(name: str) -> bool:
    """Whether the host name or address can only mean this machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_port(host: str, port: int) -> str:
    """`host:port` as URLs have it, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
