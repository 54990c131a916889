"""The exporter and its collector: what is sent, and what happens when the collector does not take it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from collectors import Collector, open_collector
from remuda.base import clock
from remuda.fleet.tracing import SpanContext, TracingConfig, exporting, get_tracer
from remuda.fleet.tracing import exporter as exporter_module
from remuda.fleet.tracing.exporter import BATCH, LAST_WORDS, MAX_WAITING, TIMEOUT, Exporter
from remuda.fleet.tracing.target import target_of
from remuda.fleet.tracing.tracer import Kind, recording
from waiting import eventually

tracer = get_tracer("test")
SOON = 0.05


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with open_collector() as collector:
        yield collector


def target(url: str) -> Exporter:
    return Exporter(target_of(TracingConfig(otlp_endpoint=url)), every=SOON)


def make_spans(count: int) -> None:
    for number in range(count):
        tracer.span(f"span {number}").end()


async def test_a_span_arrives_as_it_was(collector: Collector) -> None:
    client = SpanContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", True, "rojo=1")
    attributes: dict[str, str | int | float | bool] = {"text": "a", "number": 7, "share": 0.5, "switch": True}

    async with exporting(TracingConfig(otlp_endpoint=collector.url, otlp_headers="api-key=horse")):
        with tracer.span("work", client, kind=Kind.SERVER, attributes=attributes) as span:
            span.fail("TIMEOUT", "too late")

    (seen,) = collector.trace(client.trace_id)
    assert (seen.service, seen.name, seen.kind) == ("remuda-test", "work", 2)
    assert (seen.id, seen.parent, seen.state) == (span.context.span_id, client.span_id, "rojo=1")
    assert seen.attributes == {**attributes, "error.type": "TIMEOUT"}
    assert seen.error == "too late"
    assert 0 <= seen.ended - seen.began < 60e9
    assert collector.headers[0]["api-key"] == "horse"


async def test_another_url_for_traces_is_taken_as_it_is() -> None:
    async with open_collector("/elsewhere") as collector:
        async with exporting(TracingConfig(otlp_traces_endpoint=f"{collector.url}/elsewhere")):
            make_spans(1)

        assert len(collector.spans) == 1


async def test_spans_arrive_while_the_process_lives(collector: Collector) -> None:
    async with target(collector.url) as exporter:
        with recording(exporter.take):
            make_spans(BATCH + 1)

            await eventually(lambda: len(collector.spans) == BATCH + 1)


async def test_what_a_collector_does_not_take_waits_for_it_up_to_a_bound(collector: Collector) -> None:
    collector.status = 503

    async with target(collector.url) as exporter:
        with recording(exporter.take):
            make_spans(MAX_WAITING + 100)
            await eventually(lambda: collector.headers)
            make_spans(50)
            collector.status = 200

            await eventually(lambda: len(collector.spans) == MAX_WAITING)
            assert exporter.dropped == 150
    names = {span.name for span in collector.spans.values()}
    assert {f"span {number}" for number in range(50)} <= names, "the latest were dropped"


async def test_what_a_collector_refuses_is_not_offered_again(collector: Collector) -> None:
    collector.status = 400

    async with target(collector.url) as exporter:
        with recording(exporter.take):
            make_spans(3)
            await eventually(lambda: exporter.dropped == 3)
            collector.status = 200
            make_spans(1)

            await eventually(lambda: collector.spans)
    assert len(collector.spans) == 1


async def test_a_collector_that_is_down_delays_nobody() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    began = clock.monotonic()

    async with target(f"http://127.0.0.1:{port}") as exporter:
        with recording(exporter.take):
            make_spans(1)

    assert clock.monotonic() - began < LAST_WORDS


async def test_a_collector_that_hangs_delays_the_end_by_a_moment_only(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter_module, "LAST_WORDS", SOON)
    collector.hold = True

    async with target(collector.url) as exporter:
        with recording(exporter.take):
            make_spans(1)
            await eventually(lambda: collector.headers)
            began = clock.monotonic()

    assert clock.monotonic() - began < TIMEOUT / 2


async def test_what_answers_is_not_always_a_collector(caplog: pytest.LogCaptureFixture) -> None:
    async def babble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x00\x12\x04" * 50000)
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async with target(f"http://127.0.0.1:{port}") as exporter:
        with recording(exporter.take):
            make_spans(1)
            await eventually(lambda: "traces not exported" in caplog.text)

            assert exporter.dropped == 0
    server.close()
