"""Which trace a step belongs to, and which span it happened in, as W3C Trace Context writes it. Pure."""

import re
import secrets
from dataclasses import dataclass

import msgspec

SAMPLED = 0x01
# W3C Trace Context 3.3.1.5: what is longer may be dropped, but only whole.
LONGEST_STATE = 512

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True)
class SpanContext:
    """What the children of a span need to know of it."""

    trace_id: str
    span_id: str
    is_sampled: bool
    state: str = ""
    """What tracing systems on the way have to say to each other; handed on unread."""

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{SAMPLED if self.is_sampled else 0:02x}"


def new_trace_id() -> str:
    return secrets.token_hex(16)


def new_span_id() -> str:
    return secrets.token_hex(8)


def read_context(traceparent: str | None, tracestate: str | None = None) -> SpanContext | None:
    """The span that a request comes from; None when it says nothing that can be understood."""
    match = _PARENT.fullmatch(traceparent or "")
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    # Version ff is forbidden, and 00 has these four parts; later versions may have more behind them.
    if version == "ff" or (version == "00" and more) or not (int(trace_id, 16) and int(span_id, 16)):
        return None
    state = tracestate or ""
    if len(state) > LONGEST_STATE or not _STATE.fullmatch(state):
        state = ""
    return SpanContext(trace_id, span_id, bool(int(flags, 16) & SAMPLED), state)


def encode_context(context: SpanContext) -> str:
    """The context as text: a JSON object with the headers that carry it."""
    headers = {"traceparent": context.traceparent}
    if context.state:
        headers["tracestate"] = context.state
    return msgspec.json.encode(headers).decode()


def decode_context(text: str | None) -> SpanContext | None:
    """The context that `encode_context` made this text of; None when it did not."""
    try:
        headers = msgspec.json.decode(text or "", type=dict[str, str])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return read_context(headers.get("traceparent"), headers.get("tracestate"))
