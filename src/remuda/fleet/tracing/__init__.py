"""Traces: how long each step took, across processes, for an OpenTelemetry collector.

Written by hand and not with opentelemetry-sdk: that takes 14 MB, a thread and 0.4 s of CPU in each process
that exports, and every session has a node of its own. What follows costs nothing where no collector is
configured: then a span is a name for its parent, and the exporter is not even imported.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from remuda.base.config import Share, option
from remuda.fleet.tracing.context import SpanContext, decode_context, encode_context, read_context
from remuda.fleet.tracing.tracer import Kind, Span, Tracer, get_tracer, is_recording, recording

__all__ = [
    "Kind",
    "Span",
    "SpanContext",
    "Tracer",
    "TracingConfig",
    "decode_context",
    "encode_context",
    "exporting",
    "get_tracer",
    "is_recording",
    "read_context",
]


@dataclass(frozen=True, kw_only=True)
class TracingConfig:
    """Where traces are sent to."""

    otlp_endpoint: str = option(
        "",
        "OpenTelemetry collector that gets traces, by OTLP over HTTP in JSON, such as http://localhost:4318.",
        also=("OTEL_EXPORTER_OTLP_ENDPOINT",),
    )
    otlp_traces_endpoint: str = option(
        "",
        "Full URL for traces, if it is not `/v1/traces` below `otlp_endpoint`.",
        also=("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",),
    )
    otlp_headers: str = option(
        "",
        "Headers for the collector, as name=value,name=value.",
        secret=True,
        also=("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"),
    )
    otlp_attributes: str = option(
        "",
        "Resource attributes added to every span, as name=value,name=value.",
        also=("OTEL_RESOURCE_ATTRIBUTES",),
    )
    trace_sample: Share = option(
        1.0, "Share of new traces that are sampled; for traces that clients begin, their own flag decides."
    )


@asynccontextmanager
async def exporting(config: TracingConfig) -> AsyncIterator[None]:
    """Sends this process's spans to the configured collector while the block runs, if there is one.
    Misconfigured if it is not a valid address."""
    if not (config.otlp_endpoint or config.otlp_traces_endpoint):
        yield
        return
    from remuda.fleet.tracing.exporter import Exporter
    from remuda.fleet.tracing.target import target_of

    async with Exporter(target_of(config)) as exporter:
        with recording(exporter.take, sample=config.trace_sample):
            yield
