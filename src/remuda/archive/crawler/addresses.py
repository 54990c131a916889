"""Which addresses a crawl may connect to. Pure.

A page decides where its crawler goes next, so a crawler inside a network is a way into it. Every address is
checked after resolution and then connected to as checked: a second look-up could answer differently.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_Address = IPv4Address | IPv6Address
# Not private by their numbers: Azure's metadata server.
_METADATA = frozenset({IPv4Address("168.63.129.16")})
# Networks with an IPv4 address inside, and where in the 128 bits it ends: IPv4-mapped and -compatible
# (RFC 4291), IPv4-translated (RFC 2765), NAT64 (RFC 6052), 6to4 (RFC 3056).
_EMBEDDING = [
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("::/96"), 0),
    (IPv6Network("::ffff:0:0:0/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("2002::/16"), 80),
]
# What is_global knows differs with the version of Python, so these are named: protocol assignments with
# Oracle's metadata server, 6to4 relays; local NAT64 (RFC 8215), Teredo, discard, documentation, site-local,
# segment routing.
_REFUSED_V4 = [IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24")]
_REFUSED_V6 = [
    IPv6Network(network)
    for network in ("64:ff9b:1::/48", "2001::/32", "100::/64", "3fff::/20", "fec0::/10", "5f00::/16")
]


def is_public(text: str) -> bool:
    """Whether this IP address belongs to the public internet, in whatever form it is written."""
    return _is_public(ip_address(text.partition("%")[0]))


def _is_public(address: _Address) -> bool:
    if isinstance(address, IPv6Address):
        for network, shift in _EMBEDDING:
            if address in network:
                return _is_public(IPv4Address(int(address) >> shift & 0xFFFFFFFF))
        if any(address in network for network in _REFUSED_V6):
            return False
    elif any(address in network for network in _REFUSED_V4):
        return False
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not address.is_unspecified
        and address not in _METADATA
    )
