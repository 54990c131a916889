"""How a session ends: for one reason, the first."""

import asyncio
from dataclasses import dataclass
from typing import Any

from remuda.base import clock
from remuda.base.processes import how_ended
from remuda.keyspace.log_codes import BY_CODE


@dataclass(frozen=True)
class Ending:
    """Why a session ends: a log code with what is to be said about it; no code when others have said it."""

    code: str = ""
    message: str = ""
    is_fault: bool = False
    error: str = ""
    """What a client who still waits for the session is told, in W3C WebDriver's words; "" as is usual."""

    @property
    def meta(self) -> dict[str, Any]:
        """What the log says of it beside the code."""
        told = {"message": self.message, "error": self.error}
        return {name: text for name, text in told.items() if text}

    def __str__(self) -> str:
        return self.message or (BY_CODE[self.code].meaning if self.code else "it was ended from outside")


def browser_ending(status: int | None) -> Ending:
    """How a session ends whose browser has, with this exit status; None when that is not known."""
    if status == 0:  # As when it is told to over CDP or BiDi, or its window is closed.
        return Ending("CLOSED", "The browser was closed")
    return Ending("DFAILURE", f"The browser {how_ended(status)}", is_fault=True)


def driver_ending(status: int, last_line: str) -> Ending:
    """How a session ends whose driver has."""
    # One that was killed had no time to say why: its last line is about something else.
    why = f": {last_line}" if last_line and status >= 0 else ""
    return Ending("DFAILURE", f"The driver {how_ended(status)}{why}", is_fault=True)


def silent_ending(who: str, limit: float) -> Ending:
    """How a session ends whose driver or browser does not answer."""
    return Ending("DTIMEOUT", f"The {who} has not answered for {limit:g} s", is_fault=True)


class Fate:
    """A session's ending, open until the first reason for it."""

    def __init__(self) -> None:
        self._decided: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self.closing = asyncio.Lock()
        """Held while a command closes a window or the session: if the browser ends then, that is why."""
        self.decided_at = ""
        """When, once it was."""

    @property
    def ending(self) -> Ending | None:
        """How it was decided; None as long as the session lives."""
        return self._decided.result() if self._decided.done() else None

    def decide(self, ending: Ending) -> None:
        """Has the session end for this reason, unless it already ends for another."""
        if not self._decided.done():
            self.decided_at = clock.rfc3339()
            self._decided.set_result(ending)

    async def decided(self) -> Ending:
        """Waits for the end."""
        # Shielded: one who gives up waiting must not cancel it for all.
        return await asyncio.shield(self._decided)
