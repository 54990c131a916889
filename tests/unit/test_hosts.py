"""Addresses of this machine."""

import pytest

from remuda.base.hosts import reachable


@pytest.mark.parametrize(
    ("listening", "found"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("127.0.0.1", "127.0.0.1"), ("192.168.0.1", "192.168.0.1")],
)
def test_what_listens_on_all_addresses_is_reached_on_loopback(listening: str, found: str) -> None:
    assert reachable(listening) == found
