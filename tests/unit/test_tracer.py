"""Spans: who is whose parent, what is recorded, and that nothing is where nobody records."""

import subprocess
import sys

import pytest

from remuda.base.errors import Misconfigured
from remuda.fleet.tracing import SpanContext, TracingConfig, get_tracer, is_recording
from remuda.fleet.tracing.target import target_of
from remuda.fleet.tracing.tracer import RecordedSpan, recording

tracer = get_tracer("test")
CLIENT = SpanContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", True, "rojo=1")


def test_where_nobody_records_a_span_only_hands_its_parent_on() -> None:
    with tracer.span("outer", CLIENT) as span:
        assert not is_recording()
        assert span.context == CLIENT


def test_where_nobody_records_a_new_trace_says_that_it_is_not_kept() -> None:
    context = tracer.span("outer").context

    assert not context.is_sampled
    assert context.trace_id != tracer.span("outer").context.trace_id


def test_a_recorded_span_belongs_to_its_parents_trace() -> None:
    ended: list[RecordedSpan] = []

    with recording(ended.append):
        outer = tracer.span("outer", CLIENT)
        tracer.span("inner", outer.context, attributes={"a": 1}).end()
        outer.end()

    assert [(span.name, span.parent_id) for span in ended] == [
        ("inner", outer.context.span_id),
        ("outer", CLIENT.span_id),
    ]
    assert {span.context.trace_id for span in ended} == {CLIENT.trace_id}
    assert {span.context.state for span in ended} == {"rojo=1"}
    assert ended[0].attributes == {"a": 1}


def test_a_span_without_a_parent_begins_a_trace() -> None:
    ended: list[RecordedSpan] = []

    with recording(ended.append), tracer.span("root") as span:
        pass

    assert ended[0].parent_id == ""
    assert span.context.is_sampled


def test_a_span_in_which_something_fails_says_what() -> None:
    ended: list[RecordedSpan] = []

    with recording(ended.append), pytest.raises(ValueError), tracer.span("root"):
        raise ValueError("no horse")

    assert ended[0].error == "no horse"
    assert ended[0].attributes["error.type"] == "ValueError"


def test_a_span_ends_once() -> None:
    ended: list[RecordedSpan] = []

    with recording(ended.append):
        span = tracer.span("root")
        span.end()
        span.end()

    assert len(ended) == 1


def test_a_trace_that_its_client_does_not_keep_is_not_kept_here() -> None:
    ended: list[RecordedSpan] = []
    unsampled = SpanContext(CLIENT.trace_id, CLIENT.span_id, False)

    with recording(ended.append), tracer.span("outer", unsampled) as span:
        assert span.context == unsampled

    assert ended == []


def test_of_the_traces_that_begin_here_only_a_share_is_kept() -> None:
    ended: list[RecordedSpan] = []

    with recording(ended.append, sample=0.25):
        for _ in range(2000):
            tracer.span("root").end()

    assert 300 < len(ended) < 700


def test_without_a_collector_nothing_of_the_exporter_is_imported() -> None:
    lines = (
        "import asyncio, sys",
        "from remuda.fleet.tracing import TracingConfig, exporting",
        "async def main():",
        "    async with exporting(TracingConfig()): pass",
        "asyncio.run(main())",
        "print([name for name in sys.modules if name.startswith('remuda.fleet.tracing.')])",
    )

    printed = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)

    assert printed.stdout == "['remuda.fleet.tracing.context', 'remuda.fleet.tracing.tracer']\n"


@pytest.mark.parametrize(
    ("options", "url"),
    [
        ({"otlp_endpoint": "http://a:4318"}, "http://a:4318/v1/traces"),
        ({"otlp_endpoint": "https://a/otlp/"}, "https://a:443/otlp/v1/traces"),
        ({"otlp_endpoint": "http://[::1]:1"}, "http://[::1]:1/v1/traces"),
        ({"otlp_endpoint": "http://a", "otlp_traces_endpoint": "http://b/in?x=1"}, "http://b:80/in?x=1"),
    ],
)
def test_where_the_collector_is_asked(options: dict[str, str], url: str) -> None:
    assert str(target_of(TracingConfig(**options))) == url  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"otlp_endpoint": "collector:4317"},
        {"otlp_endpoint": "http://"},
        {"otlp_endpoint": "http://a:99999"},
        {"otlp_endpoint": "http://a", "otlp_headers": "token"},
        {"otlp_endpoint": "http://a", "otlp_headers": "a=b%0d%0aHost: c"},
        {"otlp_endpoint": "http://a", "otlp_attributes": "=b"},
    ],
)
def test_what_cannot_be_a_collector_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(Misconfigured, match="otlp_"):
        target_of(TracingConfig(**options))  # type: ignore[arg-type]


def test_headers_and_attributes_are_read_as_opentelemetry_writes_them() -> None:
    config = TracingConfig(
        otlp_endpoint="http://a", otlp_headers="api-key=a%20b, x=y=z", otlp_attributes="deployment=test"
    )

    target = target_of(config)

    assert target.headers == {"api-key": "a b", "x": "y=z"}
    assert target.resource["deployment"] == "test"
