"""W3C Trace Context: what is understood, what is not, and what is handed on."""

import pytest

from remuda.fleet.tracing import SpanContext, decode_context, encode_context, read_context

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


def test_the_span_that_a_request_comes_from_is_understood() -> None:
    found = read_context(f"00-{TRACE}-{SPAN}-01", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")

    assert found == SpanContext(TRACE, SPAN, True, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("01", True), ("02", False), ("ff", True)])
def test_only_one_flag_says_whether_it_is_sampled(flags: str, is_sampled: bool) -> None:
    found = read_context(f"00-{TRACE}-{SPAN}-{flags}")

    assert found is not None
    assert found.is_sampled is is_sampled


def test_a_later_version_may_have_more_to_say() -> None:
    assert read_context(f"01-{TRACE}-{SPAN}-01-more") == SpanContext(TRACE, SPAN, True)


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        "",
        "nonsense",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01, 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_what_is_no_context_is_as_if_nothing_had_been_said(traceparent: str | None) -> None:
    assert read_context(traceparent, "rojo=1") is None


@pytest.mark.parametrize("tracestate", ["x=" + "y" * 511, "x=\x00", "x=é"])
def test_a_state_that_is_too_long_or_no_text_is_dropped_whole(tracestate: str) -> None:
    found = read_context(f"00-{TRACE}-{SPAN}-01", tracestate)

    assert found == SpanContext(TRACE, SPAN, True)


@pytest.mark.parametrize("state", ["", "rojo=1"])
@pytest.mark.parametrize("is_sampled", [True, False])
def test_a_context_survives_its_way_through_redis(is_sampled: bool, state: str) -> None:
    context = SpanContext(TRACE, SPAN, is_sampled, state)

    assert decode_context(encode_context(context)) == context


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"traceparent": 5}', '{"a": "b"}'])
def test_what_somebody_else_has_put_there_is_no_context(text: str | None) -> None:
    assert decode_context(text) is None
