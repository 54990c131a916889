"""Spans: begun and ended where the work is done, kept only while they are recorded.

    with tracer.span("wait in queue", parent=context) as span:
        ...

One record for the whole process, as with logs: code that makes spans need not know whether they are exported.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from types import TracebackType
from typing import Self

from remuda.base import clock
from remuda.fleet.tracing.context import SpanContext, new_span_id, new_trace_id

Attributes = Mapping[str, str | int | float | bool]


class Kind(IntEnum):
    """What a span is to its parent; the numbers are OTLP's."""

    INTERNAL = 1
    SERVER = 2
    CONSUMER = 5


class Span:
    """Something that takes its time. This one is not recorded: it only hands its parent's context on."""

    def __init__(self, context: SpanContext) -> None:
        self.context = context

    def set(self, attributes: Attributes) -> None:
        """Says more about it."""

    def fail(self, kind: str, message: str = "") -> None:
        """Says that it failed; the first word counts."""

    def end(self) -> None:
        """Ends it, once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.fail(getattr(error, "code", type(error).__name__), str(error))
        self.end()


class RecordedSpan(Span):
    """A span that is kept, once it has ended."""

    def __init__(
        self, context: SpanContext, sink: "Sink", *, service: str, name: str, kind: Kind, parent_id: str
    ) -> None:
        super().__init__(context)
        self.service = service
        self.name = name
        self.kind = kind
        self.parent_id = parent_id
        self.attributes: dict[str, str | int | float | bool] = {}
        self.error: str | None = None
        self.began_at = clock.now()
        self.duration: float | None = None
        """Seconds; None until it has ended. Measured apart: wall clocks are set while a session runs."""
        self._began = clock.monotonic()
        self._sink = sink

    def set(self, attributes: Attributes) -> None:
        self.attributes.update(attributes)

    def fail(self, kind: str, message: str = "") -> None:
        if self.error is None:
            self.error = message
            self.attributes["error.type"] = kind

    def end(self) -> None:
        if self.duration is None:
            self.duration = clock.monotonic() - self._began
            self._sink(self)


Sink = Callable[[RecordedSpan], None]


class _Record:
    """Where the spans of this process go, and which part of the traces that begin here is kept."""

    sink: Sink | None = None
    sample: float = 1.0


class Tracer:
    """Makes the spans of one component."""

    def __init__(self, service: str) -> None:
        self._service = service

    def span(
        self,
        name: str,
        parent: SpanContext | None = None,
        *,
        kind: Kind = Kind.INTERNAL,
        attributes: Attributes | None = None,
    ) -> Span:
        """A span that begins now; without a parent, a trace does."""
        sink = _Record.sink
        trace_id = parent.trace_id if parent else new_trace_id()
        # Decided where the trace began; else half a trace would be kept.
        is_kept = parent.is_sampled if parent else _is_picked(trace_id)
        if sink is None or not is_kept:
            return Span(parent or SpanContext(trace_id, new_span_id(), is_sampled=False))
        span = RecordedSpan(
            SpanContext(trace_id, new_span_id(), is_sampled=True, state=parent.state if parent else ""),
            sink,
            service=self._service,
            name=name,
            kind=kind,
            parent_id=parent.span_id if parent else "",
        )
        span.set(attributes or {})
        return span


def _is_picked(trace_id: str) -> bool:
    # By the trace's own random bits: all processes that sample the same share pick the same traces.
    return int(trace_id[-14:], 16) < _Record.sample * (1 << 56)


def get_tracer(service: str) -> Tracer:
    """The tracer of a component."""
    return Tracer(service)


def is_recording() -> bool:
    """Whether spans are kept: if not, callers need not look up what they belong to."""
    return _Record.sink is not None


@contextmanager
def recording(sink: Sink, *, sample: float = 1.0) -> Iterator[None]:
    """Hands every span that ends to the sink while the block runs, which must not block; of the traces that
    begin here only this share."""
    _Record.sink, _Record.sample = sink, sample
    try:
        yield
    finally:
        _Record.sink = None
