"""Which proxies are believed, and what of what they say."""

import pytest

from remuda.base.errors import Misconfigured
from remuda.gateway.proxies import TrustedProxies


@pytest.mark.parametrize(
    ("address", "is_trusted"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("fd00::7", True),
        ("11.0.0.1", False),
        ("fe80::1", False),
        ("", False),
        ("10.0.0", False),
    ],
)
def test_an_address_of_a_network_is_trusted(address: str, *, is_trusted: bool) -> None:
    assert TrustedProxies("10.0.0.0/8, fd00::/8").includes(address) is is_trusted


@pytest.mark.parametrize(
    ("told", "client"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("1.1.1.1, 203.0.113.7", "203.0.113.7"),
        ("203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("made up, 203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("<script>", "10.0.0.1"),
        ("", "10.0.0.1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("2001:db8::1%<script>", "2001:db8::1"),
        ("203.0.113.7, ::ffff:10.0.0.2", "203.0.113.7"),
        ("203.0.113.7:4711", "10.0.0.1"),
    ],
)
def test_the_client_is_the_last_address_that_is_not_a_trusted_proxys(told: str, client: str) -> None:
    headers = {"x-forwarded-for": told}

    assert TrustedProxies("10.0.0.0/8").client_of(headers.get, address="10.0.0.1") == client


def test_a_network_that_is_none_is_named() -> None:
    with pytest.raises(Misconfigured, match="trusted_proxy has 'everywhere'"):
        TrustedProxies("10.0.0.0/8,everywhere")
