"""Sends spans to a collector, in the background. A slow or absent collector delays nothing else: spans that
it does not take wait, up to a bound, and then the oldest are dropped.
"""

import asyncio
import ssl
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Self

from remuda.base.errors import Unavailable
from remuda.base.log import get_logger
from remuda.fleet.http_client import ask
from remuda.fleet.relay import Address
from remuda.fleet.tracing.otlp import encode_spans
from remuda.fleet.tracing.target import Target
from remuda.fleet.tracing.tracer import RecordedSpan

log = get_logger(__name__)

EXPORT_EVERY = 2.0
TIMEOUT = 10.0
LAST_WORDS = 3.0
"""How long the end of a process may wait for its last spans to be taken. Not much less: of a short session,
most of what its node tells are last words, and a busy collector needs its time."""
LAST_PAUSE = 60.0
BATCH = 512
MAX_WAITING = 2048

# OTLP 1.x, "Retryable Response Codes". What is refused with any other will be refused for ever.
_RETRYABLE = frozenset((429, 502, 503, 504))


class NotTaken(Exception):
    """The collector has not taken the spans; it may take them later."""


class Exporter:
    """Use it as `async with Exporter(target) as exporter`, and hand `exporter.take` what has ended."""

    def __init__(self, target: Target, *, every: float = EXPORT_EVERY) -> None:
        self._target = target
        self._every = every
        self._tls: ssl.SSLContext | None = target.tls
        self._waiting: deque[RecordedSpan] = deque(maxlen=MAX_WAITING)
        self._woken = asyncio.Event()
        self._is_closing = False
        self._is_failing = False
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0
        """How many spans were lost."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="export spans")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closing = True
        self._woken.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=LAST_WORDS)
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def take(self, span: RecordedSpan) -> None:
        """Keeps a span until the collector has it."""
        self.dropped += len(self._waiting) == MAX_WAITING
        self._waiting.append(span)
        if len(self._waiting) >= BATCH:
            self._woken.set()

    async def _run(self) -> None:
        pause = self._every
        is_last = False
        while not is_last:
            await self._pause(pause)
            is_last = self._is_closing
            # A collector that has just failed is not worth keeping a process from its end.
            if not (is_last and self._is_failing):
                await self._export_all()
            pause = min(pause * 2, LAST_PAUSE) if self._is_failing else self._every

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                # While it fails, new spans do not make it try again sooner; the end does.
                while not self._is_closing:
                    await self._woken.wait()
                    self._woken.clear()
                    if not self._is_failing:
                        return

    async def _export_all(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            try:
                await self._export(batch)
            except NotTaken as error:
                too_many = max(0, len(self._waiting) + len(batch) - MAX_WAITING)
                self.dropped += too_many
                self._waiting.extendleft(reversed(batch[too_many:]))
                if not self._is_failing:  # Said once, not with every attempt.
                    log.warning("traces not exported", to=str(self._target), reason=str(error))
                self._is_failing = True
                return
            if self._is_failing:
                log.warning("traces exported again", to=str(self._target), lost=self.dropped)
            self._is_failing = False

    async def _export(self, batch: list[RecordedSpan]) -> None:
        target, body = self._target, encode_spans(batch, self._target.resource)
        headers = {"Content-Type": "application/json", **target.headers}
        address = Address(target.host, target.port)
        try:
            # A connection each time: there is one every few seconds.
            status, _ = await ask(
                address, "POST", target.path, body, headers=headers, tls=self._tls, timeout=TIMEOUT
            )
        except Unavailable as error:
            raise NotTaken(error.message) from error
        if status in _RETRYABLE:
            raise NotTaken(f"status {status}")
        if not 200 <= status < 300:
            self.dropped += len(batch)
            log.warning("traces refused", to=str(self._target), status=status, lost=len(batch))
