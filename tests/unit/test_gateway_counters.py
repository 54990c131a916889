"""Counting what went through the door."""

from remuda.fleet.relay import Request
from remuda.fleet.relay.head import read_head
from remuda.gateway.counters import Counters

HEAD = read_head(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")


def request(method: str) -> Request:
    return Request(HEAD, method, "/", "127.0.0.1")


def test_requests_are_counted_by_method_and_status_with_their_bytes() -> None:
    counters = Counters()
    for method, status in (("GET", 200), ("GET", 200), ("POST", 499), ("BREW", 200)):
        counters.request_started(request(method))
        counters.request_finished(request(method), status, 10, 100)
    counters.request_refused(400, 1, 2)
    counters.bytes_flowed(request("GET"), 1000, 2000)

    counts = counters.take()

    assert counts.requests == {("GET", 200): 2, ("POST", 499): 1, ("OTHER", 200): 1, ("OTHER", 400): 1}
    assert (counts.bytes_in, counts.bytes_out) == (1041, 2402)
    assert counters.in_flight == 0


def test_taking_starts_anew_and_putting_back_adds() -> None:
    counters = Counters()
    counters.request_finished(request("GET"), 200, 10, 100)
    lost = counters.take()
    counters.request_finished(request("GET"), 200, 1, 2)

    counters.put_back(lost)

    assert counters.take() == ({("GET", 200): 2}, 11, 102)
    assert counters.take() == ({}, 0, 0)
