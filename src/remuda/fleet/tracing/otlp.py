"""Spans as OTLP's JSON has them (opentelemetry-proto, `ExportTraceServiceRequest`). Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from remuda import __version__
from remuda.fleet.tracing.tracer import RecordedSpan

_SCOPE = {"name": "remuda", "version": __version__}
_ERROR = 2


def encode_spans(spans: Iterable[RecordedSpan], resource: Mapping[str, str]) -> bytes:
    """The body of an export request."""
    by_service: dict[str, list[RecordedSpan]] = {}
    for span in spans:
        by_service.setdefault(span.service, []).append(span)
    groups = [
        {
            "resource": {"attributes": _attributes({"service.name": f"remuda-{service}", **resource})},
            "scopeSpans": [{"scope": _SCOPE, "spans": [_span(each) for each in members]}],
        }
        for service, members in by_service.items()
    ]
    return msgspec.json.encode({"resourceSpans": groups})


def _span(span: RecordedSpan) -> dict[str, Any]:
    ended_at = span.began_at + (span.duration or 0.0)
    return {
        "traceId": span.context.trace_id,
        "spanId": span.context.span_id,
        "parentSpanId": span.parent_id,
        "traceState": span.context.state,
        "name": span.name,
        "kind": int(span.kind),
        "startTimeUnixNano": _nanoseconds(span.began_at),
        "endTimeUnixNano": _nanoseconds(ended_at),
        "attributes": _attributes(span.attributes),
        "status": {} if span.error is None else {"code": _ERROR, "message": span.error},
    }


def _nanoseconds(seconds: float) -> str:
    # A text: numbers of 64 bits are texts in protobuf's JSON. A float holds the microsecond.
    return str(round(seconds * 1_000_000) * 1000)


def _attributes(attributes: Mapping[str, str | int | float | bool]) -> Sequence[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: str | int | float | bool) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}
