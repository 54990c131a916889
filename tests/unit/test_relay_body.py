"""Where a body ends, however it is cut into segments."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.fleet.relay.body import Body, Chunked, Counted, MalformedBody, UntilClose, unchunk

WHOLE = b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n"


def feed(body: Body, segments: list[bytes]) -> tuple[bytes, bytes]:
    passed = rest = b""
    for segment in segments:
        if body.done:
            rest += segment
            continue
        taken, left = body.feed(segment)
        passed += taken
        rest += left
    return passed, rest


@given(st.lists(st.integers(0, len(WHOLE) + 4)))
def test_any_cut_of_a_chunked_body_passes_the_same_bytes(cuts: list[int]) -> None:
    stream = WHOLE + b"next"
    edges = [0, *sorted(cuts), len(stream)]
    segments = [stream[a:b] for a, b in itertools.pairwise(edges)]
    body = Chunked()

    passed, rest = feed(body, segments)

    assert (passed, rest, body.done) == (WHOLE, b"next", True)


@given(st.binary(min_size=1, max_size=40), st.integers(1, 40))
def test_a_counted_body_ends_at_its_count(data: bytes, length: int) -> None:
    body = Counted(length)

    passed, rest = feed(body, [data[:3], data[3:]])

    assert passed == data[:length]
    assert rest == data[length:]
    assert body.done == (len(data) >= length)


def test_a_body_until_close_never_ends_by_itself() -> None:
    assert feed(body := UntilClose(), [b"a", b"b"]) == (b"ab", b"")
    assert not body.done


@pytest.mark.parametrize(
    "raw",
    [
        b"x\r\n",
        b"\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b" 1\r\n",
        b"1 \r\n",
        b"1 ;a\r\n",
        b"1\n",
        b"1;a\x00\r\n",
        b"1;a\rb\r\n",
        b"1;a\nb\r\n",
        b"1000000000000000\r\n",
        b"1\r\nab\r\n",
        b"1\r\na\n",
        b"1\r\na\r\r\n",
        b"0\r\nA b: c\r\n\r\n",
        b"0\r\n folded\r\n\r\n",
        b"0\r\nContent-Length: 3\r\n\r\n",
        b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"0\r\nX: y\n\r\n",
        b"1;" + b"e" * 5000,
        b"0\r\n" + b"X: y\r\n" * 4000,
    ],
)
def test_a_malformed_chunk_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedBody):
        Chunked().feed(raw)


def test_half_a_size_line_is_held_back() -> None:
    body = Chunked()

    assert body.feed(b"1\r\na\r\n5;half") == (b"1\r\na\r\n", b"")
    assert body.feed(b"\r\nab") == (b"5;half\r\nab", b"")


def test_the_content_of_chunks_can_be_had() -> None:
    assert unchunk(WHOLE) == b"abc0123456789"


def test_a_request_of_many_tiny_chunks_is_refused() -> None:
    tiny, fair = b"1\r\n \r\n" * 10_000, b"400\r\n" + b" " * 1024 + b"\r\n"
    request, response = Chunked(is_request=True), Chunked()

    # What clients send: some tiny chunks, and any number of larger ones.
    feed(request, [tiny] * 5 + [fair * 1000] * 20)
    with pytest.raises(MalformedBody, match="too small"):
        feed(request, [tiny] * 20)
    feed(response, [tiny] * 20)


def test_long_lines_between_chunks_count_as_much_as_many() -> None:
    chunk = b"1;" + b"x" * 4000 + b"\r\n \r\n"

    with pytest.raises(MalformedBody, match="too small"):
        feed(Chunked(is_request=True), [chunk] * 100)
