"""Traces: how long each step took, across processes, for those who run an OpenTelemetry collector.

Written by hand and not with opentelemetry-sdk: that takes 14 MB, a thread and 0.4 s of CPU in each process
that exports, and every session has a node of its own. What follows costs nothing where no collector is
configured: then a span is a name for its parent, and the exporter is not even imported.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from remuda.base.config import Config
from remuda.fleet.tracing.context import SpanContext, decode_context, encode_context, read_context
from remuda.fleet.tracing.tracer import Kind, Span, Tracer, get_tracer, is_recording, recording

__all__ = [
    "Kind",
    "Span",
    "SpanContext",
    "Tracer",
    "decode_context",
    "encode_context",
    "exporting",
    "get_tracer",
    "is_recording",
    "read_context",
]


@asynccontextmanager
async def exporting(config: Config) -> AsyncIterator[None]:
    """Sends this process's spans to the configured collector while the block runs; to nobody if there is
    none. Misconfigured when what is configured cannot be one."""
    if not (config.otlp_endpoint or config.otlp_traces_endpoint):
        yield
        return
    from remuda.fleet.tracing.exporter import Exporter
    from remuda.fleet.tracing.target import target_of

    async with Exporter(target_of(config)) as exporter:
        with recording(exporter.take, sample=config.trace_sample):
            yield
